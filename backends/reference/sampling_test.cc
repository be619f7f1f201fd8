// SPDX-License-Identifier: Apache-2.0
// Tests argmax, topk_softmax and sample: the order of equal and special values, probabilities, and
// the random numbers that the documentation defines.
#include <map>
#include <set>

#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;

class Sampling : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Sampling, ::testing::ValuesIn(kFloats));

TEST_P(Sampling, ArgmaxIsTheFirstOfTheLargest) {
  for (const uint32_t index : {YARD_I32, YARD_I64}) {
    TestTensor x(GetParam(), {2, 3, 4}, Strides{1, -2, 6}), out(index, {2, 3}, Strides{1, 4});
    x.set({1,    3,    3,    2, -1,    -2,    -1,    -5,    0, -0.0, 0,    0,  //
           kNan, kInf, kNan, 1, -kInf, -kInf, -kInf, -kInf, 1, 2,    kInf, kNan});
    ASSERT_EQ(run("argmax", out, x).code, YARD_OK);
    EXPECT_EQ(out.values(), (Vector{1, 0, 0, 0, 0, 3}));
    EXPECT_TRUE(out.gaps_intact());
  }
}

TEST_P(Sampling, EmptyTensors) {
  TestTensor x(GetParam(), {0, 3}), out(YARD_I32, {0}), weights(YARD_F32, {0, 2}),
      ids(YARD_I32, {0, 2});
  EXPECT_EQ(run("argmax", out, x).code, YARD_OK);
  EXPECT_EQ(run("sample", out, x, 1.0, int64_t{0}, 1.0, int64_t{0}).code, YARD_OK);
  EXPECT_EQ(run("topk_softmax", weights, ids, x, false).code, YARD_OK);
  TestTensor rows(GetParam(), {2, 0}), no_weights(YARD_F32, {2, 0}), no_ids(YARD_I32, {2, 0});
  EXPECT_EQ(run("topk_softmax", no_weights, no_ids, rows, true).code, YARD_OK);
}

TEST_P(Sampling, TopKOfTheSoftmax) {
  TestTensor x(GetParam(), {2, 5}, {1, 3, 0.5, 3, -1, -kInf, 2, 0, -kInf, 2});
  TestTensor weights(YARD_F32, {2, 3}, Strides{1, 2}), ids(YARD_I32, {2, 3}, Strides{-5, 1});
  for (const bool renormalize : {false, true}) {
    ASSERT_EQ(run("topk_softmax", weights, ids, x, renormalize).code, YARD_OK);
    EXPECT_EQ(ids.values(), (Vector{1, 3, 0, 1, 4, 2}));
    Vector expected;
    for (size_t row = 0; row < 2; ++row) {
      double all = 0, kept = 0;
      for (size_t i = 0; i < 5; ++i) all += std::exp(x.at(row * 5 + i));
      const auto one = [&](size_t k) {
        return std::exp(x.at(row * 5 + static_cast<size_t>(ids.at(row * 3 + k))));
      };
      for (size_t k = 0; k < 3; ++k) kept += one(k);
      for (size_t k = 0; k < 3; ++k) expected.push_back(one(k) / (renormalize ? kept : all));
    }
    expect_rounded(weights, expected);
  }
}

TEST_P(Sampling, TopKWithSpecialValues) {
  TestTensor x(GetParam(), {3, 3}, {1, kNan, kInf, 1, kInf, 2, -kInf, -kInf, -kInf});
  TestTensor weights(YARD_F32, {3, 3}), ids(YARD_I32, {3, 3});
  ASSERT_EQ(run("topk_softmax", weights, ids, x, false).code, YARD_OK);
  EXPECT_EQ(ids.values(), (Vector{1, 2, 0, 1, 2, 0, 0, 1, 2}));
  for (const double w : weights.values()) EXPECT_TRUE(std::isnan(w));
}

// Returns how often each index is chosen in rows with equal logits and different random numbers.
std::map<int, double> shares(uint32_t dtype, const Vector& logits, double temperature,
                             int64_t top_k, double top_p) {
  constexpr int64_t kRows = 4000;
  const auto d = static_cast<int64_t>(logits.size());
  TestTensor x(dtype, {kRows, d}, Strides{0, 1}), out(YARD_I64, {kRows});
  Vector all;
  for (int64_t r = 0; r < kRows; ++r) all.insert(all.end(), logits.begin(), logits.end());
  x.set(all);
  EXPECT_EQ(run("sample", out, x, temperature, top_k, top_p, int64_t{7}).code, YARD_OK);
  std::map<int, double> to;
  for (const double i : out.values()) to[static_cast<int>(i)] += 1.0 / kRows;
  return to;
}

void expect_shares(const std::map<int, double>& found, const std::map<int, double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [index, share] : expected) EXPECT_NEAR(found.at(index), share, 0.03) << index;
}

