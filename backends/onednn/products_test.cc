// SPDX-License-Identifier: Apache-2.0
// linear and matmul by oneDNN against the reference kernel.
#include <gtest/gtest.h>
#include <yard/detail/sanitizers.h>
#include <yard/runtime.h>
#include <yard/verify.h>

#include "cost.h"

namespace yard::onednn {
namespace {

KernelReport verified(const char* op, const char* kernel) {
  VerifyOptions options;
  options.op = op, options.kernel = kernel, options.cases = 150;
  const auto report = verify(Runtime::shared(), options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  if (!report.ok() || report->kernels.size() != 1) return {};
  const KernelReport& k = report->kernels[0];
  EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
  return k;
}

#ifndef YARD_UNDER_ASAN  // half a minute, of what the conformance tests run there
TEST(OnednnProducts, AreVerified) {
  EXPECT_TRUE(verified("linear", "vendor.onednn").verified());
  EXPECT_TRUE(verified("matmul", "vendor.onednn").verified());
}
#endif

TEST(OnednnProducts, InBf16AreVerifiedWhereTheProcessorHasIt) {
  if (product_ns(true, 1, 1, 1) < 0) GTEST_SKIP() << "oneDNN has no product in bf16 here";
  for (const char* op : {"linear", "matmul"}) {
    const KernelReport r = verified(op, "vendor.onednn_bf16");
    EXPECT_TRUE(r.verified() || r.ran() == 0) << op;  // it needs avx512bf16
  }
}

}  // namespace
}  // namespace yard::onednn
