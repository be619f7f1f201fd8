// SPDX-License-Identifier: Apache-2.0
// Compares linear of OpenBLAS with the reference kernel.
#include "testing.h"

namespace yard::openblas {
namespace {

using testing::verified;

// Takes a minute, and the conformance tests run it there.
#ifndef YARD_UNDER_ASAN
TEST(OpenblasLinear, IsVerified) {
  EXPECT_TRUE(verified("linear", "vendor.openblas").verified());
  EXPECT_TRUE(verified("linear", "vendor.openblas_panels").verified());
}
#endif

TEST(OpenblasLinear, RowsThatAreNotEvenlySpacedAreCopied) {
  const KernelReport r =
      verified("linear", "vendor.openblas",
               {"linear(f32[2,3,64;400,96,1], f32[5,64;80,1])", "linear(f32[64], f32[5,64])",
                "linear(f32[7,64;100,1], f32[5,64;80,1], bias=f32[5])"});
  EXPECT_GT(r.passed, 0u);
  EXPECT_EQ(r.skipped, 0u);
}

TEST(OpenblasLinear, NoInnerDimensionGivesTheBias) {
  std::vector<float> out(6, 7), bias = {1, 2, 3};
  const TensorView to(out.data(), DType::f32, {2, 3}), x(out.data(), DType::f32, {2, 0}),
      weight(out.data(), DType::f32, {3, 0}), tb(bias.data(), DType::f32, {3});
  Options forced;
  forced.force = "vendor.openblas";
  const auto run = [&](std::vector<Arg> args) {
    return Runtime::shared().call("linear", args, forced).ok();
  };
  ASSERT_TRUE(run({{"out", to}, {"x", x}, {"weight", weight}, {"bias", tb}}));
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 1, 2, 3}));
  ASSERT_TRUE(run({{"out", to}, {"x", x}, {"weight", weight}}));
  EXPECT_EQ(out, std::vector<float>(6, 0));
}

// A panel of weights of width 4096 has 512 rows.
TEST(OpenblasLinear, SeveralPanelsOfWeights) {
  const KernelReport r = verified("linear", "vendor.openblas_panels",
                                  {"linear(f32[3,4096], q4_1[1100,4096])",
                                   "linear(bf16[2,4096], bf16[700,4096], bias=bf16[700])"});
  EXPECT_GT(r.passed, 0u);
  EXPECT_EQ(r.skipped, 0u);
}

}  // namespace
}  // namespace yard::openblas
