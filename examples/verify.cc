// SPDX-License-Identifier: Apache-2.0
// Compares a program's own kernels with the op's reference. One kernel is right, and one loses NaN.
#include <yard/op.h>
#include <yard/verify.h>
#include <yard/plugin.hpp>

#include <algorithm>
#include <cmath>

#include "check.h"

namespace plugin = yard::plugin;

// [op]
// Defines the op. Any stride would be better still; the claim says which arguments it takes.
void limit(plugin::Call, plugin::Tensor out, plugin::Tensor x, double most) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float v = x.data<float>()[i];
    out.data<float>()[i] = v > float(most) ? float(most) : v;
  }
}
// Faster, and wrong: fmin gives the other argument where one is NaN.
void limit_fast(plugin::Call, plugin::Tensor out, plugin::Tensor x, double most) {
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] = std::fmin(x.data<float>()[i], float(most));
}
// [/op]

int main() {
  yard::Runtime runtime;
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  yard::Changes changes;
  changes.add_op(plugin::OpDef("limit(out!: T[*rows, d], x: T[*rows, d], most: float = 1.0)"))
      .add_kernel(plugin::Kernel::of<limit>("limit", "reference.limit")
                      .kind(YARD_KIND_REFERENCE)
                      .limits(limits))
      .add_kernel(plugin::Kernel::of<limit_fast>("limit", "default.fast").limits(limits));
  runtime.apply(std::move(changes)).or_throw();

  // [verify]
  yard::VerifyOptions options;
  options.op = "limit";
  options.cases = 100;
  yard::VerifyReport report = yard::verify(runtime, options).value();
  for (const yard::KernelReport& k : report.kernels) {
    std::printf("%s %s: %zu passed, %zu failed\n", k.op.c_str(), k.id.c_str(), k.passed, k.failed);
    for (const yard::KernelReport::Case& c : k.failures)
      std::printf("  %s with %s: %s\n", c.call.c_str(), to_string(c.contents), c.what.c_str());
  }
  // [/verify]
  CHECK(!report.ok() && report.kernels.size() == 2);
  const yard::KernelReport& fast = report.kernels[0];
  CHECK(fast.id == "default.fast" && fast.failed > 0);
  CHECK(fast.failures[0].contents == yard::Contents::kNan);
  CHECK(report.kernels[1].failed == 0 && report.kernels[1].passed == 100);

  // [expect]
  options.expectations =
      yard::parse_expectations("default.fast limit *contents=nan : fails : fmin loses NaN\n",
                               "known.txt")
          .value();
  CHECK(yard::verify(runtime, options).value().ok());
  // [/expect]
}
