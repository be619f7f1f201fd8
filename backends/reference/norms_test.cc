// SPDX-License-Identifier: Apache-2.0
// Tests rms_norm, add_rms_norm and layer_norm through their descriptors, against the formulas.
#include <limits>

#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;

Vector rms_formula(const Vector& x, const Vector& w, double eps) {
  Vector out;
  for (size_t row = 0; row < x.size(); row += w.size()) {
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += std::pow(x[row + i], 2);
    const double scale = std::sqrt(static_cast<double>(w.size()) / (sum + eps * w.size()));
    for (size_t i = 0; i < w.size(); ++i) out.push_back(x[row + i] * scale * w[i]);
  }
  return out;
}

Vector layer_formula(const Vector& x, const Vector& w, const Vector& b, double eps) {
  Vector out;
  const auto n = static_cast<double>(w.size());
  for (size_t row = 0; row < x.size(); row += w.size()) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < w.size(); ++i) sum += x[row + i], squares += x[row + i] * x[row + i];
    const double variance = squares / n - sum / n * (sum / n);
    for (size_t i = 0; i < w.size(); ++i)
      out.push_back((x[row + i] - sum / n) / std::sqrt(variance + eps) * w[i] + b[i]);
  }
  return out;
}

class Norms : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Norms, ::testing::ValuesIn(kFloats));

TEST_P(Norms, RmsNormMatchesPrecomputedValues) {
  // The mean square of 3, 4, 0, 0 is 6.25, and its root is 2.5.
  TestTensor x(GetParam(), {1, 4}, {3, 4, 0, 0}), w(GetParam(), {4}, {1, 2, 3, 4});
  TestTensor out(GetParam(), {1, 4});
  ASSERT_EQ(run("rms_norm", out, x, w, 0.0).code, YARD_OK);
  expect_rounded(out, {1.2, 3.2, 0, 0});
}

TEST_P(Norms, RmsNormOfManyRowsAnyRank) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{17}, {5, 17}, {2, 3, 17}, {1, 2, 1, 2, 1, 2, 1, 17}}) {
    TestTensor x(GetParam(), shape), w(GetParam(), {17}), out(GetParam(), shape);
    x.fill(1), w.fill(2);
    ASSERT_EQ(run("rms_norm", out, x, w, 1e-6).code, YARD_OK);
    expect_rounded(out, rms_formula(x.values(), w.values(), 1e-6));
  }
}

TEST_P(Norms, RmsNormStridesOfEveryKind) {
  TestTensor x(GetParam(), {2, 3, 5}, Strides{-40, 12, 2}), w(GetParam(), {5}, Strides{-3});
  TestTensor out(GetParam(), {2, 3, 5}, Strides{1, -2, 7});
  x.fill(3), w.fill(4);
  ASSERT_EQ(run("rms_norm", out, x, w, 1e-6).code, YARD_OK);
  expect_rounded(out, rms_formula(x.values(), w.values(), 1e-6));
  EXPECT_TRUE(out.gaps_intact());

  TestTensor same_row(GetParam(), {3, 4}, Strides{0, 1}), one_weight(GetParam(), {4}, Strides{0});
  TestTensor dense(GetParam(), {3, 4});
  same_row.fill(5), one_weight.fill(6);
  ASSERT_EQ(run("rms_norm", dense, same_row, one_weight, 1e-6).code, YARD_OK);
  expect_rounded(dense, rms_formula(same_row.values(), one_weight.values(), 1e-6));
}

TEST_P(Norms, InPlaceGivesTheSameBits) {
  TestTensor x(GetParam(), {3, 9}, Strides{20, 2}), w(GetParam(), {9}),
      out(GetParam(), {3, 9}, Strides{20, 2});
  x.fill(1), w.fill(2);
  for (const char* op : {"rms_norm", "layer_norm", "softmax"}) {
    TestTensor inplace(GetParam(), {3, 9}, Strides{20, 2});
    inplace.fill(1);
    const auto call = [&](TestTensor& to, const TestTensor& from) {
      if (op == std::string("softmax")) return run(op, to, from).code;
      if (op == std::string("rms_norm")) return run(op, to, from, w, 1e-6).code;
      return run(op, to, from, w, w, 1e-5).code;
    };
    ASSERT_EQ(call(out, x), YARD_OK);
    ASSERT_EQ(call(inplace, inplace), YARD_OK);
    EXPECT_EQ(out.bytes(), inplace.bytes()) << op;
  }
}

TEST_P(Norms, AddRmsNormStoresTheRoundedSumAndNormalizesThat) {
  TestTensor x(GetParam(), {2, 3, 7}), residual(GetParam(), {2, 3, 7}, Strides{-30, 8, 1});
  TestTensor w(GetParam(), {7}), out(GetParam(), {2, 3, 7});
  x.fill(1), w.fill(3), residual.fill(2);
  // 16-bit types cannot hold these sums, so the rounding of the stored sum must show in the result.
  Vector sums = x.values();
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = 100 * sums[i] + 1.0 / 3;
  residual.set(sums);
  Vector expected = residual.values();
  for (size_t i = 0; i < expected.size(); ++i)
    expected[i] = round_to(GetParam(), expected[i] + x.at(i));
  ASSERT_EQ(run("add_rms_norm", out, residual, x, w, 1e-6).code, YARD_OK);
  EXPECT_EQ(residual.values(), expected);
  EXPECT_TRUE(residual.gaps_intact());
  expect_rounded(out, rms_formula(expected, w.values(), 1e-6));
}

