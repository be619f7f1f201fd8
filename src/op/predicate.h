// SPDX-License-Identifier: Apache-2.0
// Predicates on calls: a field and a test of its value. Kernel limits, the conditions of rules and the keys of
// breakers are written in these; the selector evaluates them, and the keys of the plan cache are compiled from
// the same lists.
#pragma once

#include <cstdint>
#include <vector>

#include "op/field.h"

namespace yard::op {

// A test of one integer.
struct IntegerTest {
  enum class Kind : uint8_t {
    kRange,     // a <= v <= b
    kMultiple,  // of a, which is positive
    kMask,      // bit v of a is set; for values below 64
  };
  Kind kind = Kind::kRange;
  int64_t a = INT64_MIN, b = INT64_MAX;

  static IntegerTest range(int64_t a, int64_t b) noexcept { return {Kind::kRange, a, b}; }
  static IntegerTest at_least(int64_t a) noexcept { return range(a, INT64_MAX); }
  static IntegerTest at_most(int64_t b) noexcept { return range(INT64_MIN, b); }
  static IntegerTest equals(int64_t a) noexcept { return range(a, a); }
  static IntegerTest multiple_of(int64_t a) noexcept { return {Kind::kMultiple, a, 0}; }
  static IntegerTest one_of_mask(uint64_t mask) noexcept {
    return {Kind::kMask, static_cast<int64_t>(mask), 0};
  }

  bool holds(int64_t v) const noexcept {
    if (kind == Kind::kRange) return a <= v && v <= b;
    if (kind == Kind::kMultiple) return v % a == 0;
    return static_cast<uint64_t>(v) < 64 && ((static_cast<uint64_t>(a) >> v) & 1) != 0;
  }
  // Whether values pass from some number on, or up to some number.
  bool is_threshold() const noexcept {
    return kind == Kind::kRange && (a == INT64_MIN || b == INT64_MAX);
  }
  // Appends numbers such that two values with as many of them at or below them pass alike. Not for kMultiple.
  void add_cuts(std::vector<int64_t>& to) const;

  bool operator==(const IntegerTest&) const = default;
};

struct Predicate {
  Field field;
  IntegerTest test;
  bool if_absent = true;  // whether it holds where no argument has the field

  bool operator==(const Predicate&) const = default;
};

// Whether the predicate holds for a call that fits its schema, and the value that decides. Facts of a tensor, and
// its rank, must hold for every tensor of a list; the first that fails is the value. No allocation.
bool holds_for_list(const Predicate& p, const yard_value_t& list, int64_t& found) noexcept;
inline bool holds(const Predicate& p, const yard_value_t* args, int64_t& found) noexcept {
  const yard_value_t& first = args[p.field.sources[0].arg];
  const bool of_tensor = p.field.kind >= Field::Kind::kDType || p.field.kind == Field::Kind::kRank;
  if (of_tensor && first.tag == YARD_TAG_LIST) return holds_for_list(p, first, found);
  return find(p.field, args, found) ? p.test.holds(found) : p.if_absent;
}
inline bool holds(const Predicate& p, const yard_value_t* args) noexcept {
  int64_t found;
  return holds(p, args, found);
}

// Half octaves, the precision at which cost hints see a field: the number of the one that holds `v`, below 128.
// Negative values share one, as do those from 2^62 on; kAbsent has its own.
inline constexpr uint32_t kNoHalfOctave = 127;
uint32_t half_octave(int64_t v) noexcept;
// The least value of the half octave that holds `v`; -1 for negative ones, kAbsent for itself.
int64_t half_octave_floor(int64_t v) noexcept;

}  // namespace yard::op
