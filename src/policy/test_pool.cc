// SPDX-License-Identifier: Apache-2.0
// Conditions checked against the type of their field and turned into tests.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/lazy.h"
#include "base/text.h"
#include "base/yaml.h"
#include "policy/rule_compiler.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

// Beside our own names, those that numpy and torch use.
constexpr const char* kLongNames[] = {
    "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2",
    "int8",    "int16",   "int32",    "int64",   "uint8",         "uint16",
    "uint32",  "uint64",  "boolean",  "int4",    "uint4"};
constexpr int kMostDTypes = 64;

bool bad_value(const ConfigValue& v, const OpField& field, Wrong& wrong,
               std::string_view hint = {}) {
  wrong.found = "found " + shown(v.text, v.quoted);
  wrong.right = "expected " + type_text(field);
  if (!hint.empty()) wrong.right += fmt::format("; did you mean '{}'?", hint);
  return false;
}

bool is_negative(Operator op) { return op == Operator::kNe || op == Operator::kNotIn; }
bool is_pattern(Operator op) { return op == Operator::kMatch || op == Operator::kRegex; }

using ValueNames = std::vector<std::vector<std::string>>;

constinit base::Lazy<const ValueNames> g_names_of_dtypes([]() -> const ValueNames* {
  ValueNames names(kMostDTypes);
  for (int i = 1; i < kMostDTypes; ++i)
    if (const std::string name = to_string(static_cast<DType>(i)); name != "?")
      names[static_cast<size_t>(i)].push_back(name);
  for (const char* name : kLongNames)
    if (const auto t = parse_dtype(name)) names[static_cast<size_t>(*t)].emplace_back(name);
  return new ValueNames(std::move(names));
});

// The names a closed field's value goes by.
ValueNames names_of_values(const OpField& field) {
  if (field.type != FieldType::kWord) return g_names_of_dtypes.get();
  ValueNames names;
  for (const std::string& word : field.words) names.push_back({word});
  return names;
}

}  // namespace

bool TestPool::add(const OpField& field, Operator op, const Condition& c,
                   std::vector<uint32_t>& literals, Wrong& wrong) {
  Draft draft;
  if (!make(field, op, c, draft, wrong)) return false;
  const bool negated = draft.negated;
  const uint32_t test = test_of(axis_of(field), std::move(draft));
  literals.push_back(2 * test + (negated ? 1 : 0));
  return true;
}

bool TestPool::make(const OpField& field, Operator op, const Condition& c, Draft& to,
                    Wrong& wrong) {
  if (!has_operator(field.type, op)) {
    std::vector<std::string> right{field.name};
    for (const OperatorRow& row : operators())
      if (has_operator(field.type, row.op)) right.push_back(field.name + row.suffix);
    wrong.found = fmt::format("{} has no such operator: it is {}", field.name, type_text(field));
    wrong.right = "expected " + base::one_of(right);
    return false;
  }
  const bool many =
      op == Operator::kEq || op == Operator::kIn || op == Operator::kNotIn || is_pattern(op);
  if (c.list && !many) {
    wrong.found = "found a list";
    wrong.right = op == Operator::kNe ? fmt::format("expected one value, or {}_not_in", field.name)
                                      : "expected one value";
    return false;
  }
  to.negated = is_negative(op);
  switch (field.type) {
    case FieldType::kWhole: return make_whole(op, c, field, to, wrong);
    case FieldType::kNumber: return make_number(op, c, field, to, wrong);
    case FieldType::kSwitch: return make_switch(c, field, to, wrong);
    case FieldType::kWord:
    case FieldType::kDType: return make_closed(op, c, field, to, wrong);
    default: break;
  }
  if (is_pattern(op)) return make_patterns(op, c, field, to, wrong);
  if (field.type != FieldType::kText) return make_device(c, field, to, wrong);
  to.test.kind = Test::Kind::kTextOneOf;
  for (const ConfigValue& v : c.values) to.texts.push_back(v.text);
  return true;
}

