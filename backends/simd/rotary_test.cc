// SPDX-License-Identifier: Apache-2.0
// Tests rotary_embedding against the reference: both styles, tables of every dtype, with and
// without positions, partial rotation, strides, long heads, far positions, and refusals.
#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::Contents;
using testing::fill;
using testing::kFloats;
using testing::Outcome;
using testing::Strides;
using testing::TestTensor;

constexpr const char* kOp = "rotary_embedding";

// Compares both kernels on copies of query and key. `arguments` come after the key.
template <class... A>
void compare(uint32_t dtype, std::vector<int64_t> query, std::vector<int64_t> key,
             const Strides& strides, const A&... arguments) {
  TestTensor q(dtype, query, strides), k(dtype, key), q_ref(dtype, query), k_ref(dtype, key);
  fill(q, Contents::kNormal, 1);
  fill(k, Contents::kNormal, 2);
  q_ref.set(q.values());
  k_ref.set(k.values());
  ASSERT_EQ(testing::run(kOp, q, k, arguments...).code, YARD_OK);
  ASSERT_EQ(reference::testing::run(kOp, q_ref, k_ref, arguments...).code, YARD_OK);
  testing::expect_near(kOp, q, q_ref);
  testing::expect_near(kOp, k, k_ref);
}

TestTensor& positions(TestTensor& t, int64_t step) {
  std::vector<double> v;
  for (size_t i = 0; i < t.size(); ++i)
    v.push_back(static_cast<double>(static_cast<int64_t>(i) * step));
  return t.set(v);
}

TEST(Rotary, AgreesWithTheReferenceFromABase) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t head_dim : {2, 6, 16, 34, 128, 600})
      for (const int64_t style : {0, 1}) {
        TestTensor at(YARD_I64, {5});
        positions(at, 37);
        compare(dtype, {5, 3, head_dim}, {5, 2, head_dim}, {}, at, nullptr, nullptr, int64_t{0},
                10000.0, style);
      }
}

TEST(Rotary, AgreesWithTheReferenceFromTables) {
  for (const uint32_t dtype : kFloats)
    for (const uint32_t table : kFloats)
      for (const int64_t half : {1, 3, 8, 21, 64, 300})
        for (const int64_t style : {0, 1}) {
          TestTensor cos(table, {9, half}), sin(table, {9, half}, Strides{half + 5, 1}),
              at(YARD_I32, {4});
          fill(cos, Contents::kNormal, 3);
          fill(sin, Contents::kNormal, 4);
          positions(at, 2);
          // The rotation is partial, because the head is longer than the rotated dimensions.
          compare(dtype, {4, 2, 2 * half + 3}, {4, 1, 2 * half + 3}, {}, at, cos, sin, int64_t{0},
                  10000.0, style);
        }
}

TEST(Rotary, TakesAnyStridesOfTokensHeadsAndPositions) {
  for (const uint32_t dtype : kFloats) {
    TestTensor at(YARD_I64, {2, 3}, Strides{1, 4});
    positions(at, 1);
    for (const Strides& strides : {Strides{600, 200, 40, 1}, Strides{40, 400, 1500, 1}})
      compare(dtype, {2, 3, 4, 32}, {2, 3, 1, 32}, strides, at, nullptr, nullptr, int64_t{16},
              500.0, int64_t{0});
  }
}

TEST(Rotary, IsExactAtAnyPositionAndBase) {
  for (const double base : {1e4, 1.0, 0.5, 1e-3, 1e6})
    for (const int64_t step :
         {int64_t{1}, int64_t{99991}, int64_t{1} << 30, -(int64_t{1} << 20), int64_t{1} << 50}) {
      TestTensor at(YARD_I64, {4});
      positions(at, step);
      compare(YARD_F32, {4, 1, 16}, {4, 1, 16}, {}, at, nullptr, nullptr, int64_t{0}, base,
              int64_t{0});
    }
}

