// SPDX-License-Identifier: Apache-2.0
// Tests matmul and linear against loops over every element, in every dtype of the weights.
#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;

class Products : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Products, ::testing::ValuesIn(kFloats));

Vector product(const Vector& a, const Vector& b, size_t m, size_t k, size_t n) {
  Vector out(m * n);
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j)
      for (size_t p = 0; p < k; ++p) out[i * n + j] += a[i * k + p] * b[p * n + j];
  return out;
}

TEST_P(Products, MatricesOfAnyStride) {
  TestTensor a(GetParam(), {3, 5}, Strides{-7, 1}), b(GetParam(), {5, 2}, Strides{1, 6});
  TestTensor out(GetParam(), {3, 2}, Strides{1, 4});
  a.fill(1), b.fill(2);
  ASSERT_EQ(run("matmul", out, a, b).code, YARD_OK);
  expect_rounded(out, product(a.values(), b.values(), 3, 5, 2), 1e-12);
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Products, BatchesAndBroadcasts) {
  TestTensor a(GetParam(), {2, 2, 2, 3}), b(GetParam(), {2, 2, 3, 4}, Strides{0, 0, 4, 1});
  TestTensor out(GetParam(), {2, 2, 2, 4});
  a.fill(3);
  Vector one, all, expected;
  for (int i = 0; i < 12; ++i) one.push_back(i / 4.0 - 1);
  for (int i = 0; i < 4; ++i) all.insert(all.end(), one.begin(), one.end());
  b.set(all);
  const Vector values = a.values();
  for (size_t i = 0; i < 4; ++i) {
    const Vector part(values.begin() + static_cast<ptrdiff_t>(6 * i),
                      values.begin() + static_cast<ptrdiff_t>(6 * i + 6));
    const Vector c = product(part, one, 2, 3, 4);
    expected.insert(expected.end(), c.begin(), c.end());
  }
  ASSERT_EQ(run("matmul", out, a, b).code, YARD_OK);
  expect_rounded(out, expected, 1e-12);
}

TEST(Products, SumsAreExactBeforeTheyAreRounded) {
  // In f32 the first two terms would swallow the others.
  TestTensor a(YARD_F32, {1, 4}, {0x1p30, -0x1p30, 3, 1}), b(YARD_F32, {4, 1}, {1, 1, 1, 0.5});
  TestTensor out(YARD_F32, {1, 1});
  ASSERT_EQ(run("matmul", out, a, b).code, YARD_OK);
  EXPECT_EQ(out.at(0), 3.5);
}

// 12 and -12 cancel, and 3 is left. Magnitudes are norms plus a hundredth of the sums of sizes.
TEST(Products, TheMagnitudeIsThatOfTheTerms) {
  TestTensor a(YARD_F32, {1, 3}, {3, -4, 3}), b(YARD_F32, {3, 2}, {4, 0, 3, 0, 0, 1});
  TestTensor out(YARD_F32, {1, 2});
  ASSERT_EQ(run_magnitude("matmul", out, a, b).code, YARD_OK);
  EXPECT_NEAR(out.at(0), std::sqrt(288.0) + 0.24, 1e-5);
  EXPECT_NEAR(out.at(1), 3.03, 1e-6);

  TestTensor w(YARD_I8, {2, 3}, {4, 3, 0, 0, 0, 1}), scale(YARD_F32, {2}, {-0.5, 2});
  TestTensor bias(YARD_F32, {2}, {-1, 8});
  ASSERT_EQ(run_magnitude("linear", out, a, w, scale, bias).code, YARD_OK);
  EXPECT_NEAR(out.at(0), std::sqrt(288.0 / 4 + 1) + 0.13, 1e-5);
  EXPECT_NEAR(out.at(1), 10 + 0.14, 1e-6);
}

TEST_P(Products, NothingToSumGivesZero) {
  TestTensor a(GetParam(), {2, 0}), b(GetParam(), {0, 3}), out(GetParam(), {2, 3});
  ASSERT_EQ(run("matmul", out, a, b).code, YARD_OK);
  EXPECT_EQ(out.values(), Vector(6, 0));
  TestTensor w(GetParam(), {3, 0}), bias(GetParam(), {3}, {1, 2, 3});
  ASSERT_EQ(run("linear", out, a, w, nullptr, bias).code, YARD_OK);
  EXPECT_EQ(out.values(), (Vector{1, 2, 3, 1, 2, 3}));
  TestTensor none(GetParam(), {0, 3});
  EXPECT_EQ(run("matmul", none, none, TestTensor(GetParam(), {3, 3}).fill(1)).code, YARD_OK);
}

TEST_P(Products, SpecialValuesStayInTheirRowAndColumn) {
  TestTensor a(GetParam(), {2, 2}, {kNan, 1, 1, 1}), b(GetParam(), {2, 2}, {1, 2, kInf, 3});
  TestTensor out(GetParam(), {2, 2});
  ASSERT_EQ(run("matmul", out, a, b).code, YARD_OK);
  expect_rounded(out, {kNan, kNan, kInf, 5});
}

TEST_P(Products, LinearOfEveryWeight) {
  for (const uint32_t w : {YARD_F32, YARD_F16, YARD_BF16, YARD_I8}) {
    TestTensor x(GetParam(), {2, 2, 5}, Strides{30, -11, 2}), out(GetParam(), {2, 2, 3});
    TestTensor weight(w, {3, 5}, Strides{8, 1}), bias(GetParam(), {3}, Strides{-2});
    TestTensor scale(YARD_F32, {3}, {0.5, 2, -1});
    x.fill(1), bias.fill(3);
    if (w == YARD_I8)
      weight.set({1, -2, 3, -128, 127, 0, 5, 6, 7, 8, -9, 10, -11, 12, 13});
    else
      weight.fill(2);
    for (const bool biased : {false, true}) {
      Vector expected;
      for (size_t row = 0; row < 4; ++row)
        for (size_t n = 0; n < 3; ++n) {
          double sum = 0;
          for (size_t k = 0; k < 5; ++k) sum += x.at(row * 5 + k) * weight.at(n * 5 + k);
          if (w == YARD_I8) sum *= scale.at(n);
          expected.push_back(biased ? sum + bias.at(n) : sum);
        }
      const auto call = [&](const auto& s) {
        return biased ? run("linear", out, x, weight, s, bias)
                      : run("linear", out, x, weight, s, nullptr);
      };
      ASSERT_EQ((w == YARD_I8 ? call(scale) : call(nullptr)).code, YARD_OK);
      expect_rounded(out, expected, 1e-12);
    }
  }
}

TEST(Products, RowsLongerThanOnePiece) {
  TestTensor x(YARD_F32, {1, 600}), weight(YARD_F32, {1, 600}), out(YARD_F32, {1, 1});
  x.fill(1), weight.fill(2);
  double sum = 0;
  for (size_t k = 0; k < 600; ++k) sum += x.at(k) * weight.at(k);
  ASSERT_EQ(run("linear", out, x, weight, nullptr, nullptr).code, YARD_OK);
  expect_rounded(out, {sum}, 1e-12);
}

TEST(Products, UnknownWeightsAreDeclined) {
  TestTensor x(YARD_F32, {1, 2}), out(YARD_F32, {1, 1}), weight(YARD_F64, {1, 2});
  EXPECT_EQ(run("linear", out, x, weight, nullptr, nullptr).code, YARD_DECLINED);
}

}  // namespace
}  // namespace yard::reference::testing
