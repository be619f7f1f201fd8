// SPDX-License-Identifier: Apache-2.0
// Verifies one kernel, for tests.
#pragma once

#include <gtest/gtest.h>
#include <yard/runtime.h>
#include <yard/verify.h>

#include <string>
#include <vector>

namespace yard::openblas::testing {

// Returns the report of one kernel on these calls, or on generated calls if there are none.
inline KernelReport verified(const std::string& op, const std::string& kernel,
                             std::vector<std::string> calls = {}) {
  VerifyOptions options;
  options.op = op, options.kernel = kernel, options.calls = std::move(calls);
  options.cases = 150;
  const auto report = verify(Runtime::shared(), options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  if (!report.ok() || report->kernels.size() != 1) return {};
  const KernelReport& k = report->kernels[0];
  EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
  return k;
}

}  // namespace yard::openblas::testing