TEST_P(Sampling, SharesFollowTheSoftmax) {
  const double a = std::exp(0.5), b = std::exp(-1.5), all = 1 + a + b;
  expect_shares(shares(GetParam(), {0, 0.5, -kInf, -1.5}, 1, 0, 1),
                {{0, 1 / all}, {1, a / all}, {3, b / all}});
  const double cold = std::exp(1), colder = std::exp(-3);
  expect_shares(shares(GetParam(), {0, 0.5, -kInf, -1.5}, 0.5, 0, 1),
                {{0, 1 / (1 + cold + colder)},
                 {1, cold / (1 + cold + colder)},
                 {3, colder / (1 + cold + colder)}});
}

TEST_P(Sampling, TopKKeepsTheLargestAndLowerIndicesOfEqualOnes) {
  expect_shares(shares(GetParam(), {1, 2, 1, 1}, 1, 2, 1),
                {{0, 1 / (1 + std::exp(1))}, {1, std::exp(1) / (1 + std::exp(1))}});
  expect_shares(shares(GetParam(), {1, 2, 1, 1}, 1, 1, 1), {{1, 1}});
  expect_shares(shares(GetParam(), {0, -0.0, 0, 0}, 1, 2, 1), {{0, 0.5}, {1, 0.5}});
  expect_shares(shares(GetParam(), {0, 0}, 1, 9, 1), {{0, 0.5}, {1, 0.5}});
}

TEST_P(Sampling, TopPKeepsTheFewestThatReachIt) {
  // Two of four equal logits have exactly half of the probability.
  expect_shares(shares(GetParam(), {1, 1, 1, 1}, 1, 0, 0.5), {{0, 0.5}, {1, 0.5}});
  expect_shares(shares(GetParam(), {1, 1, 1, 1}, 1, 0, 0.51),
                {{0, 1 / 3.0}, {1, 1 / 3.0}, {2, 1 / 3.0}});
  // The largest alone has 0.58.
  expect_shares(shares(GetParam(), {0, 0.5, 2, 1}, 1, 0, 0.5), {{2, 1}});
  expect_shares(shares(GetParam(), {0, 0.5, 2, 1}, 1, 0, 0.7),
                {{2, std::exp(1) / (1 + std::exp(1))}, {3, 1 / (1 + std::exp(1))}});
  expect_shares(shares(GetParam(), {0, 1}, 1, 0, 0), {{1, 1}});
  expect_shares(shares(GetParam(), {0, 1}, 1, 0, -3), {{1, 1}});
  // top_p applies to the two of the equal logits that top_k keeps.
  expect_shares(shares(GetParam(), {1, 1, 1, 1}, 1, 2, 0.5), {{0, 1}});
}

TEST_P(Sampling, TemperatureZeroIsArgmax) {
  expect_shares(shares(GetParam(), {1, 3, 3, 2}, 0, 0, 1), {{1, 1}});
  expect_shares(shares(GetParam(), {1, 3, 3, 2}, 1e-3, 0, 1), {{1, 0.5}, {2, 0.5}});
}

TEST_P(Sampling, SpecialValues) {
  expect_shares(shares(GetParam(), {1, kNan, kInf, kNan}, 1, 0, 1), {{1, 1}});
  expect_shares(shares(GetParam(), {1, kInf, 2, kInf}, 1, 0, 1), {{1, 0.5}, {3, 0.5}});
  expect_shares(shares(GetParam(), {-kInf, -kInf}, 1, 0, 1), {{0, 0.5}, {1, 0.5}});
  expect_shares(shares(GetParam(), {-kInf, 5, -kInf}, 1, 0, 1), {{1, 1}});
}

// Rows of 2^20 equal logits choose the index floor(2^20 * random number).
TEST(Sampling, RandomNumbersAreThoseOfSplitMix64) {
  constexpr int64_t kSize = 1 << 20;
  TestTensor x(YARD_F32, {2, kSize}, Strides{0, 0}), out(YARD_I64, {2});
  x.set(Vector(2 * kSize, 1));
  const auto chosen = [&](int64_t seed) {
    EXPECT_EQ(run("sample", out, x, 1.0, int64_t{0}, 1.0, seed).code, YARD_OK);
    return out.values();
  };
  // SplitMix64 from seed 0 begins with e220a8397b1dcdaf and 6e789e6aa1b965f4, as published.
  EXPECT_EQ(chosen(0), (Vector{0xe220a, 0x6e789}));
  // From seed 1234567 it begins with 599ed017fb08fc85 and 2c73f08458540fa5.
  EXPECT_EQ(chosen(1234567), (Vector{0x599ed, 0x2c73f}));
}

TEST(Sampling, InvalidScalarsAreRefused) {
  TestTensor x(YARD_F32, {1, 2}, {1, 2}), out(YARD_I32, {1}, {5});
  const auto refused = [&](double temperature, int64_t top_k, double top_p, const char* text) {
    expect_caller_error(run("sample", out, x, temperature, top_k, top_p, int64_t{0}), text);
  };
  refused(-1, 0, 1, "invalid temperature: expected 0 or more, got -1");
  refused(kNan, 0, 1, "invalid temperature");
  refused(kInf, 0, 1, "invalid temperature");
  refused(1, -1, 1, "invalid top_k: expected 0 or more, got -1");
  refused(1, 0, kNan, "invalid top_p");
  EXPECT_EQ(out.at(0), 5);
}

}  // namespace
}  // namespace yard::reference::testing
