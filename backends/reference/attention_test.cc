// SPDX-License-Identifier: Apache-2.0
// Tests the attention family against the formula, written as loops over every score: grouped heads,
// masks, windows, sinks, lengths, caches in blocks, strides, and rows that see no key.
#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;
using Keys = std::function<bool(size_t batch, size_t query, size_t key)>;

class Attention : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Attention, ::testing::ValuesIn(kFloats));

struct Sizes {
  size_t batch, seq, heads, kv_seq, kv_heads, dim;
};

// Query, key and value are [batch, seq, heads, dim] in row-major order. `sees` selects keys.
Vector formula(const Sizes& s, const Vector& q, const Vector& k, const Vector& v, double scale,
               const Keys& sees, const Vector& mask = {}, const Vector& sinks = {}) {
  Vector out;
  for (size_t b = 0; b < s.batch; ++b)
    for (size_t i = 0; i < s.seq; ++i)
      for (size_t h = 0; h < s.heads; ++h) {
        const size_t g = h * s.kv_heads / s.heads;
        Vector result(s.dim);
        double sum = sinks.empty() ? 0 : std::exp(sinks[h]);
        for (size_t j = 0; j < s.kv_seq; ++j) {
          if (!sees(b, i, j)) continue;
          double score = 0;
          for (size_t d = 0; d < s.dim; ++d)
            score += q[((b * s.seq + i) * s.heads + h) * s.dim + d] *
                     k[((b * s.kv_seq + j) * s.kv_heads + g) * s.dim + d];
          score *= scale;
          if (!mask.empty()) score += mask[((b * s.heads + h) * s.seq + i) * s.kv_seq + j];
          sum += std::exp(score);
          for (size_t d = 0; d < s.dim; ++d)
            result[d] += std::exp(score) * v[((b * s.kv_seq + j) * s.kv_heads + g) * s.dim + d];
        }
        for (const double r : result) out.push_back(sum == 0 ? 0 : r / sum);
      }
  return out;
}

// Two sequences of three queries and five keys, with four heads on two key heads.
struct Sequence {
  explicit Sequence(uint32_t dtype)
      : out(dtype, {2, 3, 4, 6}, Strides{100, 25, 6, 1}),
        q(dtype, {2, 3, 4, 6}, Strides{6, 48, 12, 1}),
        k(dtype, {2, 5, 2, 6}, Strides{-70, 14, 6, 1}),
        v(dtype, {2, 5, 2, 6}, Strides{60, 1, 30, 5}) {
    q.fill(1), k.fill(2), v.fill(3);
  }
  Vector expected(double scale, const Keys& sees, const Vector& mask = {},
                  const Vector& sinks = {}) const {
    return formula({2, 3, 4, 5, 2, 6}, q.values(), k.values(), v.values(), scale, sees, mask,
                   sinks);
  }
  TestTensor out, q, k, v;
};

const double kUsual = 1 / std::sqrt(6.0);
bool all(size_t, size_t, size_t) { return true; }
bool causal(size_t, size_t i, size_t j) { return j <= i + 2; }

TEST_P(Attention, Full) {
  Sequence t(GetParam());
  ASSERT_EQ(run("attention.full", t.out, t.q, t.k, t.v, nullptr, 0.0).code, YARD_OK);
  expect_rounded(t.out, t.expected(kUsual, all), 1e-12);
  EXPECT_TRUE(t.out.gaps_intact());
  ASSERT_EQ(run("attention.full", t.out, t.q, t.k, t.v, nullptr, -0.75).code, YARD_OK);
  expect_rounded(t.out, t.expected(-0.75, all), 1e-12);
}

