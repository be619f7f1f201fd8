// SPDX-License-Identifier: Apache-2.0
// Fields and predicates. A field is an integer of a call that rules, limits, cost hints and cache
// keys read. A predicate is a field and a test of its value. Kernel limits, the conditions of rules
// and the keys of breakers are predicates: the selector evaluates them, and the keys of the plan
// cache are compiled from the same lists.
#pragma once

#include <yard/plugin.h>

#include <map>

#include "op/schema.h"

namespace yard::op {

// The result of read() if no argument of the call has the field.
inline constexpr int64_t kAbsent = INT64_MIN;

// An order of the last dimensions of a tensor, outermost first. Earlier dimensions stay in front.
struct AxisOrder {
  static constexpr uint8_t kMost = 5;  // limited by the room in Field::Source
  uint8_t count = 0;                   // 0 for the order of the schema
  uint8_t axes[kMost] = {};            // counted from the first of the last `count` dimensions

  // Converts the order to a number that Field::Source::factor can hold, and back.
  uint16_t packed() const noexcept {
    uint16_t to = 0;
    for (uint8_t i = 0; i < count; ++i) to = static_cast<uint16_t>(to | axes[i] << (3 * i));
    return to;
  }
  static AxisOrder unpack(uint8_t count, uint16_t packed) noexcept {
    AxisOrder to;
    to.count = count;
    for (uint8_t i = 0; i < count; ++i) to.axes[i] = static_cast<uint8_t>((packed >> (3 * i)) & 7);
    return to;
  }
  // Returns the axis of a tensor of this rank that is at `place` in the order.
  int32_t axis(int32_t rank, int32_t place) const noexcept {
    const int32_t front = rank - count;
    return place < front ? place : front + axes[place - front];
  }
  bool operator==(const AxisOrder&) const = default;
};

// The place of a field in the arguments; see Program::field(). A field of optional arguments has
// several sources, and the first one that is given counts.
struct Field {
  enum class Kind : uint8_t {
    kDim,      // one dimension, divided by its factor
    kProduct,  // the product of the leading dimensions
    kScalar,   // an int, bool or enum argument
    kRank,
    kSize,      // number of elements
    kCount,     // tensors in a list
    kPresence,  // 1 if the argument is given, else 0
    // From the facts of a tensor.
    kDType,
    kAlignment,   // of its data, in bytes
    kCompact,     // 1 if the bit of the facts is set, else 0
    kInnerDense,  // likewise
    kPlain,       // likewise
    // In the order of dimensions Source::order().
    kCompactAs,  // 1 without gaps
    kRowsAs,     // 1 if the last dimension has no gaps, and no two indices meet
  };
  struct Source {
    uint8_t arg = 0;
    // For kDim, counts from the end: 1 is the last dimension. For kProduct, the number of
    // dimensions after the product. For kCompactAs and kRowsAs, the number of ordered dimensions.
    uint8_t axis = 0;
    uint16_t factor = 1;  // of kDim; for kCompactAs and kRowsAs, the packed order

    AxisOrder order() const noexcept { return AxisOrder::unpack(axis, factor); }

    bool operator==(const Source&) const = default;
  };
  Kind kind = Kind::kScalar;
  uint8_t count = 0;
  Source sources[kMaxSources];

