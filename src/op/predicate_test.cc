// SPDX-License-Identifier: Apache-2.0
// Tests integer tests and their cuts, predicates on tensors and lists, and half octaves.
#include "op/predicate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "op/call.h"
#include "op/program.h"

namespace yard::op {
namespace {

using FieldKind = Field::Kind;

// Two values with equally many cuts at or below them give equal results. Cuts exist only where
// results change.
TEST(IntegerTest, CutsSayWhereValuesPassAlike) {
  const IntegerTest tests[] = {IntegerTest::at_least(5),
                               IntegerTest::at_most(5),
                               IntegerTest::equals(0),
                               IntegerTest::range(3, 9),
                               IntegerTest::range(-4, INT64_MAX),
                               IntegerTest::one_of_mask(0x6),
                               IntegerTest::one_of_mask(0x5a),
                               IntegerTest::one_of_mask(0),
                               IntegerTest{}};
  for (const IntegerTest& t : tests) {
    std::vector<int64_t> cuts;
    t.add_cuts(cuts);
    const bool mask = t.kind == IntegerTest::Kind::kMask;
    for (int64_t v = mask ? 1 : -8; v < 16; ++v) {
      const bool is_cut = std::find(cuts.begin(), cuts.end(), v) != cuts.end();
      EXPECT_EQ(is_cut, t.holds(v) != t.holds(v - 1)) << v;
    }
  }
  std::vector<int64_t> ends;
  IntegerTest::range(INT64_MIN, INT64_MAX).add_cuts(ends);
  EXPECT_TRUE(ends.empty());
}

TEST(Predicate, ReadsTensorsListsAndOptionalArguments) {
  const Program program =
      Program::compile("op(out!: T[n, d], x: T[n, d], bias?: T[d], xs: T[d][], mode: int = 0)")
          .value();
  const auto check = [&](const std::string& spec, const Predicate& p) {
    const auto call = Call::from_spec(program, parse_call_spec(spec).value());
    int64_t found = -1;
    const bool yes = holds(p, call->args(), found);
    return std::pair(yes, found);
  };
  const auto field = [](FieldKind kind, size_t arg) { return Field::of(kind, arg); };
  const std::string plain = "op(f32[4,8], xs=[f32[8], f32[8;2]], mode=3)";
  const std::string biased = "op(f32[4,8], f32[8;2], xs=[], mode=3)";
  EXPECT_FALSE(check(plain, {field(FieldKind::kPresence, 2), IntegerTest::equals(1)}).first);
  EXPECT_TRUE(check(biased, {field(FieldKind::kPresence, 2), IntegerTest::equals(1)}).first);
  EXPECT_EQ(check(plain, {field(FieldKind::kDType, 1), IntegerTest::one_of_mask(1 << YARD_BF16)}),
            std::pair(false, int64_t{YARD_F32}));
  EXPECT_FALSE(check(biased, {field(FieldKind::kCompact, 2), IntegerTest::at_least(1)}).first);
  EXPECT_TRUE(check(biased, {field(FieldKind::kPlain, 2), IntegerTest::at_least(1)}).first);
  // For an absent argument, the predicate decides.
  EXPECT_TRUE(check(plain, {field(FieldKind::kCompact, 2), IntegerTest::at_least(1)}).first);
  EXPECT_FALSE(
      check(plain, {field(FieldKind::kCompact, 2), IntegerTest::at_least(1), false}).first);
  // Every tensor of a list must pass.
  EXPECT_FALSE(check(plain, {field(FieldKind::kInnerDense, 3), IntegerTest::at_least(1)}).first);
  EXPECT_TRUE(check(biased, {field(FieldKind::kInnerDense, 3), IntegerTest::at_least(1)}).first);
  EXPECT_TRUE(check(plain, {*program.field("mode"), IntegerTest::equals(3)}).first);
  EXPECT_FALSE(check(plain, {*program.field("n"), IntegerTest::multiple_of(3)}).first);
}

int64_t any_integer() {
  // Draws all magnitudes alike, the neighbours of powers of two, and the ends.
  const auto bits = *rc::gen::inRange(0, 64);
  const auto raw = *rc::gen::arbitrary<uint64_t>();
  const uint64_t v = bits == 0 ? 0 : raw >> (64 - bits);
  const auto sign = *rc::gen::inRange(0, 6);
  const int64_t edge = *rc::gen::inRange(-2, 3);
  if (sign == 0) return static_cast<int64_t>(0 - v);
  if (sign == 1)
    return static_cast<int64_t>((uint64_t{1} << (bits % 63)) + static_cast<uint64_t>(edge));
  if (sign == 2) return edge < 0 ? INT64_MIN + (edge + 2) : INT64_MAX - edge;
  return static_cast<int64_t>(v);
}

TEST(HalfOctave, SameNumberExactlyForSameFloor) {
  EXPECT_TRUE(rc::check("half octaves", [] {
    for (int i = 0; i < 50; ++i) {
      const int64_t a = any_integer(), b = any_integer();
      RC_ASSERT((half_octave(a) == half_octave(b)) ==
                (half_octave_floor(a) == half_octave_floor(b)));
      RC_ASSERT(half_octave(a) < 128u);
      RC_ASSERT((half_octave(a) == kNoHalfOctave) == (a == kAbsent));
      if (a == kAbsent || b == kAbsent) continue;
      // Half octaves are monotone: a larger value is never in an earlier one.
      RC_ASSERT(a > b || half_octave(a) <= half_octave(b));
      RC_ASSERT(a > b || half_octave_floor(a) <= half_octave_floor(b));
      RC_ASSERT(a < 0 || half_octave_floor(a) <= a);
      RC_ASSERT(half_octave_floor(half_octave_floor(a)) == half_octave_floor(a));
      RC_ASSERT(half_octave(half_octave_floor(a)) == half_octave(a));
    }
  }));
}

TEST(HalfOctave, TwoToAnOctave) {
  const std::pair<int64_t, int64_t> edges[] = {
      {-5, -1}, {-1, -1}, {0, 0}, {1, 1},  {2, 2},   {3, 3},       {4, 4},      {5, 4},
      {6, 6},   {7, 6},   {8, 8}, {11, 8}, {12, 12}, {4095, 3072}, {4096, 4096}};
  for (const auto& [v, edge] : edges) EXPECT_EQ(half_octave_floor(v), edge) << v;
  EXPECT_EQ(half_octave_floor(kAbsent), kAbsent);
  EXPECT_EQ(half_octave_floor(INT64_MAX), int64_t{1} << 62);
}

}  // namespace
}  // namespace yard::op
