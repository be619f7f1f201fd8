// SPDX-License-Identifier: Apache-2.0
// The fields of an op's calls that conditions can name, how they are read, and the operators on them.
//
// A name is, in this order: a field of the op itself (a dimension, a scalar argument, `x.rank`, `x.dtype`), a field of
// every call (dtype, device, deterministic), an alias of one of these (batch_size for rows), a label (tenant, model,
// phase, label.NAME).
#pragma once

#include <yard/plugin.h>
#include <yard/tensor.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op/call_spec.h"
#include "op/predicate.h"
#include "op/program.h"

namespace yard::policy {

// What rules can see of a call that fits its schema. Borrows everything.
struct CallView {
  const yard_value_t* args = nullptr;
  uint32_t flags = 0;  // YARD_CALL_*
  Device device;
  const op::Labels* labels = nullptr;  // may be null
};

struct AxisValue {
  bool there = false;
  int64_t i = 0;
  std::string_view s;
};

// One value that tests read, and where it is divided into classes.
struct Axis {
  enum class Kind : uint8_t {
    kInteger,       // `field`
    kNumber,        // float argument `arg`, by ordered()
    kText,          // string argument `arg`
    kLayout,        // the loosest of `count` arguments from `arg`: 0 contiguous, 1 dense, 2 strided
    kDevice,        // of the call; part of every key anyway
    kFlag,          // `flag`; part of every key anyway
    kLabel,         // text of `label`
    kLabelInteger,  // `label` if it is a whole number
  };
  Kind kind = Kind::kInteger;
  bool optional = false;  // a call may lack it; then no test on it holds, nor does its opposite
  uint8_t arg = 0, count = 1;
  uint32_t flag = 0;
  op::Field field = {};
  std::string label = {};
  // Ascending. Integers with as many cuts at or below them pass the same tests. Of kText and kLabel: texts that differ
  // from all others, and tests that are globs or regular expressions.
  std::vector<int64_t> cuts = {};
  std::vector<std::string> words = {};
  std::vector<uint32_t> patterns = {};
  // The part of a key, which ends with one bit for each pattern. No bits for kDevice and kFlag.
  uint32_t bits = 0, first_bit = 0;

  bool is_text() const noexcept { return kind == Kind::kText || kind == Kind::kLabel; }
  AxisValue read(const CallView& call) const;
  uint64_t class_of(const AxisValue& v) const;
  uint32_t class_bits() const noexcept;
  bool reads_same(const Axis& o) const {
    return kind == o.kind && arg == o.arg && count == o.count && flag == o.flag &&
           field == o.field && label == o.label;
  }
};

// Maps numbers to integers in the same order, neighbours to neighbours, so that both have the same tests. NaN is above
// all.
inline int64_t ordered(double f) noexcept {
  if (std::isnan(f)) return INT64_MAX;
  const auto bits = std::bit_cast<int64_t>(f);
  return bits >= 0 ? bits : INT64_MIN - bits;
}

enum class FieldType : uint8_t {
  kWhole,
  kNumber,
  kSwitch,
  kWord,  // one of a closed list: enumerators, layouts
  kText,
  kDType,
  kDevice,
  kPlatform,  // a device's type
};

struct OpField {
  std::string name;
  FieldType type = FieldType::kWhole;
  Axis axis;                       // without cuts
  std::vector<std::string> words;  // of kWord: the n-th has the value n
};

class OpFields {
 public:
  explicit OpFields(const op::Program& program);

  // Null if calls of this op have no such field. Valid as long as this.
  const OpField* find(std::string_view name);
  // All names that find() accepts, without labels of the program's own.
  std::vector<std::string> names() const;

 private:
  std::map<std::string, OpField, std::less<>> fields_;
};

// An alias: it stands for the first of these fields that the op has.
struct FieldAlias {
  const char* name;
  std::array<const char*, 6> means;  // the rest is null
};
std::span<const FieldAlias> field_aliases() noexcept;
// Labels that need no `label.` before them.
std::span<const char* const> plain_labels() noexcept;
// Fields of every op: dtype, device, ...
std::span<const char* const> call_fields() noexcept;

enum class Operator : uint8_t { kEq, kNe, kGt, kGe, kLt, kLe, kIn, kNotIn, kMatch, kRegex };
struct OperatorRow {
  const char* suffix;  // with its '_'
  Operator op;
  const char* meaning;
};
// Longer suffixes come before those they end with.
std::span<const OperatorRow> operators() noexcept;
bool has_operator(FieldType type, Operator op) noexcept;
// "a whole number": what a value of the type looks like.
std::string type_text(const OpField& field);

// Field and operator of a condition's key. The whole key as a field comes first, then the longest operator that leaves a
// field; after `label.` an operator is always split off.
struct SplitKey {
  const OpField* field = nullptr;  // null if the op has no such field
  Operator op = Operator::kEq;
};
SplitKey split_key(std::string_view key, OpFields& fields);
// The label of the program's own that the key of a condition names; empty if it names none.
std::string_view own_label(std::string_view key) noexcept;
// The key without its operator, if it has one: probably the field that was meant.
std::string_view field_part(std::string_view key) noexcept;

}  // namespace yard::policy