  // Returns a field of one argument that needs no axis.
  static Field of(Kind kind, size_t arg) noexcept {
    return {kind, 1, {{static_cast<uint8_t>(arg)}}};
  }
  static Field of(Kind kind, size_t arg, const AxisOrder& order) noexcept {
    return {kind, 1, {{static_cast<uint8_t>(arg), order.count, order.packed()}}};
  }
  bool operator==(const Field&) const = default;
};

// The fields of a schema by name.
using Fields = std::map<std::string, Field, std::less<>>;
Fields make_fields(const Schema& schema);

namespace detail {

// Whether a tensor has no gaps in that order. If `rows`, gaps between rows are allowed, but each
// dimension must step over all that the inner ones reach.
bool is_dense_as(const AxisOrder& order, const yard_tensor_t& t, bool rows) noexcept;

inline int64_t read_tensor(Field::Kind kind, Field::Source s, const yard_tensor_t* t) noexcept {
  switch (kind) {
    case Field::Kind::kDim: {
      const int64_t size = t->shape[t->ndim - s.axis];
      return s.factor == 1 ? size : size / s.factor;
    }
    case Field::Kind::kRank: return t->ndim;
    case Field::Kind::kDType: return static_cast<int64_t>(t->facts & YARD_FACTS_DTYPE);
    case Field::Kind::kAlignment:
      return int64_t{1} << ((t->facts & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT);
    case Field::Kind::kCompact: return (t->facts & YARD_FACTS_COMPACT) != 0 ? 1 : 0;
    case Field::Kind::kInnerDense: return (t->facts & YARD_FACTS_INNER_DENSE) != 0 ? 1 : 0;
    case Field::Kind::kPlain: return (t->facts & YARD_FACTS_PLAIN) != 0 ? 1 : 0;
    case Field::Kind::kCompactAs: return is_dense_as(s.order(), *t, false) ? 1 : 0;
    case Field::Kind::kRowsAs: return is_dense_as(s.order(), *t, true) ? 1 : 0;
    default: {
      const int32_t n = t->ndim - (kind == Field::Kind::kProduct ? s.axis : 0);
      int64_t product = 1;
      for (int32_t i = 0; i < n; ++i) product *= t->shape[i];
      return product;
    }
  }
}

}  // namespace detail

// Returns the value of a field in a call that fits its schema, or kAbsent. Does not allocate. A
// scalar may equal kAbsent without being absent; find() and read_apart() can tell the difference.
inline int64_t read(const Field& f, const yard_value_t* args) noexcept {
  for (uint32_t i = 0; i < f.count; ++i) {
    const yard_value_t& v = args[f.sources[i].arg];
    if (f.kind == Field::Kind::kScalar) return v.u.i;
    if (f.kind == Field::Kind::kPresence) return v.tag != YARD_TAG_NONE ? 1 : 0;
    if (v.tag == YARD_TAG_TENSOR) return detail::read_tensor(f.kind, f.sources[i], v.u.tensor);
    if (v.tag != YARD_TAG_LIST) continue;
    if (f.kind == Field::Kind::kCount) return v.count;
    if (v.count > 0) return detail::read_tensor(f.kind, f.sources[i], v.u.list[0]);
  }
  return kAbsent;
}

// Returns whether the field is present, and stores its value.
inline bool find(const Field& f, const yard_value_t* args, int64_t& to) noexcept {
  to = read(f, args);
  return to != kAbsent || (f.kind == Field::Kind::kScalar && f.count > 0);
}

// Like read(), but reads a scalar that equals kAbsent as kAbsent + 1.
inline int64_t read_apart(const Field& f, const yard_value_t* args) noexcept {
  int64_t v;
  return find(f, args, v) && v == kAbsent ? v + 1 : v;
}

struct IntegerTest {
  enum class Kind : uint8_t {
    kRange,     // a <= v <= b
    kMultiple,  // v is a multiple of a, which is positive
    kMask,      // v is below 64, and bit v of a is set
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
  // Appends the values at which the result changes. Not defined for kMultiple.
  void add_cuts(std::vector<int64_t>& to) const;

  bool operator==(const IntegerTest&) const = default;
};

struct Predicate {
  Field field;
  IntegerTest test;
  bool if_absent = true;  // whether it holds if no argument has the field

  bool operator==(const Predicate&) const = default;
};

// Returns whether the predicate holds for a call that fits its schema, and stores the deciding
// value. Facts and ranks of a list must fulfil the predicate for every tensor, and the stored value
// is from the first tensor that does not. Does not allocate.
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

// Returns the number, below 128, of the half octave that contains `v`. Cost hints see a field with
// this precision. All negative values share a half octave, and so do values from 2^62 on. kAbsent
// has a separate one.
inline constexpr uint32_t kNoHalfOctave = 127;
uint32_t half_octave(int64_t v) noexcept;
// Returns the least value of `v`'s half octave: -1 if `v` is negative, kAbsent if it is kAbsent.
int64_t half_octave_floor(int64_t v) noexcept;

}  // namespace yard::op