TEST(Rotary, CountsTokensWithoutPositions) {
  TestTensor cos(YARD_F32, {6, 4}), sin(YARD_F32, {6, 4});
  fill(cos, Contents::kNormal, 5);
  fill(sin, Contents::kNormal, 6);
  compare(YARD_F32, {2, 3, 2, 8}, {2, 3, 1, 8}, {}, nullptr, cos, sin, int64_t{0}, 1e4, int64_t{0});
}

TEST(Rotary, CarriesNanAndInfinity) {
  for (const uint32_t dtype : kFloats)
    for (const Contents contents : {Contents::kNan, Contents::kInfinity}) {
      TestTensor cos(YARD_F32, {3, 8}), sin(YARD_F32, {3, 8});
      fill(cos, contents, 7);
      fill(sin, contents, 8);
      compare(dtype, {3, 2, 16}, {3, 1, 16}, {}, nullptr, cos, sin, int64_t{0}, 1e4, int64_t{1});
    }
}

TEST(Rotary, GivesTheSameBitsInChunks) {
  TestTensor at(YARD_I64, {40}), whole(YARD_BF16, {40, 8, 64}), pieces(YARD_BF16, {40, 8, 64});
  positions(at, 3);
  fill(whole, Contents::kNormal, 1);
  pieces.set(whole.values());
  const auto run = [&](const yard_host_t* host, TestTensor& q) {
    return testing::run_on(host, kOp, q, nullptr, at, nullptr, nullptr, int64_t{0}, 1e4, int64_t{0})
        .code;
  };
  EXPECT_EQ(run(nullptr, whole), YARD_OK);
  EXPECT_EQ(run(testing::splitting_host(), pieces), YARD_OK);
  EXPECT_EQ(whole.bytes(), pieces.bytes());
}

TEST(Rotary, RefusesWhatTheReferenceRefuses) {
  TestTensor query(YARD_F32, {2, 1, 7}), cos(YARD_F32, {4, 3}), sin(YARD_F32, {4, 3}),
      at(YARD_I64, {2});
  positions(at, 4);
  fill(query, Contents::kNormal, 1);
  const std::vector<uint8_t> before = query.bytes();
  const auto check = [&](const auto&... a) {
    const Outcome found = testing::run(kOp, query, nullptr, a...);
    const Outcome expected = reference::testing::run(kOp, query, nullptr, a...);
    EXPECT_EQ(found.code, YARD_CALLER);
    EXPECT_EQ(found.code, expected.code);
    EXPECT_EQ(found.message, expected.message);
    EXPECT_EQ(query.bytes(), before);
  };
  check(at, nullptr, nullptr, int64_t{0}, 1e4, int64_t{0});   // odd head
  check(at, nullptr, nullptr, int64_t{8}, 1e4, int64_t{0});   // beyond the head
  check(at, nullptr, nullptr, int64_t{3}, 1e4, int64_t{0});   // odd
  check(at, nullptr, nullptr, int64_t{-2}, 1e4, int64_t{0});  // negative
  check(at, nullptr, nullptr, int64_t{4}, 0.0, int64_t{0});   // no base
  check(at, nullptr, nullptr, int64_t{4}, std::nan(""), int64_t{0});
  check(at, cos, sin, int64_t{4}, 1e4, int64_t{0});  // tables cover 6
  check(at, cos, sin, int64_t{0}, 1e4, int64_t{0});  // position 4 of 4
}

TEST(Rotary, AcceptsEmptyTensors) {
  for (const int64_t tokens : {0, 3}) {
    TestTensor query(YARD_F32, {tokens, 0, 8}), at(YARD_I64, {tokens});
    positions(at, 1);
    EXPECT_EQ(
        testing::run(kOp, query, nullptr, at, nullptr, nullptr, int64_t{0}, 1e4, int64_t{0}).code,
        YARD_OK);
    TestTensor flat(YARD_F32, {tokens, 2, 0});
    EXPECT_EQ(
        testing::run(kOp, flat, nullptr, at, nullptr, nullptr, int64_t{0}, 1e4, int64_t{0}).code,
        YARD_OK);
  }
}

}  // namespace
}  // namespace yard::simd