// Values of 8 and -4 with equal scores give 2. Terms of scores have sizes 6, and 7 with the mask.
TEST(Attention, TheMagnitudeIsThatOfValuesAndScores) {
  TestTensor q(YARD_F32, {1, 1, 1, 2}, {1, -1}), k(YARD_F32, {1, 2, 1, 2}, {3, 3, 2.5, 3.5});
  TestTensor v(YARD_F32, {1, 2, 1, 2}, {8, 5, -4, 5}), out(YARD_F32, {1, 1, 1, 2});
  TestTensor mask(YARD_F32, {1, 1, 1, 2}, {0, 1});
  ASSERT_EQ(run("attention.full", out, q, k, v, mask, 1.0).code, YARD_OK);
  EXPECT_NEAR(out.at(0), 2, 1e-6);
  ASSERT_EQ(run_magnitude("attention.full", out, q, k, v, mask, 1.0).code, YARD_OK);
  EXPECT_NEAR(out.at(0), (8 + 0.1 * 6 * 6) / 2 + (4 + 0.1 * 7 * 6) / 2, 1e-5);
  EXPECT_NEAR(out.at(1), 5, 1e-6);

  TestTensor one(YARD_F32, {1, 1, 2}), lengths(YARD_I32, {1}, {2});
  TestTensor query(YARD_F32, {1, 1, 2}, {1, -1}), row(YARD_F32, {1, 1, 2}, {0, 1});
  ASSERT_EQ(run_magnitude("attention.decode", one, query, k, v, lengths, row, 1.0).code, YARD_OK);
  EXPECT_NEAR(one.at(0), out.at(0), 1e-6);
}

TEST_P(Attention, MasksOfAnyDtypeAreAdded) {
  for (const uint32_t type : kFloats) {
    Sequence t(GetParam());
    TestTensor mask(type, {2, 4, 3, 5}, Strides{0, 0, 5, 1});  // broadcast over batch and heads
    Vector one, values;
    for (int n = 0; n < 15; ++n) one.push_back(n % 4 == 1 ? -kInf : n / 8.0);
    for (int n = 0; n < 8; ++n) values.insert(values.end(), one.begin(), one.end());
    mask.set(values);
    ASSERT_EQ(run("attention.full", t.out, t.q, t.k, t.v, mask, 0.5).code, YARD_OK);
    expect_rounded(t.out, t.expected(0.5, all, values), 1e-12);
    ASSERT_EQ(run("attention.causal", t.out, t.q, t.k, t.v, mask, 0.5).code, YARD_OK);
    expect_rounded(t.out, t.expected(0.5, causal, values), 1e-12);
  }
}

TEST_P(Attention, CausalQueriesAreTheLastOfTheSequence) {
  Sequence t(GetParam());
  ASSERT_EQ(run("attention.causal", t.out, t.q, t.k, t.v, nullptr, 0.0).code, YARD_OK);
  expect_rounded(t.out, t.expected(kUsual, causal), 1e-12);
}

TEST_P(Attention, SlidingWindowWithAndWithoutSinks) {
  Sequence t(GetParam());
  TestTensor sinks(YARD_F32, {4}, {0.5, -2, 3, -kInf});
  for (const int64_t window : {1, 2, 4, 100}) {
    const Keys sees = [&](size_t, size_t i, size_t j) {
      return j <= i + 2 && static_cast<int64_t>(i + 2 - j) < window;
    };
    ASSERT_EQ(
        run("attention.sliding_window", t.out, t.q, t.k, t.v, nullptr, nullptr, window, 0.0).code,
        YARD_OK);
    expect_rounded(t.out, t.expected(kUsual, sees), 1e-12);
    ASSERT_EQ(
        run("attention.sliding_window", t.out, t.q, t.k, t.v, nullptr, sinks, window, 0.0).code,
        YARD_OK);
    expect_rounded(t.out, t.expected(kUsual, sees, {}, sinks.values()), 1e-12);
  }
  expect_caller_error(
      run("attention.sliding_window", t.out, t.q, t.k, t.v, nullptr, nullptr, int64_t{0}, 0.0),
      "invalid window: expected at least 1, got 0");
}

