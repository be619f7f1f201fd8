// SPDX-License-Identifier: Apache-2.0
// Finds the names of fields, the axes they read, and their operators.
#include "policy/fields.h"

#include <fmt/format.h>

#include <numeric>

#include "base/lists.h"
#include "base/yaml.h"
#include "policy/words.h"

namespace yard::policy {

namespace {

// Returns the loosest layout of the tensors, or -1 if there are none.
int layout_of(const yard_value_t& v) {
  const uint32_t count = v.tag == YARD_TAG_TENSOR ? 1 : v.tag == YARD_TAG_LIST ? v.count : 0;
  int loosest = -1;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t facts = (v.tag == YARD_TAG_TENSOR ? v.u.tensor : v.u.list[i])->facts;
    const int strided = (facts & YARD_FACTS_INNER_DENSE) != 0 ? 1 : 2;
    loosest = std::max(loosest, (facts & YARD_FACTS_COMPACT) != 0 ? 0 : strided);
  }
  return loosest;
}

constexpr std::string_view kLabel = "label.";

bool always_given(const op::Field& f, const std::vector<op::Param>& params) {
  for (uint32_t i = 0; i < f.count; ++i) {
    const op::Param& p = params[f.sources[i].arg];
    const bool plain = f.kind == op::Field::Kind::kCount || p.kind != op::Kind::kTensorList;
    if (!p.optional && plain) return true;
  }
  return false;
}

OpField label(std::string field, std::string_view name, bool whole = false) {
  const auto kind = whole ? Axis::Kind::kLabelInteger : Axis::Kind::kLabel;
  return {std::move(field),
          whole ? FieldType::kWhole : FieldType::kText,
          {.kind = kind, .optional = true, .label = std::string(name)},
          {}};
}

// Returns the tensor whose dtype is the call's: inputs before outputs, required before optional.
int lead_tensor(const std::vector<op::Param>& params) {
  int best = -1, rank = 100;
  for (size_t i = 0; i < params.size(); ++i) {
    const op::Param& p = params[i];
    if (!p.is_tensor()) continue;
    const int r =
        (p.optional ? 4 : 0) + (p.kind == op::Kind::kTensorList ? 2 : 0) + (p.is_output() ? 1 : 0);
    if (r < rank) rank = r, best = static_cast<int>(i);
  }
  return best;
}

}  // namespace

uint32_t Axis::class_bits() const noexcept {
  if (kind == Kind::kDevice || kind == Kind::kFlag || kind == Kind::kConstant) return 0;
  const uint64_t most = (is_text() ? words.size() : cuts.size()) + (optional ? 1 : 0);
  return static_cast<uint32_t>(std::bit_width(most));
}

AxisValue Axis::read(const CallView& call) const {
  switch (kind) {
    case Kind::kInteger: {
      AxisValue v;
      v.there = op::find(field, call.args, v.i);
      return v;
    }
    case Kind::kTimes:
    case Kind::kUnequal: {
      int64_t a = 0, b = 0, product = 0;
      if (!op::find(field, call.args, a) || !op::find(other, call.args, b)) return {};
      if (kind == Kind::kUnequal) return {true, a != b ? 1 : 0, {}};
      return {true, __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product, {}};
    }
    case Kind::kConstant: return {true, domain[0], {}};
    case Kind::kNumber:
      if (call.args[arg].tag != YARD_TAG_FLOAT) return {};
      return {true, ordered(call.args[arg].u.f), {}};
    case Kind::kText:
      if (call.args[arg].tag != YARD_TAG_STRING) return {};
      return {true, 0, {call.args[arg].u.string, call.args[arg].count}};
    case Kind::kLayout: {
      int loosest = -1;
      for (uint32_t i = arg; i < uint32_t{arg} + count; ++i)
        loosest = std::max(loosest, layout_of(call.args[i]));
      return {loosest >= 0, loosest, {}};
    }
    case Kind::kDevice:
      return {true, (int64_t{call.device.type} << 16) | (call.device.index + 1), {}};
    case Kind::kFlag: return {true, (call.flags & flag) != 0 ? 1 : 0, {}};
    case Kind::kLabel:
    case Kind::kLabelInteger: break;
  }
  if (call.labels == nullptr) return {};
  for (const auto& [name, text] : *call.labels) {
    if (name != label) continue;
    if (kind == Kind::kLabel) return {true, 0, text};
    const auto number = base::yaml_whole_number(text);
    return {number.has_value(), number.value_or(0), {}};
  }
  return {};
}

