// SPDX-License-Identifier: Apache-2.0
// Tests add and mul: strides, broadcasts, calls in place, special values.
#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;

class Elementwise : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Elementwise, ::testing::ValuesIn(kFloats));

TEST_P(Elementwise, SumsAndProducts) {
  TestTensor a(GetParam(), {2, 3, 5}, Strides{-40, 7, 1}), b(GetParam(), {2, 3, 5});
  TestTensor out(GetParam(), {2, 3, 5}, Strides{1, 2, 6});
  a.fill(1), b.fill(2);
  Vector sum, product;
  for (size_t i = 0; i < 30; ++i)
    sum.push_back(a.at(i) + b.at(i)), product.push_back(a.at(i) * b.at(i));
  ASSERT_EQ(run("add", out, a, b).code, YARD_OK);
  expect_rounded(out, sum);
  ASSERT_EQ(run("mul", out, a, b).code, YARD_OK);
  expect_rounded(out, product);
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Elementwise, ZeroStridesBroadcast) {
  TestTensor a(GetParam(), {2, 3}, {1, 2, 3, 4, 5, 6}), b(GetParam(), {2, 3}, Strides{0, 1});
  TestTensor out(GetParam(), {2, 3});
  b.set({10, 20, 30, 10, 20, 30});
  ASSERT_EQ(run("add", out, a, b).code, YARD_OK);
  EXPECT_EQ(out.values(), (Vector{11, 22, 33, 14, 25, 36}));
}

TEST_P(Elementwise, InPlaceOnEitherInput) {
  TestTensor a(GetParam(), {4}, {1, 2, 3, 4}), b(GetParam(), {4}, {2, 2, 0.5, -1});
  ASSERT_EQ(run("mul", a, a, b).code, YARD_OK);
  EXPECT_EQ(a.values(), (Vector{2, 4, 1.5, -4}));
  ASSERT_EQ(run("add", b, a, b).code, YARD_OK);
  EXPECT_EQ(b.values(), (Vector{4, 6, 2, -5}));
}

TEST_P(Elementwise, SpecialValuesAndOverflow) {
  TestTensor a(GetParam(), {5}, {kNan, kInf, kInf, 0, -0.0});
  TestTensor b(GetParam(), {5}, {1, 1, -kInf, kInf, -0.0}), out(GetParam(), {5});
  ASSERT_EQ(run("add", out, a, b).code, YARD_OK);
  expect_rounded(out, {kNan, kInf, kNan, kInf, -0.0});
  EXPECT_TRUE(std::signbit(out.at(4)));
  ASSERT_EQ(run("mul", out, a, b).code, YARD_OK);
  expect_rounded(out, {kNan, kInf, -kInf, kNan, 0});
  TestTensor large(YARD_F16, {1}, {60000}), small(YARD_F16, {1});
  ASSERT_EQ(run("add", small, large, large).code, YARD_OK);
  EXPECT_EQ(small.at(0), kInf);
}

TEST_P(Elementwise, EmptyTensors) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{0, 3}, {3, 0}, {0}}) {
    TestTensor a(GetParam(), shape), out(GetParam(), shape);
    EXPECT_EQ(run("add", out, a, a).code, YARD_OK);
    EXPECT_EQ(run("mul", out, a, a).code, YARD_OK);
  }
}

}  // namespace
}  // namespace yard::reference::testing
