// SPDX-License-Identifier: Apache-2.0
// Names of fields, the axes they read, and their operators.
#include "policy/fields.h"

#include <algorithm>

#include "base/lists.h"
#include "base/text.h"
#include "base/yaml.h"

namespace yard::policy {

// ---- Reading ----

namespace {

// 0 contiguous, 1 dense, 2 strided; -1: no tensor.
int layout_of(const yard_value_t& v) {
  const auto one = [](const yard_tensor_t& t) {
    return (t.facts & YARD_FACTS_COMPACT) != 0       ? 0
           : (t.facts & YARD_FACTS_INNER_DENSE) != 0 ? 1
                                                     : 2;
  };
  if (v.tag == YARD_TAG_TENSOR) return one(*v.u.tensor);
  int loosest = -1;
  for (uint32_t i = 0; v.tag == YARD_TAG_LIST && i < v.count; ++i)
    loosest = std::max(loosest, one(*v.u.list[i]));
  return loosest;
}

int64_t device_code(Device d) { return (int64_t{d.type} << 16) | (d.index + 1); }

uint32_t bits_for(uint64_t classes) {
  return classes <= 1 ? 0 : static_cast<uint32_t>(std::bit_width(classes - 1));
}

}  // namespace

void Axis::set_bits() noexcept {
  const uint64_t absent = optional ? 1 : 0;
  switch (kind) {
    case Kind::kText:
    case Kind::kLabel:
      bits = bits_for(words.size() + 1 + absent) + static_cast<uint32_t>(patterns.size());
      return;
    case Kind::kDevice:
    case Kind::kFlag: return;
    default: bits = bits_for(cuts.size() + 1 + absent);
  }
}

AxisValue Axis::read(const CallView& call) const {
  AxisValue v;
  switch (kind) {
    case Kind::kInteger: v.there = op::find(field, call.args, v.i); return v;
    case Kind::kNumber:
      v.there = call.args[arg].tag == YARD_TAG_FLOAT;
      if (v.there) v.i = ordered(call.args[arg].u.f);
      return v;
    case Kind::kText:
      v.there = call.args[arg].tag == YARD_TAG_STRING;
      if (v.there) v.s = {call.args[arg].u.string, call.args[arg].count};
      return v;
    case Kind::kLayout:
      v.i = -1;
      for (uint32_t i = arg; i < uint32_t{arg} + count; ++i)
        v.i = std::max<int64_t>(v.i, layout_of(call.args[i]));
      v.there = v.i >= 0;
      return v;
    case Kind::kDevice:
      v.there = true;
      v.i = device_code(call.device);
      return v;
    case Kind::kFlag:
      v.there = true;
      v.i = (call.flags & flag) != 0 ? 1 : 0;
      return v;
    case Kind::kLabel:
    case Kind::kLabelInteger: break;
  }
  if (call.labels == nullptr) return v;
  for (const auto& [name, text] : *call.labels) {
    if (name != label) continue;
    v.there = true;
    v.s = text;
    if (kind == Kind::kLabel) break;
    const auto number = base::yaml_whole_number(text);
    v.there = number.has_value();
    v.i = number.value_or(0);
    break;
  }
  return v;
}

uint64_t Axis::class_of(const AxisValue& v) const {
  if (!v.there) return 0;
  const uint64_t base = optional ? 1 : 0;
  switch (kind) {
    case Kind::kText:
    case Kind::kLabel: {
      const auto at = std::lower_bound(words.begin(), words.end(), v.s);
      const bool known = at != words.end() && *at == v.s;
      return base + (known ? static_cast<uint64_t>(at - words.begin()) + 1 : 0);
    }
    default: {
      const auto at = std::upper_bound(cuts.begin(), cuts.end(), v.i);
      return base + static_cast<uint64_t>(at - cuts.begin());
    }
  }
}

// ---- Names ----

namespace {

constexpr FieldAlias kAliases[] = {
    {"batch_size", {"batch_size", "batch", "rows", "tokens"}},
    {"dropout_p", {"dropout_p", "dropout"}},
    {"enable_gqa", {"enable_gqa", "gqa"}},
    {"head_dim", {"head_dim", "head_size"}},
    {"hidden_size", {"hidden_size", "hidden"}},
    {"is_causal", {"is_causal", "causal"}},
    {"is_contiguous", {"contiguous"}},
    {"is_cuda_graph_capturing", {"capturing"}},
    {"num_heads", {"num_heads", "heads", "q_heads"}},
    {"num_kv_heads", {"num_kv_heads", "kv_heads"}},
    {"num_tokens", {"num_tokens", "tokens", "rows"}},
    {"requires_deterministic", {"deterministic"}},
    {"seq_len", {"seq_len", "seq", "seq_len_q", "seq_q", "q_len", "tokens"}},
    {"seq_len_k", {"seq_len_k", "seq_k", "kv_len", "k_len", "seq_len", "seq"}},
    {"seq_len_q", {"seq_len_q", "seq_q", "q_len", "seq_len", "seq"}},
};

constexpr const char* kPlainLabels[] = {"model", "phase", "tenant", "pp_size", "tp_size"};
constexpr auto kTextLabels = std::span(kPlainLabels).first<3>();
constexpr auto kWholeLabels = std::span(kPlainLabels).last<2>();
constexpr const char* kCallFields[] = {"capturing", "contiguous", "deterministic", "device",
                                       "dtype",     "inference",  "layout",        "platform"};
constexpr std::string_view kLabel = "label.";

constexpr OperatorRow kOperators[] = {
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

// Whether every call has the field.
bool always_given(const op::Field& f, const std::vector<op::Param>& params) {
  for (uint32_t i = 0; i < f.count; ++i) {
    const op::Param& p = params[f.sources[i].arg];
    const bool plain = f.kind == op::Field::Kind::kCount || p.kind != op::Kind::kTensorList;
    if (!p.optional && plain) return true;
  }
  return false;
}

OpField integer_field(std::string name, FieldType type, const op::Field& field,
                      const std::vector<op::Param>& params) {
  OpField f{std::move(name), type, {}, {}};
  f.axis.field = field;
  f.axis.optional = !always_given(field, params);
  return f;
}

OpField flag_field(const char* name, uint32_t flag) {
  OpField f{name, FieldType::kSwitch, {}, {}};
  f.axis.kind = Axis::Kind::kFlag;
  f.axis.flag = flag;
  return f;
}

OpField layout_field(std::string name, FieldType type, uint8_t arg, uint8_t count) {
  OpField f{std::move(name), type, {}, {}};
  f.axis.kind = Axis::Kind::kLayout;
  f.axis.arg = arg;
  f.axis.count = count;
  f.axis.optional = true;
  if (type == FieldType::kWord) f.words = {"contiguous", "dense", "strided"};
  return f;
}

// The tensor whose dtype is the call's: inputs before outputs, required before optional.
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

OpFields::OpFields(const op::Program& program) : program_(program) {
  const std::vector<op::Param>& params = program.schema().params;
  for (const std::string& name : program.field_names()) {
    OpField f = integer_field(name, FieldType::kWhole, *program.field(name), params);
    if (f.axis.field.kind == op::Field::Kind::kScalar) {
      const op::Param& p = params[f.axis.field.sources[0].arg];
      if (p.kind == op::Kind::kBool) f.type = FieldType::kSwitch;
      if (p.kind == op::Kind::kEnum) f.type = FieldType::kWord, f.words = p.enumerators;
    }
    add(std::move(f));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const op::Param& p = params[i];
    if (p.is_tensor()) add_tensor(p, i);
    if (p.kind != op::Kind::kFloat && p.kind != op::Kind::kString) continue;
    const bool text = p.kind == op::Kind::kString;
    OpField f{p.name, text ? FieldType::kText : FieldType::kNumber, {}, {}};
    f.axis.kind = text ? Axis::Kind::kText : Axis::Kind::kNumber;
    f.axis.arg = static_cast<uint8_t>(i);
    f.axis.optional = p.optional;
    add(std::move(f));
  }
  add_call_fields();
}

void OpFields::add(OpField field) {
  std::string name = field.name;
  fields_.emplace(std::move(name), std::move(field));  // the first of a name stays
}

void OpFields::add_tensor(const op::Param& param, size_t index) {
  const auto arg = static_cast<uint8_t>(index);
  add(integer_field(param.name + ".dtype", FieldType::kDType,
                    op::Field::of(op::Field::Kind::kDType, index), program_.schema().params));
  add(layout_field(param.name + ".layout", FieldType::kWord, arg, 1));
  add(layout_field(param.name + ".contiguous", FieldType::kSwitch, arg, 1));
}

void OpFields::add_call_fields() {
  const std::vector<op::Param>& params = program_.schema().params;
  const auto count = static_cast<uint8_t>(params.size());
  if (const int lead = lead_tensor(params); lead >= 0) {
    add(integer_field("dtype", FieldType::kDType,
                      op::Field::of(op::Field::Kind::kDType, static_cast<size_t>(lead)), params));
    add(layout_field("layout", FieldType::kWord, 0, count));
    add(layout_field("contiguous", FieldType::kSwitch, 0, count));
  }
  for (const bool platform : {false, true}) {
    OpField f{platform ? "platform" : "device",
              platform ? FieldType::kPlatform : FieldType::kDevice,
              {},
              {}};
    f.axis.kind = Axis::Kind::kDevice;
    add(std::move(f));
  }
  add(flag_field("deterministic", YARD_CALL_DETERMINISTIC));
  add(flag_field("capturing", YARD_CALL_CAPTURING));
  add(flag_field("inference", YARD_CALL_INFERENCE));
}

OpField* OpFields::label(std::string_view name, bool whole) {
  OpField f{(whole ? "" : std::string(kLabel)) + std::string(name), FieldType::kText, {}, {}};
  if (const auto it = fields_.find(f.name); it != fields_.end()) return &it->second;
  f.type = whole ? FieldType::kWhole : FieldType::kText;
  f.axis.kind = whole ? Axis::Kind::kLabelInteger : Axis::Kind::kLabel;
  f.axis.label = name;
  f.axis.optional = true;
  std::string key = f.name;
  return &fields_.emplace(std::move(key), std::move(f)).first->second;
}

OpFields::Fields::const_iterator OpFields::stands_for(const FieldAlias& alias) const {
  auto it = fields_.end();
  for (const char* name : alias.means)
    if (name != nullptr && it == fields_.end()) it = fields_.find(std::string_view(name));
  return it;
}

const OpField* OpFields::find(std::string_view name) {
  if (const auto it = fields_.find(name); it != fields_.end()) return &it->second;
  for (const FieldAlias& a : kAliases)
    if (name == a.name)
      if (const auto it = stands_for(a); it != fields_.end()) return &it->second;
  if (base::contains(kWholeLabels, name)) return label(name, true);
  if (base::contains(kTextLabels, name)) return label(name, false);
  if (name.starts_with(kLabel) && name.size() > kLabel.size())
    return label(name.substr(kLabel.size()), false);
  return nullptr;
}

std::vector<std::string> OpFields::names() const {
  std::vector<std::string> to;
  for (const auto& [name, field] : fields_)
    if (!name.starts_with(kLabel)) to.push_back(name);
  const auto known = [&](const std::string& name) { return base::contains(to, name); };
  for (const FieldAlias& a : kAliases)
    if (!known(a.name) && stands_for(a) != fields_.end()) to.emplace_back(a.name);
  for (const char* name : kPlainLabels)
    if (!known(name)) to.emplace_back(name);
  return to;
}

std::span<const FieldAlias> field_aliases() noexcept { return kAliases; }
std::span<const char* const> plain_labels() noexcept { return kPlainLabels; }
std::span<const char* const> call_fields() noexcept { return kCallFields; }
std::span<const OperatorRow> operators() noexcept { return kOperators; }

bool has_operator(FieldType type, Operator op) noexcept {
  switch (op) {
    case Operator::kEq:
    case Operator::kNe:
    case Operator::kIn:
    case Operator::kNotIn: return true;
    case Operator::kMatch:
    case Operator::kRegex:
      return type != FieldType::kWhole && type != FieldType::kNumber && type != FieldType::kSwitch;
    default: return type == FieldType::kWhole || type == FieldType::kNumber;
  }
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
    case FieldType::kPlatform: return "a device's type as cpu or cuda";
  }
  return "a value";
}

std::string_view field_part(std::string_view key) noexcept {
  for (const OperatorRow& row : kOperators) {
    const std::string_view suffix = row.suffix;
    if (key.size() > suffix.size() && key.ends_with(suffix))
      return key.substr(0, key.size() - suffix.size());
  }
  return key;
}

std::string_view own_label(std::string_view key) noexcept {
  if (!key.starts_with(kLabel)) return {};
  return field_part(key).substr(kLabel.size());
}

SplitKey split_key(std::string_view key, OpFields& fields) {
  const bool label = key.starts_with(kLabel);
  if (!label)
    if (const OpField* f = fields.find(key)) return {f, Operator::kEq};
  for (const OperatorRow& row : kOperators) {
    const std::string_view suffix = row.suffix;
    if (key.size() <= suffix.size() || !key.ends_with(suffix)) continue;
    if (const OpField* f = fields.find(key.substr(0, key.size() - suffix.size())))
      return {f, row.op};
  }
  return {label ? fields.find(key) : nullptr, Operator::kEq};
}

}  // namespace yard::policy