TEST_P(Attention, CrossSeesTheFirstKeysOfEachBatch) {
  Sequence t(GetParam());
  for (const uint32_t index : {YARD_I32, YARD_I64}) {
    TestTensor lengths(index, {2}, Strides{-3});
    lengths.set({4, 0});
    ASSERT_EQ(run("attention.cross", t.out, t.q, t.k, t.v, lengths, nullptr, 0.0).code, YARD_OK);
    const Vector expected =
        t.expected(kUsual, [](size_t b, size_t, size_t j) { return b == 0 && j < 4; });
    EXPECT_EQ(expected.back(), 0);
    expect_rounded(t.out, expected, 1e-12);
  }
  ASSERT_EQ(run("attention.cross", t.out, t.q, t.k, t.v, nullptr, nullptr, 0.0).code, YARD_OK);
  expect_rounded(t.out, t.expected(kUsual, all), 1e-12);
  TestTensor wrong(YARD_I32, {2}, {5, 6});
  t.out.fill(9);
  const auto before = t.out.bytes();
  expect_caller_error(run("attention.cross", t.out, t.q, t.k, t.v, wrong, nullptr, 0.0),
                      "expected 0 <= length <= 5, got 6 for batch 1");
  wrong.set({-1, 0});
  expect_caller_error(run("attention.cross", t.out, t.q, t.k, t.v, wrong, nullptr, 0.0), "got -1");
  EXPECT_EQ(t.out.bytes(), before);
}

// A cache of seven places for two sequences and two key heads of three dimensions.
struct Cache {
  explicit Cache(uint32_t dtype, uint32_t cache)
      : out(dtype, {2, 4, 3}, Strides{20, 4, 1}),
        q(dtype, {2, 4, 3}, Strides{3, 6, 1}),
        k(cache, {2, 7, 2, 3}),
        v(cache, {2, 7, 2, 3}, Strides{50, -7, 3, 1}) {
    q.fill(1), k.fill(2), v.fill(3);
  }
  Vector expected(const Vector& lengths, const Vector& mask = {}) const {
    return formula(
        {2, 1, 4, 7, 2, 3}, q.values(), k.values(), v.values(), 0.5,
        [&](size_t b, size_t, size_t j) { return static_cast<double>(j) < lengths[b]; }, mask);
  }
  TestTensor out, q, k, v;
};

TEST_P(Attention, DecodeOverCachesOfEveryDtype) {
  for (const uint32_t cache : kFloats) {
    Cache t(GetParam(), cache);
    TestTensor mask(cache, {2, 4, 7}, Strides{1, 2, 8});
    mask.fill(7);
    for (const Vector& lengths : {Vector{7, 3}, Vector{0, 1}}) {
      TestTensor given(YARD_I64, {2});
      given.set(lengths);
      ASSERT_EQ(run("attention.decode", t.out, t.q, t.k, t.v, given, nullptr, 0.5).code, YARD_OK);
      expect_rounded(t.out, t.expected(lengths), 1e-12);
      ASSERT_EQ(run("attention.decode", t.out, t.q, t.k, t.v, given, mask, 0.5).code, YARD_OK);
      expect_rounded(t.out, t.expected(lengths, mask.values()), 1e-12);
    }
  }
  Cache t(GetParam(), GetParam());
  TestTensor lengths(YARD_I32, {2}, {7, 8});
  expect_caller_error(run("attention.decode", t.out, t.q, t.k, t.v, lengths, nullptr, 0.5),
                      "expected 0 <= length <= 7, got 8 for batch 1");
}

TEST_P(Attention, PagedDecodeIsDecodeOverTheBlocksOfTheTable) {
  for (const uint32_t cache : kFloats) {
    TestTensor q(GetParam(), {2, 4, 3}), out(GetParam(), {2, 4, 3}), same(GetParam(), {2, 4, 3});
    TestTensor k(cache, {5, 2, 2, 3}, Strides{-14, 7, 3, 1}), v(cache, {5, 2, 2, 3});
    TestTensor table(YARD_I32, {2, 3}, {4, 0, 2, 1, 4, -9}), lengths(YARD_I32, {2}, {6, 3});
    q.fill(1), k.fill(2), v.fill(3);
    ASSERT_EQ(run("attention.paged_decode", out, q, k, v, table, lengths, 0.0).code, YARD_OK);
    // The same cache, with consecutive rows for each sequence.
    TestTensor keys(cache, {2, 6, 2, 3}), values(cache, {2, 6, 2, 3});
    Vector flat_keys, flat_values;
    for (const size_t block : {4, 0, 2, 1, 4, 0})
      for (size_t i = 0; i < 12; ++i) {
        flat_keys.push_back(k.at(block * 12 + i));
        flat_values.push_back(v.at(block * 12 + i));
      }
    keys.set(flat_keys), values.set(flat_values);
    ASSERT_EQ(run("attention.decode", same, q, keys, values, lengths, nullptr, 0.0).code, YARD_OK);
    EXPECT_EQ(out.bytes(), same.bytes());
  }
}

