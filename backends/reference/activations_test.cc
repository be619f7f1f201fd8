// SPDX-License-Identifier: Apache-2.0
// Tests silu_and_mul, gelu_and_mul and softmax through their descriptors, against the formulas.
#include <limits>

#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;
constexpr int64_t kErf = 0, kTanh = 1;

double silu(double v) { return v * 0.5 * (1 + std::tanh(v / 2)); }
double gelu(double v) { return v * 0.5 * (1 + std::erf(v * std::sqrt(0.5))); }
double gelu_tanh(double v) {
  return v * 0.5 *
         (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * std::pow(v, 3))));
}

template <class F>
Vector gated(const Vector& x, size_t d, F f) {
  Vector out;
  for (size_t row = 0; row < x.size(); row += 2 * d)
    for (size_t i = 0; i < d; ++i) out.push_back(f(x[row + i]) * x[row + d + i]);
  return out;
}

class Activations : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Activations, ::testing::ValuesIn(kFloats));

TEST_P(Activations, FirstHalfGatesSecondHalf) {
  TestTensor x(GetParam(), {2, 2, 10}, Strides{50, -22, 2}),
      out(GetParam(), {2, 2, 5}, Strides{1, 2, 4});
  x.fill(1);
  ASSERT_EQ(run("silu_and_mul", out, x).code, YARD_OK);
  expect_rounded(out, gated(x.values(), 5, silu), 1e-14);
  ASSERT_EQ(run("gelu_and_mul", out, x, kErf).code, YARD_OK);
  expect_rounded(out, gated(x.values(), 5, gelu), 1e-14);
  ASSERT_EQ(run("gelu_and_mul", out, x, kTanh).code, YARD_OK);
  expect_rounded(out, gated(x.values(), 5, gelu_tanh), 1e-14);
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Activations, BroadcastInput) {
  TestTensor x(GetParam(), {3, 4}, Strides{0, 0}), out(GetParam(), {3, 2});
  x.set(Vector(12, 1.5));
  ASSERT_EQ(run("silu_and_mul", out, x).code, YARD_OK);
  expect_rounded(out, Vector(6, silu(1.5) * 1.5));
}

TEST(Activations, KnownValues) {
  TestTensor x(YARD_F32, {2, 2}, {1, 1, -1, 2}), out(YARD_F32, {2, 1});
  ASSERT_EQ(run("silu_and_mul", out, x).code, YARD_OK);
  EXPECT_FLOAT_EQ(static_cast<float>(out.at(0)), 0.731058579f);
  EXPECT_FLOAT_EQ(static_cast<float>(out.at(1)), -0.537882843f);
  ASSERT_EQ(run("gelu_and_mul", out, x, kErf).code, YARD_OK);
  EXPECT_FLOAT_EQ(static_cast<float>(out.at(0)), 0.841344746f);
  ASSERT_EQ(run("gelu_and_mul", out, x, kTanh).code, YARD_OK);
  EXPECT_FLOAT_EQ(static_cast<float>(out.at(0)), 0.841191991f);
}

TEST(Activations, TailsKeepTheirDigits) {
  // 1 + erf cancels here. The true value is -10 * erfc(10 / sqrt 2) / 2 = -7.6198530241605e-23.
  TestTensor x(YARD_F32, {1, 2}, {-10, 1}), out(YARD_F32, {1, 1});
  ASSERT_EQ(run("gelu_and_mul", out, x, kErf).code, YARD_OK);
  EXPECT_NEAR(out.at(0) / -7.6198530241605e-23, 1, 1e-6);
  ASSERT_EQ(run("gelu_and_mul", out, x, kTanh).code, YARD_OK);
  EXPECT_LT(out.at(0), 0);
}

TEST_P(Activations, SpecialValues) {
  TestTensor x(GetParam(), {4, 2}, {kNan, 1, kInf, 1, -kInf, 1, 1, kNan}), out(GetParam(), {4, 1});
  const Vector expected{kNan, kInf, kNan, kNan};
  ASSERT_EQ(run("silu_and_mul", out, x).code, YARD_OK);
  expect_rounded(out, expected);
  for (int64_t approximate : {kErf, kTanh}) {
    ASSERT_EQ(run("gelu_and_mul", out, x, approximate).code, YARD_OK);
    expect_rounded(out, expected);
  }
  TestTensor huge(GetParam(), {2, 2}, {-60000, 1, 60000, 1}), two(GetParam(), {2, 1});
  ASSERT_EQ(run("silu_and_mul", two, huge).code, YARD_OK);
  EXPECT_EQ(two.values(), (Vector{0, huge.at(2)}));
  ASSERT_EQ(run("gelu_and_mul", two, huge, kTanh).code, YARD_OK);
  EXPECT_EQ(two.values(), (Vector{0, huge.at(2)}));
}

TEST_P(Activations, EmptyTensors) {
  for (const auto& [rows, d] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}, {0, 0}}) {
    TestTensor x(GetParam(), {rows, 2 * d}), out(GetParam(), {rows, d});
    EXPECT_EQ(run("silu_and_mul", out, x).code, YARD_OK);
    EXPECT_EQ(run("gelu_and_mul", out, x, kErf).code, YARD_OK);
    EXPECT_EQ(run("softmax", out, out).code, YARD_OK);
  }
}

class Softmax : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Softmax, ::testing::ValuesIn(kFloats));

TEST_P(Softmax, AgainstTheFormula) {
  TestTensor x(GetParam(), {2, 3, 6}, Strides{-24, 7, 1}),
      out(GetParam(), {2, 3, 6}, Strides{1, 2, 6});
  x.fill(4);
  Vector expected;
  for (size_t row = 0; row < 36; row += 6) {
    double sum = 0;
    for (size_t i = 0; i < 6; ++i) sum += std::exp(x.at(row + i));
    for (size_t i = 0; i < 6; ++i) expected.push_back(std::exp(x.at(row + i)) / sum);
  }
  ASSERT_EQ(run("softmax", out, x).code, YARD_OK);
  expect_rounded(out, expected);
  EXPECT_TRUE(out.gaps_intact());
}

TEST_P(Softmax, LargeAndMaskedEntries) {
  TestTensor x(GetParam(), {3, 3}, {60000, 60000, -60000, -kInf, 2, -kInf, 0, -kInf, 0});
  TestTensor out(GetParam(), {3, 3});
  ASSERT_EQ(run("softmax", out, x).code, YARD_OK);
  EXPECT_EQ(out.values(), (Vector{0.5, 0.5, 0, 0, 1, 0, 0.5, 0, 0.5}));
}

TEST_P(Softmax, NanRowsAndOnlyThose) {
  TestTensor x(GetParam(), {5, 2}, {kNan, 1, 1, kNan, -kInf, -kInf, kInf, 1, 3, 3});
  TestTensor out(GetParam(), {5, 2});
  ASSERT_EQ(run("softmax", out, x).code, YARD_OK);
  expect_rounded(out, {kNan, kNan, kNan, kNan, kNan, kNan, kNan, kNan, 0.5, 0.5});
}

TEST(Softmax, OneElementAndOneDimension) {
  TestTensor x(YARD_F16, {1}, {-7}), out(YARD_F16, {1});
  ASSERT_EQ(run("softmax", out, x).code, YARD_OK);
  EXPECT_EQ(out.at(0), 1);
}

}  // namespace
}  // namespace yard::reference::testing
