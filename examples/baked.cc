// SPDX-License-Identifier: Apache-2.0
// Uses a table that `yard bake --header` wrote for this program.
#include <yard/yard.h>

#include <cstdio>

#include "check.h"

// [use]
#include "baked.h"  // yard bake --trace calls.txt --header baked.h

static_assert(!baked::kernel_of("rms_norm").empty(), "record a warm-up that calls rms_norm");

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  baked::install(runtime).or_throw();  // an error if this machine lacks one of the kernels
  // [/use]
  static_assert(baked::kernel_of("softmax").empty());
  yard::Options fixed;
  fixed.mode = yard::Mode::kStatic;  // serves only baked ops
  const auto r = runtime.resolve("rms_norm(f32[8,4096], f32[4096])", fixed).value();
  std::printf("rms_norm runs %s\n", r.kernel.c_str());
  CHECK(r.kernel == baked::kernel_of("rms_norm"));
  CHECK(!runtime.resolve("softmax(f32[8,8])", fixed).ok());
}