TEST(Attention, PagedDecodeRefusesWhatIsOutsideTheCache) {
  TestTensor q(YARD_F32, {1, 1, 2}), out(YARD_F32, {1, 1, 2}), kv(YARD_F32, {3, 2, 1, 2});
  TestTensor table(YARD_I64, {1, 2}, {1, 3}), lengths(YARD_I64, {1}, {3});
  q.fill(1), kv.fill(2);
  expect_caller_error(run("attention.paged_decode", out, q, kv, kv, table, lengths, 0.0),
                      "expected 0 <= block < 3, got 3 in entry 1 of batch 0");
  lengths.set({2});  // the call does not reach the second entry
  EXPECT_EQ(run("attention.paged_decode", out, q, kv, kv, table, lengths, 0.0).code, YARD_OK);
  lengths.set({5});
  expect_caller_error(run("attention.paged_decode", out, q, kv, kv, table, lengths, 0.0),
                      "expected 0 <= length <= 4, got 5");
}

TEST_P(Attention, RowsWithoutAKeyAreZero) {
  TestTensor q(GetParam(), {1, 2, 1, 2}), none(GetParam(), {1, 0, 1, 2}),
      out(GetParam(), {1, 2, 1, 2});
  q.fill(1), out.fill(5);
  ASSERT_EQ(run("attention.full", out, q, none, none, nullptr, 0.0).code, YARD_OK);
  EXPECT_EQ(out.values(), Vector(4, 0));
  TestTensor kv(GetParam(), {1, 1, 1, 2}, {1, kNan}), key(GetParam(), {1, 1, 1, 2}, {1, 1});
  TestTensor masked(YARD_F32, {1, 1, 2, 1}, {-kInf, 0});
  out.fill(5);
  ASSERT_EQ(run("attention.full", out, q, key, kv, masked, 0.0).code, YARD_OK);
  // The kernel does not read values that a mask excludes, so their NaN has no effect.
  expect_rounded(out, {0, 0, 1, kNan});
}

TEST_P(Attention, SpecialValues) {
  TestTensor q(GetParam(), {1, 1, 1, 1}, {1}), v(GetParam(), {1, 3, 1, 1}, {1, 2, 3});
  TestTensor k(GetParam(), {1, 3, 1, 1}), out(GetParam(), {1, 1, 1, 1});
  const auto attend = [&](const Vector& keys) {
    k.set(keys);
    EXPECT_EQ(run("attention.full", out, q, k, v, nullptr, 1.0).code, YARD_OK);
    return out.at(0);
  };
  EXPECT_EQ(attend({0, -kInf, 0}), 2);
  EXPECT_TRUE(std::isnan(attend({0, kNan, 0})));
  EXPECT_TRUE(std::isnan(attend({0, kInf, 0})));
  EXPECT_EQ(attend({-60000, 60000, 0}), 2);  // exponentials do not overflow
}

TEST(Attention, HeadsWiderThanOnePiece) {
  TestTensor q(YARD_F32, {1, 1, 1, 300}), kv(YARD_F32, {1, 2, 1, 300}),
      out(YARD_F32, {1, 1, 1, 300});
  q.fill(1), kv.fill(2);
  ASSERT_EQ(run("attention.full", out, q, kv, kv, nullptr, 0.0).code, YARD_OK);
  expect_rounded(out,
                 formula({1, 1, 1, 2, 1, 300}, q.values(), kv.values(), kv.values(),
                         1 / std::sqrt(300.0), all),
                 1e-12);
}

TEST_P(Attention, EmptyTensors) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{0, 2, 2, 2}, {2, 0, 2, 2}, {2, 2, 0, 2}, {2, 2, 2, 0}}) {
    TestTensor t(GetParam(), shape), out(GetParam(), shape);
    EXPECT_EQ(run("attention.causal", out, t, t, t, nullptr, 0.0).code, YARD_OK);
  }
}

}  // namespace
}  // namespace yard::reference::testing
