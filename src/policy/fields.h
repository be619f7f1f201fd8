// SPDX-License-Identifier: Apache-2.0
// The fields of an op's calls that conditions can name, how they are read, and the operators on
// them. A name is looked up in this order: a field of the op itself (a dimension, a scalar
// argument, `x.rank`, `x.dtype`), a field of every call (dtype, device, deterministic), an alias of
// one of these (batch_size for rows), a label (tenant, label.NAME).
#pragma once

#include <array>
#include <cmath>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::policy {

// The part of a valid call that rules can see. Borrows everything.
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

// One value that tests read, and the classes into which the tests divide it.
struct Axis {
  enum class Kind : uint8_t {
    kInteger,       // `field`
    kTimes,         // `field` times `other`
    kUnequal,       // 1 if `field` differs from `other`, else 0
    kConstant,      // the only value in `domain`
    kNumber,        // float argument `arg`, by ordered()
    kText,          // string argument `arg`
    kLayout,        // the loosest of `count` arguments from `arg`: 0 contiguous, 1 dense, 2 strided
    kDevice,        // every key contains the device
    kFlag,          // `flag`; every key contains the flags
    kLabel,         // text of `label`
    kLabelInteger,  // `label` if it is a whole number
  };
  Kind kind = Kind::kInteger;
  bool optional = false;  // if a call lacks the value, neither a test on it nor its opposite holds
  uint8_t arg = 0, count = 1;
  uint32_t flag = 0;
  op::Field field = {}, other = {};
  std::string label = {};
  std::vector<int64_t> domain = {};  // all values that calls can have, if these are a closed list
  // Integers with equally many cuts at or below them pass the same tests. Ascending.
  std::vector<int64_t> cuts = {};
  // Axes of text have instead the texts that tests compare with, and the indices of pattern tests.
  std::vector<std::string> words = {};
  std::vector<uint32_t> patterns = {};
  uint32_t bits = 0, first_bit = 0;  // the part of a key, which ends with one bit for each pattern

  bool is_text() const noexcept { return kind == Kind::kText || kind == Kind::kLabel; }
  AxisValue read(const CallView& call) const;
  uint64_t class_of(const AxisValue& v) const;
  uint32_t class_bits() const noexcept;
  bool reads_same(const Axis& o) const {
    return kind == o.kind && arg == o.arg && count == o.count && flag == o.flag &&
           field == o.field && other == o.other && label == o.label && domain == o.domain;
  }
};

// Maps numbers to integers in the same order, so that both have the same tests. NaN comes last.
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

  const OpField* find(std::string_view name);
  // Returns all names that find() accepts, except label.NAME.
  std::vector<std::string> names() const;

 private:
  std::map<std::string, OpField, std::less<>> fields_;
};

// Another name for the first of these fields that the op has.
struct FieldAlias {
  const char* name;
  std::array<const char*, 6> means;
  const char* with = nullptr;  // only for ops that also have this field
};
inline constexpr FieldAlias kFieldAliases[] = {
    {"batch_size", {"batch", "rows", "tokens"}},
    {"dropout_p", {"dropout"}},
    {"enable_gqa", {"gqa"}},
    {"head_dim", {"head_size"}},
    {"head_dim", {"dim"}, "kv_heads"},
    {"hidden_size", {"hidden"}},
    {"is_causal", {"causal"}},
    {"is_contiguous", {"contiguous"}},
    {"is_cuda_graph_capturing", {"capturing"}},
    {"num_heads", {"heads", "q_heads"}},
    {"num_kv_heads", {"kv_heads"}},
    {"num_tokens", {"tokens", "rows"}},
    {"requires_deterministic", {"deterministic"}},
    {"seq_len", {"seq", "seq_len_q", "seq_q", "q_len", "tokens"}},
    {"seq_len_k", {"seq_k", "kv_len", "k_len", "kv_seq"}},
    {"seq_len_k", {"capacity"}, "kv_heads"},
    {"seq_len_k", {"seq_len", "seq"}},
    {"seq_len_q", {"seq_q", "q_len", "seq_len", "seq"}},
};
// Fields of other projects' attention that have the same value in all calls of a built-in op.
struct AttentionOp {
  const char* name;
  bool causal;  // is_causal
  bool decode;  // seq_len and seq_len_q are 1
};
inline constexpr AttentionOp kAttentionOps[] = {
    {"attention.full", false, false},          {"attention.causal", true, false},
    {"attention.sliding_window", true, false}, {"attention.cross", false, false},
    {"attention.decode", true, true},          {"attention.paged_decode", true, true},
};
// Conditions may name these labels without `label.`.
inline constexpr const char* kPlainLabels[] = {"model", "phase", "tenant", "pp_size", "tp_size"};
inline constexpr const char* kCallFields[] = {"capturing", "contiguous", "deterministic",
                                              "device",    "dtype",      "inference",
                                              "layout",    "platform"};

enum class Operator : uint8_t { kEq, kNe, kGt, kGe, kLt, kLe, kIn, kNotIn, kMatch, kRegex };
struct OperatorRow {
  std::string_view suffix;
  Operator op;
  const char* meaning;
};
// Longer suffixes come before those they end with.
inline constexpr OperatorRow kOperators[] = {
    {"_not_in", Operator::kNotIn, "none of the list"},
    {"_match", Operator::kMatch, "matches a glob, or one of a list of globs"},
    {"_regex", Operator::kRegex, "matches a regular expression, or one of a list"},
    {"_gte", Operator::kGe, "at least"},
    {"_lte", Operator::kLe, "at most"},
    {"_eq", Operator::kEq, "equal; a list means one of"},
    {"_ne", Operator::kNe, "not equal"},
    {"_gt", Operator::kGt, "greater"},
    {"_lt", Operator::kLt, "less"},
    {"_in", Operator::kIn, "one of the list"},
};
bool has_operator(FieldType type, Operator op) noexcept;
// Returns how values of the field look, such as "a whole number".
std::string type_text(const OpField& field);

// The field and operator of a key. A field named like the whole key comes first, then the longest
// operator that leaves a field. After `label.` an operator is always split off.
struct SplitKey {
  const OpField* field = nullptr;  // null if the op has no such field
  Operator op = Operator::kEq;
};
SplitKey split_key(std::string_view key, OpFields& fields);
// Returns the key without its operator.
std::string_view field_part(std::string_view key) noexcept;
// Returns the key that was probably meant if a condition's key names none of the fields.
std::string field_advice(const std::string& key, const std::vector<std::string>& fields);
// Returns NAME if the key of a condition is about label.NAME, else an empty text.
std::string_view own_label(std::string_view key) noexcept;

}  // namespace yard::policy