bool TestPool::make_whole(Operator op, const Condition& c, const OpField& field, Draft& to,
                          Wrong& wrong) {
  for (const ConfigValue& v : c.values) {
    const auto n = base::yaml_whole_number(v.text);
    if (!n || v.quoted) return bad_value(v, field, wrong);
    to.integers.push_back(*n);
  }
  const int64_t a = to.integers[0];
  const bool above = op == Operator::kGt || op == Operator::kLe;
  switch (op) {
    case Operator::kGt:
    case Operator::kGe:
    case Operator::kLt:
    case Operator::kLe:
      to.negated = op == Operator::kLt || op == Operator::kLe;
      to.integers.clear();
      if (above && a == INT64_MAX) return true;  // one of none: never
      to.test.kind = Test::Kind::kAtLeast;
      to.test.a = above ? a + 1 : a;
      return true;
    default: to.test.kind = Test::Kind::kOneOf; return true;
  }
}

bool TestPool::make_number(Operator op, const Condition& c, const OpField& field, Draft& to,
                           Wrong& wrong) {
  for (const ConfigValue& v : c.values) {
    const auto n = base::yaml_number(v.text);
    if (!n || v.quoted || *n != *n) return bad_value(v, field, wrong);
    to.numbers.push_back(*n == 0 ? 0.0 : *n);  // one zero
  }
  to.test.f = to.numbers[0];
  switch (op) {
    case Operator::kGt: to.test.kind = Test::Kind::kNumberAbove; break;
    case Operator::kGe: to.test.kind = Test::Kind::kNumberAtLeast; break;
    case Operator::kLt: to.test.kind = Test::Kind::kNumberBelow; break;
    case Operator::kLe: to.test.kind = Test::Kind::kNumberAtMost; break;
    default:
      to.test.kind = Test::Kind::kNumberOneOf;
      to.test.f = 0;
      return true;
  }
  to.numbers.clear();
  return true;
}

bool TestPool::make_switch(const Condition& c, const OpField& field, Draft& to, Wrong& wrong) {
  bool yes = false, no = false;
  for (const ConfigValue& v : c.values) {
    const auto on = read_switch(v.text);
    if (!on.ok() || v.quoted) return bad_value(v, field, wrong);
    (*on ? yes : no) = true;
  }
  const bool integer = field.axis.kind == Axis::Kind::kInteger;
  to.test.kind = integer ? Test::Kind::kOneOf : Test::Kind::kMask;
  if (yes && no) {  // whatever it is
    to.test.a = integer ? 0 : ~int64_t{0};
    if (integer) to.integers = {0, 1};
    return true;
  }
  if (no) to.negated = !to.negated;
  if (integer)
    to.integers = {1};
  else  // bit 0 of a layout is "contiguous"; bit 1 of a flag is "set"
    to.test.a = field.axis.kind == Axis::Kind::kLayout ? 1 : 2;
  return true;
}

bool TestPool::make_closed(Operator op, const Condition& c, const OpField& field, Draft& to,
                           Wrong& wrong) {
  std::vector<int64_t>& values = to.integers;
  // Most name their dtypes as we do; then nothing needs to be looked through.
  for (const ConfigValue& v : c.values) {
    const auto t =
        field.type == FieldType::kDType && !is_pattern(op) ? parse_dtype(v.text) : std::nullopt;
    if (t) values.push_back(static_cast<int64_t>(*t));
  }
  if (values.size() == c.values.size()) {
    to.test.kind = Test::Kind::kMask;
    for (const int64_t v : values) to.test.a |= int64_t{1} << v;
    values.clear();
    return true;
  }
  values.clear();
  const ValueNames names = names_of_values(field);
  Draft patterns;
  if (is_pattern(op) && !make_patterns(op, c, field, patterns, wrong)) return false;
  for (size_t i = 0; is_pattern(op) && i < names.size(); ++i) {
    const auto hit = [&](const std::string& name) {
      for (const std::string& glob : patterns.texts)
        if (op == Operator::kMatch && glob_matches(glob, name)) return true;
      return std::any_of(patterns.regexes.begin(), patterns.regexes.end(),
                         [&](const Regex& r) { return r.matches(name); });
    };
    if (std::any_of(names[i].begin(), names[i].end(), hit))
      values.push_back(static_cast<int64_t>(i));
  }
  if (is_pattern(op) && values.empty()) {
    wrong.found = "found " + shown(c.values[0].text, true) + ", which matches nothing";
    wrong.right = "expected " + type_text(field);
    return false;
  }
  for (size_t k = 0; !is_pattern(op) && k < c.values.size(); ++k) {
    const ConfigValue& v = c.values[k];
    std::optional<int64_t> value;
    std::vector<std::string> known;
    for (size_t i = 0; i < names.size(); ++i)
      for (const std::string& name : names[i])
        if (known.push_back(name), name == v.text) value = static_cast<int64_t>(i);
    if (!value && field.type == FieldType::kDType)
      if (const auto t = parse_dtype(v.text)) value = static_cast<int64_t>(*t);
    if (!value) return bad_value(v, field, wrong, base::closest(base::lower(v.text), known));
    values.push_back(*value);
  }
  to.test.kind = Test::Kind::kOneOf;
  if (field.axis.kind == Axis::Kind::kInteger) return true;
  to.test.kind = Test::Kind::kMask;
  for (const int64_t v : values) to.test.a |= int64_t{1} << v;
  values.clear();
  return true;
}

