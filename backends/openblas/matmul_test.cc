// SPDX-License-Identifier: Apache-2.0
// Compares matmul of OpenBLAS with the reference kernel.
#include "testing.h"

namespace yard::openblas {
namespace {

using testing::verified;

#ifndef YARD_UNDER_ASAN  // as in linear_test.cc
TEST(OpenblasMatmul, IsVerified) { EXPECT_TRUE(verified("matmul", "vendor.openblas").verified()); }
#endif

// Each operand and the result may be row-major, column-major or neither.
TEST(OpenblasMatmul, EveryOrderOfDimensions) {
  std::vector<std::string> calls;
  for (const char* a : {";8,1", ";1,5", ";20,2"})
    for (const char* b : {";7,1", ";1,8", ";30,3"})
      for (const char* out : {";7,1", ";1,5", ";30,2"})
        calls.push_back("matmul(f32[5,8" + std::string(a) + "], f32[8,7" + b + "], out=f32[5,7" +
                        out + "])");
  calls.push_back("matmul(f32[3,2,5,8;160,80,8,1], f32[3,2,8,7;112,56,1,8])");
  const KernelReport r = verified("matmul", "vendor.openblas", calls);
  EXPECT_GE(r.passed, calls.size());
  EXPECT_EQ(r.skipped, 0u);
}

}  // namespace
}  // namespace yard::openblas
