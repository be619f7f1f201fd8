// SPDX-License-Identifier: Apache-2.0
// Loads a weight that many calls use, so that kernels may keep a packed copy.
#include <yard/bound.h>
#include <yard/yard.h>

#include <cstdio>
#include <vector>

#include "check.h"

int main() {
  std::vector<float> w(64 * 32, 0.5f), from(2 * 32, 1), to(2 * 64);
  const yard::TensorView weight = yard::view(w, {64, 32}), x = yard::view(from, {2, 32}),
                         out = yard::view(to, {2, 64});
  // [load]
  auto project = yard::Instance::make("linear").value();
  project.load({{"weight", weight}}).or_throw();  // its contents stay as they are
  project.call({out, x, weight}).or_throw();      // the first call may pack it, once
  // [/load]
  CHECK(to[0] == 16 && to[127] == 16);
  // [changed]
  w[0] = 4.5f;
  project.load({{"weight", weight}}).or_throw();  // the weight is packed again
  project.call({out, x, weight}).or_throw();
  // [/changed]
  CHECK(to[0] == 20 && to[64] == 20 && to[1] == 16);
  // [options]
  yard::Options with;
  with.instance = &project;  // for typed calls, and to see which kernel is selected
  std::printf("%s\n", yard::explain("linear", {out, x, weight}, with).value().to_text().c_str());
  std::printf("%llu bytes are packed\n", static_cast<unsigned long long>(project.state_bytes()));
  // [/options]

  // Calls with another weight than the loaded one are still right. Kernels that pack nothing serve
  // them.
  std::vector<float> other(64 * 32, 1);
  project.call({out, x, yard::view(other, {64, 32})}).or_throw();
  CHECK(to[0] == 32 && to[127] == 32);
}
