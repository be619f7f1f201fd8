// SPDX-License-Identifier: Apache-2.0
// The fields of an op's calls that conditions can name, the operators on them, and conditions compiled to tests.
//
// A name is, in this order: a field of the op itself (a dimension, a scalar argument, `x.rank`, `x.dtype`), a field of
// every call (dtype, device, deterministic), an alias of one of these (batch_size for rows), a label (tenant, model,
// phase, label.NAME).
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "op/program.h"
#include "policy/rules.h"

namespace yard::policy {

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

// An alias: it stands for the first of these fields that the op has.
struct FieldAlias {
  const char* name;
  std::array<const char*, 6> means;  // the rest is null
};

class OpFields {
 public:
  explicit OpFields(const op::Program& program);

  // Null if calls of this op have no such field. Valid as long as this.
  const OpField* find(std::string_view name);
  // All names that find() accepts, without labels of the program's own.
  std::vector<std::string> names() const;

 private:
  void add(OpField field);
  void add_tensor(const op::Param& param, size_t index);
  void add_call_fields();
  OpField* label(std::string_view name, bool whole);
  using Fields = std::map<std::string, OpField, std::less<>>;
  Fields::const_iterator stands_for(const FieldAlias& alias) const;

  const op::Program& program_;
  Fields fields_;
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
// Longer suffixes before those they end with.
std::span<const OperatorRow> operators() noexcept;
// The operators a type has.
bool has_operator(FieldType type, Operator op) noexcept;
// "a whole number": what a value of the type looks like.
std::string type_text(const OpField& field);

// Field and operator of a condition's key. The whole key as a field comes first, then the longest operator that leaves a
// field; after `label.` an operator is always split off.
struct SplitKey {
  const OpField* field = nullptr;  // null: the op has no such field
  Operator op = Operator::kEq;
};
SplitKey split_key(std::string_view key, OpFields& fields);
// The label of the program's own that the key of a condition names; empty: none.
std::string_view own_label(std::string_view key) noexcept;
// The key without its operator, if it has one: probably the field that was meant.
std::string_view field_part(std::string_view key) noexcept;

// ---- condition_compiler.cc ----

// Collects the tests of one op, each distinct one once.
class ConditionCompiler {
 public:
  explicit ConditionCompiler(OpRules& to) : to_(to) {}

  // Appends what must be true for the condition to hold; false and `wrong` if it is invalid.
  bool add(const OpField& field, Operator op, const Condition& condition,
           std::vector<uint32_t>& literals, Wrong& wrong);
  // After the last add(): sorts the tests and divides the axes into classes.
  void finish();

 private:
  class Draft;
  uint16_t axis_of(const OpField& field);
  uint32_t test_of(uint16_t axis, Draft& draft);
  void make_runs();
  void divide(Axis& axis, uint32_t test) const;

  OpRules& to_;
  std::unordered_map<std::string, uint32_t> tests_;
  std::string key_;
};

}  // namespace yard::policy
