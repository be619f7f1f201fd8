// SPDX-License-Identifier: Apache-2.0
// Applies a policy to some calls of one thread, until the end of a block.
#include <yard/yard.h>

#include <string>
#include <thread>

#include "check.h"

int main() {
  const auto chosen = [] { return yard::resolve("softmax(f32[8,64])").value().kernel; };
  const std::string usual = chosen();

  // [block]
  {
    yard::ScopedPolicy exact(yard::Scope().prefer(yard::Kind::kReference));
    CHECK(chosen() == "reference.cpp");
    std::thread([&] { CHECK(chosen() == usual); }).join();  // other threads are not affected
  }
  CHECK(chosen() == usual);
  // [/block]

  // [prepared]
  static const yard::Scope careful =
      yard::Scope().deny_vendors({"onednn"}).label("tenant", "blue").inference();
  for (int request = 0; request < 3; ++request) {
    yard::ScopedPolicy in(careful);  // some nanoseconds: the scope is made already
    CHECK(chosen().find("onednn") == std::string::npos);
  }
  // [/prepared]

  // [threads]
  yard::ScopedPolicy in(careful);
  const yard::Scope here = yard::current_scope();
  std::thread([&] {
    yard::ScopedPolicy there(here);
    CHECK(yard::current_scope().labels().at("tenant") == "blue");
  }).join();
  // [/threads]
  return 0;
}