bool TestPool::make_device(const Condition& c, const OpField& field, Draft& to, Wrong& wrong) {
  to.test.kind = Test::Kind::kDeviceOneOf;
  for (const ConfigValue& v : c.values) {
    const auto d = parse_device(v.text);
    const bool has_index = v.text.find(':') != std::string::npos;
    if (!d || d->index > 0xfffe || (field.type == FieldType::kPlatform && has_index))
      return bad_value(v, field, wrong);
    to.integers.push_back((int64_t{d->type} << 16) | (has_index ? d->index + 1 : 0));
  }
  return true;
}

bool TestPool::make_patterns(Operator op, const Condition& c, const OpField& field, Draft& to,
                             Wrong& wrong) {
  to.test.platform = field.type == FieldType::kPlatform;
  to.test.kind = op == Operator::kMatch ? Test::Kind::kGlob : Test::Kind::kRegex;
  for (const ConfigValue& v : c.values) {
    to.texts.push_back(v.text);
    if (op == Operator::kMatch) continue;
    auto regex = Regex::compile(v.text);
    if (!regex.ok()) {
      wrong.found = fmt::format("found {}: {}", shown(v.text, true), regex.status().message());
      wrong.right = "expected a regular expression as (pre|de)fill.*";
      return false;
    }
    to.regexes.push_back(*std::move(regex));
  }
  return true;
}

uint16_t TestPool::axis_of(const OpField& field) {
  const auto [it, is_new] = axes_.emplace(field.axis_id, static_cast<uint16_t>(to_.axes_.size()));
  if (!is_new) return it->second;
  const Axis& axis = to_.axes_.emplace_back(field.axis);
  const bool scalar =
      axis.kind == Axis::Kind::kNumber || axis.kind == Axis::Kind::kText ||
      (axis.kind == Axis::Kind::kInteger && axis.field.kind == op::Field::Kind::kScalar);
  to_.reads_scalars_ |= scalar;
  to_.reads_labels_ |= axis.kind == Axis::Kind::kLabel || axis.kind == Axis::Kind::kLabelInteger;
  return it->second;
}

// The number of the test, which may be there already.
uint32_t TestPool::test_of(uint16_t axis, Draft d) {
  const auto sort = [](auto& v) {
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
  };
  sort(d.integers);
  sort(d.numbers);
  if (d.regexes.empty()) sort(d.texts);
  d.test.axis = axis;
  key_.clear();
  const auto put = [&](const auto& v) { key_.append(reinterpret_cast<const char*>(&v), sizeof v); };
  put(axis);
  put(d.test.kind);
  put(d.test.platform);
  put(d.test.a);
  put(d.test.f);
  for (const int64_t v : d.integers) put(v);
  for (const double v : d.numbers) put(v);
  for (const std::string& s : d.texts) put(s.size()), key_ += s;
  const auto [it, is_new] = tests_.emplace(key_, static_cast<uint32_t>(to_.tests_.size()));
  if (!is_new) return it->second;
  const auto append = [&](auto& to, auto& from) {
    if (from.empty()) return;
    d.test.first = static_cast<uint32_t>(to.size());
    d.test.count = static_cast<uint32_t>(from.size());
    for (auto& v : from) to.push_back(std::move(v));
  };
  append(to_.integers_, d.integers);
  append(to_.numbers_, d.numbers);
  if (d.regexes.empty()) append(to_.texts_, d.texts);
  append(to_.regexes_, d.regexes);
  to_.tests_.push_back(d.test);
  return it->second;
}