TEST_P(Norms, AddRmsNormOntoItsInput) {
  TestTensor x(GetParam(), {2, 7}), other(GetParam(), {2, 7}), w(GetParam(), {7});
  TestTensor r1(GetParam(), {2, 7}), r2(GetParam(), {2, 7}), out(GetParam(), {2, 7});
  x.fill(1), other.fill(1), w.fill(2), r1.fill(3), r2.fill(3);
  ASSERT_EQ(run("add_rms_norm", out, r1, x, w, 1e-6).code, YARD_OK);
  ASSERT_EQ(run("add_rms_norm", other, r2, other, w, 1e-6).code, YARD_OK);
  EXPECT_EQ(out.bytes(), other.bytes());
  EXPECT_EQ(r1.bytes(), r2.bytes());
}

TEST_P(Norms, LayerNormWithAndWithoutWeightAndBias) {
  TestTensor x(GetParam(), {2, 3, 11}, Strides{1, 2, 6}), w(GetParam(), {11}),
      b(GetParam(), {11}, Strides{-2});
  x.fill(1), w.fill(2), b.fill(3);
  const Vector ones(11, 1), zeros(11, 0);
  TestTensor out(GetParam(), {2, 3, 11});
  ASSERT_EQ(run("layer_norm", out, x, w, b, 1e-5).code, YARD_OK);
  expect_rounded(out, layer_formula(x.values(), w.values(), b.values(), 1e-5), 1e-13);
  ASSERT_EQ(run("layer_norm", out, x, nullptr, b, 1e-5).code, YARD_OK);
  expect_rounded(out, layer_formula(x.values(), ones, b.values(), 1e-5), 1e-13);
  ASSERT_EQ(run("layer_norm", out, x, w, nullptr, 1e-5).code, YARD_OK);
  expect_rounded(out, layer_formula(x.values(), w.values(), zeros, 1e-5), 1e-13);
  ASSERT_EQ(run("layer_norm", out, x, nullptr, nullptr, 1e-5).code, YARD_OK);
  expect_rounded(out, layer_formula(x.values(), ones, zeros, 1e-5), 1e-13);
}

TEST(LayerNorm, ALargeMeanCostsNoDigits) {
  TestTensor x(YARD_F32, {4}, {16777214, 16777215, 16777215, 16777216}), out(YARD_F32, {4});
  ASSERT_EQ(run("layer_norm", out, x, nullptr, nullptr, 0.0).code, YARD_OK);
  expect_rounded(out, {-std::sqrt(2.0), 0, 0, std::sqrt(2.0)});
}

TEST(RmsNorm, SquaresOfTheLargestFloatsDoNotOverflow) {
  TestTensor x(YARD_F32, {2}, {3e38, -3e38}), w(YARD_F32, {2}, {1, 1}), out(YARD_F32, {2});
  ASSERT_EQ(run("rms_norm", out, x, w, 1e-6).code, YARD_OK);
  expect_rounded(out, {1, -1});
}

TEST_P(Norms, SpecialValues) {
  TestTensor x(GetParam(), {4, 2}, {kNan, 1, kInf, 1, -kInf, 1, 0, 0});
  TestTensor w(GetParam(), {2}, {1, 1}), out(GetParam(), {4, 2});
  ASSERT_EQ(run("rms_norm", out, x, w, 1e-6).code, YARD_OK);
  expect_rounded(out, {kNan, kNan, kNan, 0, kNan, 0, 0, 0});
  ASSERT_EQ(run("rms_norm", out, x, w, 0.0).code, YARD_OK);
  EXPECT_TRUE(std::isnan(out.at(6)));  // 0 / 0
  ASSERT_EQ(run("layer_norm", out, x, nullptr, nullptr, 1e-5).code, YARD_OK);
  expect_rounded(out, {kNan, kNan, kNan, kNan, kNan, kNan, 0, 0});
}

TEST_P(Norms, OverflowOfTheElementTypeIsInfinity) {
  const double largest = GetParam() == YARD_F16 ? 65504 : 3e38;
  TestTensor x(GetParam(), {4}, {1, 0, 0, 0}), out(GetParam(), {4});
  TestTensor w(GetParam(), {4}, {largest, 1, 1, 1}), residual(GetParam(), {4}, {largest, 0, 0, 0});
  ASSERT_EQ(run("rms_norm", out, x, w, 0.0).code, YARD_OK);
  EXPECT_EQ(out.at(0), kInf);
  TestTensor more(GetParam(), {4}, {largest, 0, 0, 0});
  ASSERT_EQ(run("add_rms_norm", out, residual, more, w, 1e-6).code, YARD_OK);
  EXPECT_EQ(residual.at(0), kInf);
  EXPECT_TRUE(std::isnan(out.at(0)));
}

TEST_P(Norms, EmptyTensors) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 4}, {3, 0}, {2, 0, 4}, {0}}) {
    const int64_t hidden = shape.back();
    TestTensor x(GetParam(), shape), w(GetParam(), {hidden}), out(GetParam(), shape);
    TestTensor residual(GetParam(), shape);
    EXPECT_EQ(run("rms_norm", out, x, w, 1e-6).code, YARD_OK);
    EXPECT_EQ(run("add_rms_norm", out, residual, x, w, 1e-6).code, YARD_OK);
    EXPECT_EQ(run("layer_norm", out, x, w, w, 1e-6).code, YARD_OK);
  }
  TestTensor strided(GetParam(), {3, 0}, Strides{7, 2}), w(GetParam(), {0});
  EXPECT_EQ(run("rms_norm", strided, strided, w, 1e-6).code, YARD_OK);
}

}  // namespace
}  // namespace yard::reference::testing
