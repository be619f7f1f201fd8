// SPDX-License-Identifier: Apache-2.0
// Tests rotary_embedding through its descriptor: tables by position and by token, angles from a
// base, both pairings, partial rotation, strides, and every refusal.
#include <complex>
#include <limits>

#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;
constexpr int64_t kHalf = 0, kInterleaved = 1;
constexpr double kBase = 10000;

// Turns pairs by multiplying complex numbers, which is independent of the kernel's method. `turn`
// returns the factor for a token and a pair.
template <class Turn>
Vector turned(const TestTensor& t, size_t heads, size_t head_dim, size_t rot, int64_t style,
              Turn turn) {
  Vector v = t.values();
  for (size_t row = 0; row < v.size() / head_dim; ++row)
    for (size_t i = 0; i < rot / 2; ++i) {
      const size_t at = row * head_dim;
      double& a = v[at + (style == kHalf ? i : 2 * i)];
      double& b = v[at + (style == kHalf ? i + rot / 2 : 2 * i + 1)];
      const std::complex<double> z = std::complex<double>(a, b) * turn(row / heads, i);
      a = z.real(), b = z.imag();
    }
  return v;
}

std::complex<double> unit(double angle) { return std::polar(1.0, angle); }

class Rotary : public ::testing::TestWithParam<std::tuple<uint32_t, int64_t>> {
 protected:
  uint32_t dtype() const { return std::get<0>(GetParam()); }
  int64_t style() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Modes, Rotary,
                         ::testing::Combine(::testing::ValuesIn(kFloats),
                                            ::testing::Values(kHalf, kInterleaved)));

TEST_P(Rotary, AnglesFromPositions) {
  for (uint32_t index : {YARD_I32, YARD_I64})
    for (int64_t rotary_dim : {0, 4, 8}) {
      TestTensor q(dtype(), {2, 2, 3, 8}), k(dtype(), {2, 2, 1, 8});
      TestTensor positions(index, {2, 2}, {0, 3, 1, 4095});
      q.fill(1), k.fill(2);
      const size_t rot = rotary_dim == 0 ? 8 : static_cast<size_t>(rotary_dim);
      const auto turn = [&](size_t token, size_t i) {
        return unit(positions.at(token) / std::pow(500.0, 2.0 * i / rot));
      };
      const Vector q_expected = turned(q, 3, 8, rot, style(), turn);
      const Vector k_expected = turned(k, 1, 8, rot, style(), turn);
      ASSERT_EQ(
          run("rotary_embedding", q, k, positions, nullptr, nullptr, rotary_dim, 500.0, style())
              .code,
          YARD_OK);
      expect_rounded(q, q_expected, 1e-11);
      expect_rounded(k, k_expected, 1e-11);
    }
}

TEST_P(Rotary, TablesByPositionAndByToken) {
  for (uint32_t table : kFloats) {
    TestTensor cos(table, {5, 2}, Strides{-3, 1}), sin(table, {5, 2}, Strides{1, 5});
    cos.fill(3), sin.fill(4);
    TestTensor by_position(YARD_I64, {3}, {4, 0, 2});
    for (bool use_positions : {true, false}) {
      const int64_t tokens = use_positions ? 3 : 5;
      TestTensor q(dtype(), {tokens, 2, 6}, Strides{-30, 6, 1}),
          k(dtype(), {tokens, 1, 6}, Strides{1, 100, 5});
      q.fill(1), k.fill(2);
      const auto turn = [&](size_t token, size_t i) {
        const size_t row = use_positions ? static_cast<size_t>(by_position.at(token)) : token;
        return std::complex<double>(cos.at(2 * row + i), sin.at(2 * row + i));
      };
      const Vector q_expected = turned(q, 2, 6, 4, style(), turn);
      const Vector k_expected = turned(k, 1, 6, 4, style(), turn);
      const int32_t code =
          use_positions
              ? run("rotary_embedding", q, k, by_position, cos, sin, int64_t{0}, kBase, style())
                    .code
              : run("rotary_embedding", q, k, nullptr, cos, sin, int64_t{4}, kBase, style()).code;
      ASSERT_EQ(code, YARD_OK);
      expect_rounded(q, q_expected, 1e-14);
      expect_rounded(k, k_expected, 1e-14);
      EXPECT_TRUE(q.gaps_intact() && k.gaps_intact());
    }
  }
}

TEST_P(Rotary, TablesByTokenOverSeveralLeadingDimensions) {
  TestTensor q(dtype(), {2, 3, 1, 2}), cos(YARD_F32, {6, 1}), sin(YARD_F32, {6, 1});
  q.fill(1), cos.fill(2), sin.fill(3);
  const Vector expected = turned(q, 1, 2, 2, style(), [&](size_t token, size_t) {
    return std::complex<double>(cos.at(token), sin.at(token));
  });
  ASSERT_EQ(run("rotary_embedding", q, nullptr, nullptr, cos, sin, int64_t{0}, kBase, style()).code,
            YARD_OK);
  expect_rounded(q, expected, 1e-14);
}

TEST_P(Rotary, StridedPositionsAndNegativeOnes) {
  TestTensor q(dtype(), {3, 1, 2}), positions(YARD_I32, {3}, Strides{-2});
  q.fill(1), positions.set({7, -5, 0});
  const Vector expected =
      turned(q, 1, 2, 2, style(), [&](size_t token, size_t) { return unit(positions.at(token)); });
  ASSERT_EQ(
      run("rotary_embedding", q, nullptr, positions, nullptr, nullptr, int64_t{0}, kBase, style())
          .code,
      YARD_OK);
  expect_rounded(q, expected, 1e-13);
}