void TestPool::tell_apart(Axis& axis, uint32_t index) const {
  const Test& t = to_.tests_[index];
  const uint32_t end = t.first + t.count;
  switch (t.kind) {
    case Test::Kind::kAtLeast: axis.cuts.push_back(t.a); break;
    case Test::Kind::kOneOf:
      for (uint32_t i = t.first; i < end; ++i) {
        axis.cuts.push_back(to_.integers_[i]);
        if (to_.integers_[i] != INT64_MAX) axis.cuts.push_back(to_.integers_[i] + 1);
      }
      break;
    case Test::Kind::kNumberAtLeast:
    case Test::Kind::kNumberAbove:
    case Test::Kind::kNumberAtMost:
    case Test::Kind::kNumberBelow: axis.marks.push_back(t.f); break;
    case Test::Kind::kNumberOneOf:
      for (uint32_t i = t.first; i < end; ++i) axis.marks.push_back(to_.numbers_[i]);
      break;
    case Test::Kind::kTextOneOf:
      for (uint32_t i = t.first; i < end; ++i) axis.words.push_back(to_.texts_[i]);
      break;
    case Test::Kind::kGlob:
    case Test::Kind::kRegex:
      if (axis.kind != Axis::Kind::kDevice) axis.patterns.push_back(index);
      break;
    case Test::Kind::kMask:
    case Test::Kind::kDeviceOneOf: break;
  }
}

// Tests that a look-up among sorted numbers answers go to the front, sorted; literals follow.
void TestPool::make_runs() {
  const auto in_run = [&](const Test& t) {
    return t.kind == Test::Kind::kAtLeast || (t.kind == Test::Kind::kOneOf && t.count == 1);
  };
  const auto number = [&](const Test& t) {
    return t.kind == Test::Kind::kAtLeast ? t.a : to_.integers_[t.first];
  };
  std::vector<uint32_t> order(to_.tests_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Test &x = to_.tests_[a], &y = to_.tests_[b];
    if (in_run(x) != in_run(y)) return in_run(x);
    if (!in_run(x)) return a < b;
    return std::tuple(x.axis, x.kind, number(x)) < std::tuple(y.axis, y.kind, number(y));
  });
  std::vector<uint32_t> moved(order.size());
  std::vector<Test> tests;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Test& t = to_.tests_[order[i]];
    moved[order[i]] = i;
    tests.push_back(t);
    if (!in_run(t)) continue;
    to_.run_numbers_.push_back(number(t));
    if (to_.runs_.empty() || to_.runs_.back().axis != t.axis || to_.runs_.back().kind != t.kind)
      to_.runs_.push_back({t.axis, t.kind, i, 0});
    ++to_.runs_.back().count;
  }
  to_.tests_ = std::move(tests);
  for (uint32_t& l : to_.literals_) l = 2 * moved[l / 2] + l % 2;
}

void TestPool::finish() {
  make_runs();
  for (uint32_t i = 0; i < to_.tests_.size(); ++i) tell_apart(to_.axes_[to_.tests_[i].axis], i);
  uint32_t used = 0;
  const auto put = [&](uint32_t bits) {
    if (bits == 0) return;
    if (to_.key_words_ == 0 || used + bits > 64) ++to_.key_words_, used = 0;
    used += bits;
  };
  for (Axis& axis : to_.axes_) {
    const auto sort = [](auto& v) {
      std::sort(v.begin(), v.end());
      v.erase(std::unique(v.begin(), v.end()), v.end());
    };
    sort(axis.cuts);
    sort(axis.marks);
    sort(axis.words);
    axis.bits = OpRules::bits_of(axis);
    if (axis.bits == 0) continue;
    const auto patterns = static_cast<uint32_t>(axis.patterns.size());
    put(axis.bits - patterns);
    for (uint32_t i = 0; i < patterns; ++i) put(1);
  }
}

}  // namespace yard::policy