uint64_t Axis::class_of(const AxisValue& v) const {
  if (!v.there) return 0;
  const uint64_t base = optional ? 1 : 0;
  if (!is_text())
    return base +
           static_cast<uint64_t>(std::upper_bound(cuts.begin(), cuts.end(), v.i) - cuts.begin());
  const auto at = std::lower_bound(words.begin(), words.end(), v.s);
  const bool known = at != words.end() && *at == v.s;
  return base + (known ? static_cast<uint64_t>(at - words.begin()) + 1 : 0);
}

OpFields::OpFields(const op::Program& program) {
  using Kind = Axis::Kind;
  const std::vector<op::Param>& params = program.schema().params;
  const auto add = [&](const std::string& name, FieldType type, Axis axis,
                       std::vector<std::string> words = {}) {
    // Keeps an earlier field of this name.
    fields_.emplace(name, OpField{name, type, std::move(axis), std::move(words)});
  };
  const auto integer = [&](const op::Field& f, std::vector<int64_t> domain = {}) {
    return Axis{.optional = !always_given(f, params), .field = f, .domain = std::move(domain)};
  };
  const auto dtype = [&](size_t arg) {
    const op::Param& p = params[arg];
    std::vector<int64_t> domain;
    if (const auto* types = program.schema().dtypes_of(p.variable))
      for (const DType t : *types) domain.push_back(static_cast<int64_t>(t));
    else if (p.variable.empty())
      domain = {static_cast<int64_t>(p.dtype)};
    return integer(op::Field::of(op::Field::Kind::kDType, arg), std::move(domain));
  };
  const auto layouts = [&](const std::string& prefix, size_t arg, size_t count) {
    const Axis axis{.kind = Kind::kLayout,
                    .optional = true,
                    .arg = static_cast<uint8_t>(arg),
                    .count = static_cast<uint8_t>(count),
                    .domain = {0, 1, 2}};
    add(prefix + "layout", FieldType::kWord, axis, {"contiguous", "dense", "strided"});
    add(prefix + "contiguous", FieldType::kSwitch, axis);
  };
  for (const std::string& name : program.field_names()) {
    const op::Field field = *program.field(name);
    const op::Param* scalar =
        field.kind == op::Field::Kind::kScalar ? &params[field.sources[0].arg] : nullptr;
    const op::Kind kind = scalar != nullptr ? scalar->kind : op::Kind::kInt;
    const FieldType type = kind == op::Kind::kBool   ? FieldType::kSwitch
                           : kind == op::Kind::kEnum ? FieldType::kWord
                                                     : FieldType::kWhole;
    const auto words = scalar != nullptr ? scalar->enumerators : std::vector<std::string>();
    std::vector<int64_t> domain(kind == op::Kind::kBool ? 2 : words.size());
    std::iota(domain.begin(), domain.end(), 0);
    add(name, type, integer(field, std::move(domain)), words);
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const op::Param& p = params[i];
    if (p.is_tensor()) {
      add(p.name + ".dtype", FieldType::kDType, dtype(i));
      layouts(p.name + ".", i, 1);
    }
    const auto scalar = [&](Kind kind) {
      return Axis{.kind = kind, .optional = p.optional, .arg = static_cast<uint8_t>(i)};
    };
    if (p.kind == op::Kind::kFloat) add(p.name, FieldType::kNumber, scalar(Kind::kNumber));
    if (p.kind == op::Kind::kString) add(p.name, FieldType::kText, scalar(Kind::kText));
  }
  if (const int lead = lead_tensor(params); lead >= 0) {
    add("dtype", FieldType::kDType, dtype(static_cast<size_t>(lead)));
    layouts("", 0, params.size());
  }
  add("device", FieldType::kDevice, {.kind = Kind::kDevice});
  add("platform", FieldType::kPlatform, {.kind = Kind::kDevice});
  for (const auto& [name, flag] : {std::pair{"deterministic", YARD_CALL_DETERMINISTIC},
                                   {"capturing", YARD_CALL_CAPTURING},
                                   {"inference", YARD_CALL_INFERENCE}})
    add(name, FieldType::kSwitch, {.kind = Kind::kFlag, .flag = flag, .domain = {0, 1}});
  const auto combined = [&](Kind kind, const char* a, const char* b) -> std::optional<Axis> {
    const OpField *x = find(a), *y = find(b);
    if (x == nullptr || y == nullptr) return std::nullopt;
    Axis to = x->axis;
    to.kind = kind, to.other = y->axis.field, to.optional |= y->axis.optional;
    if (kind == Kind::kUnequal) to.domain = {0, 1};
    return to;
  };
  // Added at the end, because aliases do not refer to each other.
  std::vector<std::pair<const char*, OpField>> more;
  if (auto axis = combined(Kind::kTimes, "max_blocks", "block"))
    more.emplace_back("seq_len_k", OpField{"seq_len_k", FieldType::kWhole, *std::move(axis), {}});
  for (const FieldAlias& alias : kFieldAliases) {
    auto it = fields_.end();
    for (const char* name : alias.means)
      if (name != nullptr && it == fields_.end()) it = fields_.find(std::string_view(name));
    if (it != fields_.end() && (alias.with == nullptr || fields_.contains(alias.with)))
      more.emplace_back(alias.name, it->second);
  }
  for (const char* name : kPlainLabels) {
    const bool whole = std::string_view(name).ends_with("_size");
    more.emplace_back(name, label((whole ? "" : "label.") + std::string(name), name, whole));
  }
  for (auto& [name, field] : more) fields_.emplace(name, std::move(field));
  if (auto axis = combined(Kind::kUnequal, "num_heads", "num_kv_heads"))
    add("enable_gqa", FieldType::kSwitch, *std::move(axis));
  const auto attention = std::ranges::find(kAttentionOps, program.name(), &AttentionOp::name);
  if (attention == std::end(kAttentionOps)) return;
  const auto constant = [](int64_t value) {
    return Axis{.kind = Kind::kConstant, .domain = {value}};
  };
  add("dropout_p", FieldType::kNumber, constant(ordered(0)));
  add("is_causal", FieldType::kSwitch, constant(attention->causal ? 1 : 0));
  for (const char* name : {"seq_len", "seq_len_q"})
    if (attention->decode) add(name, FieldType::kWhole, constant(1));
}

