// SPDX-License-Identifier: Apache-2.0
// The code generator at work for two devices, each with a backend of its own: one specialises an implementation, the
// other a definition. Usage: flagtreelike PLUGIN
#include <yard/yard.h>

#include "../check.h"
#include "codegen.h"

using codegen::Builder;
using codegen::Value;

namespace {

// [set]
yard::HookSet mthreads_like() {
  yard::HookSet set("mthreads_like");
  set.add(codegen::matmul_kernel_hook, [](int64_t m, int64_t n, int64_t k) -> std::string {
    return "tensor core 128x128, " + std::to_string(m * n * k) + " products";
  });
  return set;
}
// [/set]

size_t lines_of_an_add(int bits) {
  Builder builder;
  codegen::atomic_add(builder, {"%p", 64}, {"%v", bits});
  return builder.lines().size();
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2);
  // Before anything is active, every hook means its default.
  CHECK(lines_of_an_add(64) == 1);
  CHECK(codegen::matmul(2, 2, 2) == "tile 64x64 of 2x2x2");

  // [activate]
  yard::Runtime& runtime = yard::Runtime::shared();
  yard::Hooks hooks = runtime.hooks();
  runtime.plugins().discover({argv[1]}).or_throw();
  hooks.add(mthreads_like()).or_throw();
  const yard::Device first{2, 0}, second{2, 1};
  hooks.activate("iluvatar_like", first).or_throw();
  hooks.activate("mthreads_like", second).or_throw();
  // [/activate]

  // [devices]
  {
    yard::ScopedDevice on(first);
    CHECK(lines_of_an_add(64) == 2);  // its own way
    CHECK(lines_of_an_add(32) == 1);  // it asked for the next, here the default
    CHECK(codegen::matmul(2, 2, 2) == "tile 64x64 of 2x2x2");
  }
  {
    yard::ScopedDevice on(second);
    CHECK(lines_of_an_add(64) == 1);
    CHECK(codegen::matmul(2, 2, 2) == "tensor core 128x128, 8 products");
  }
  CHECK(!codegen::matmul.engaged());  // on no device nothing is
  // [/devices]

  // [falsy]
  {
    yard::ScopedDevice on(first);
    Builder builder;
    CHECK(codegen::atomic_add(builder, {"%p", 64}, {"%v", 64}) == std::nullopt);
    CHECK(builder.lines().size() == 2);  // the default has not run behind its back
  }
  // [/falsy]

  // [scope]
  const yard::HookScope tuned = hooks.scope("mthreads_like").value();
  {
    yard::ScopedHooks in(tuned);  // this thread, until the end of the block
    CHECK(codegen::matmul(1, 1, 1) == "tensor core 128x128, 1 products");
  }
  CHECK(codegen::matmul(1, 1, 1) == "tile 64x64 of 1x1x1");
  // [/scope]

  // [list]
  const yard::HookListing list = hooks.list();
  CHECK(list.undeclared().empty() && list.unprovided().empty());
  CHECK(list.find("codegen.atomic_add")->providers[0].backend == "iluvatar_like");
  // [/list]

  // [unload]
  yard::Ticket gone = runtime.plugins().unload("iluvatar_like").value();
  gone.wait().or_throw();  // no call runs its hooks, its code is gone
  // [/unload]
  yard::ScopedDevice on(first);
  CHECK(lines_of_an_add(64) == 1);
  return 0;
}