TEST(Rotary, QuarterTurnsMatchPrecomputedValues) {
  TestTensor cos(YARD_F32, {1, 2}, {0, 0}), sin(YARD_F32, {1, 2}, {1, 1});
  TestTensor half(YARD_F32, {1, 1, 5}, {1, 2, 3, 4, 5}),
      inter(YARD_F32, {1, 1, 5}, {1, 2, 3, 4, 5});
  run("rotary_embedding", half, nullptr, nullptr, cos, sin, int64_t{0}, kBase, kHalf);
  run("rotary_embedding", inter, nullptr, nullptr, cos, sin, int64_t{0}, kBase, kInterleaved);
  EXPECT_EQ(half.values(), (Vector{-3, -4, 1, 2, 5}));
  EXPECT_EQ(inter.values(), (Vector{-2, 1, -4, 3, 5}));
}

TEST(Rotary, EmptyTensors) {
  TestTensor none(YARD_F32, {0, 2, 4}), no_heads(YARD_F32, {2, 0, 4}), key(YARD_F32, {2, 1, 4});
  TestTensor no_positions(YARD_I64, {0}), positions(YARD_I64, {2}, {0, 1});
  TestTensor cos(YARD_F32, {2, 2}), sin(YARD_F32, {2, 2}), nothing(YARD_F32, {2, 0});
  cos.fill(1), sin.fill(2), key.fill(3);
  const int64_t all = 0;
  EXPECT_EQ(
      run("rotary_embedding", none, none, no_positions, nullptr, nullptr, all, kBase, kHalf).code,
      0);
  EXPECT_EQ(run("rotary_embedding", none, none, no_positions, cos, sin, all, kBase, kHalf).code, 0);
  const Vector before = key.values();
  EXPECT_EQ(
      run("rotary_embedding", key, nullptr, positions, nothing, nothing, all, kBase, kHalf).code,
      0);
  EXPECT_EQ(key.values(), before);
  EXPECT_EQ(run("rotary_embedding", no_heads, key, positions, cos, sin, all, kBase, kHalf).code, 0);
  EXPECT_NE(key.values(), before);
}

class RotaryRefusals : public ::testing::Test {
 protected:
  RotaryRefusals() { q.fill(1), k.fill(2), odd.fill(3), cos.fill(4), sin.fill(5); }
  void expect_refused(const Outcome& outcome, std::initializer_list<const char*> words) {
    EXPECT_EQ(outcome.code, YARD_CALLER);
    for (const char* word : words)
      EXPECT_NE(outcome.message.find(word), std::string::npos)
          << word << " in: " << outcome.message;
    TestTensor q2(YARD_F32, {3, 1, 4}), k2(YARD_F32, {3, 1, 4}), odd2(YARD_F32, {3, 1, 5});
    EXPECT_EQ(q.bytes(), q2.fill(1).bytes());
    EXPECT_EQ(k.bytes(), k2.fill(2).bytes());
    EXPECT_EQ(odd.bytes(), odd2.fill(3).bytes());
  }
  TestTensor q{YARD_F32, {3, 1, 4}}, k{YARD_F32, {3, 1, 4}}, odd{YARD_F32, {3, 1, 5}};
  TestTensor cos{YARD_F32, {8, 2}}, sin{YARD_F32, {8, 2}};
  TestTensor positions{YARD_I64, {3}, {0, 1, 2}};
};

TEST_F(RotaryRefusals, PositionsOutsideTheTables) {
  positions.set({0, 7, 8});
  expect_refused(run("rotary_embedding", q, k, positions, cos, sin, int64_t{0}, kBase, kHalf),
                 {"token 2", "position 8", "8 rows"});
  positions.set({0, -1, 99});
  expect_refused(run("rotary_embedding", q, k, positions, cos, sin, int64_t{0}, kBase, kHalf),
                 {"token 1", "position -1", "8 rows"});
}

TEST_F(RotaryRefusals, RotaryDimThatDoesNotFit) {
  expect_refused(run("rotary_embedding", q, k, positions, cos, sin, int64_t{2}, kBase, kHalf),
                 {"rotary_dim is 2", "cover 4"});
  for (int64_t wrong : {-2, 3, 6})
    expect_refused(run("rotary_embedding", q, k, positions, nullptr, nullptr, wrong, kBase, kHalf),
                   {"rotary_dim is", "4"});
}

TEST_F(RotaryRefusals, OddHeadDim) {
  expect_refused(
      run("rotary_embedding", odd, nullptr, positions, nullptr, nullptr, int64_t{0}, kBase, kHalf),
      {"head_dim is 5", "odd"});
  EXPECT_EQ(
      run("rotary_embedding", odd, nullptr, positions, nullptr, nullptr, int64_t{4}, kBase, kHalf)
          .code,
      YARD_OK);
}

TEST_F(RotaryRefusals, BaseThatIsNotPositive) {
  for (double base : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    expect_refused(
        run("rotary_embedding", q, k, positions, nullptr, nullptr, int64_t{0}, base, kHalf),
        {"base"});
}

}  // namespace
}  // namespace yard::reference::testing