const OpField* OpFields::find(std::string_view name) {
  if (const auto it = fields_.find(name); it != fields_.end()) return &it->second;
  if (!name.starts_with(kLabel) || name.size() == kLabel.size()) return nullptr;
  return &fields_.emplace(name, label(std::string(name), name.substr(kLabel.size()))).first->second;
}

std::vector<std::string> OpFields::names() const {
  std::vector<std::string> to = base::keys(fields_);
  std::erase_if(to, [](const std::string& name) { return name.starts_with(kLabel); });
  return to;
}

bool has_operator(FieldType type, Operator op) noexcept {
  const bool number = type == FieldType::kWhole || type == FieldType::kNumber;
  if (op == Operator::kMatch || op == Operator::kRegex)
    return !number && type != FieldType::kSwitch;
  return number || op == Operator::kEq || op == Operator::kNe || op == Operator::kIn ||
         op == Operator::kNotIn;
}

std::string type_text(const OpField& field) {
  switch (field.type) {
    case FieldType::kWhole: return "a whole number";
    case FieldType::kNumber: return "a number";
    case FieldType::kSwitch: return "true or false";
    case FieldType::kWord: return base::one_of(field.words);
    case FieldType::kText: return "text";
    case FieldType::kDType: return "a dtype as f32, bf16 or float16";
    case FieldType::kDevice: return "a device as cpu, cuda or cuda:1";
    default: return "a device's type as cpu or cuda";
  }
}

std::string_view field_part(std::string_view key) noexcept {
  for (const OperatorRow& row : kOperators)
    if (key.size() > row.suffix.size() && key.ends_with(row.suffix))
      return key.substr(0, key.size() - row.suffix.size());
  return key;
}

std::string_view own_label(std::string_view key) noexcept {
  if (!key.starts_with(kLabel)) return {};
  return field_part(key).substr(kLabel.size());
}

std::string field_advice(const std::string& key, const Names& fields) {
  Names plain, keys = fields;
  for (const std::string& field : fields) {
    if (!base::contains(field, '.')) plain.push_back(field);
    for (const OperatorRow& row : kOperators) keys.push_back(field + std::string(row.suffix));
  }
  const std::string_view field = field_part(key);
  return suggestion(key, keys,
                    fmt::format("expected {}, or a label as label.{}", base::one_of(plain),
                                base::is_bare_word(field) ? field.substr(0, 80) : "NAME"));
}

SplitKey split_key(std::string_view key, OpFields& fields) {
  const bool label = key.starts_with(kLabel);
  if (!label)
    if (const OpField* f = fields.find(key)) return {f, Operator::kEq};
  for (const auto& [suffix, op, meaning] : kOperators) {
    if (key.size() <= suffix.size() || !key.ends_with(suffix)) continue;
    if (const OpField* f = fields.find(key.substr(0, key.size() - suffix.size()))) return {f, op};
  }
  return {label ? fields.find(key) : nullptr, Operator::kEq};
}

}  // namespace yard::policy
