// SPDX-License-Identifier: Apache-2.0
// Evaluating conditions, and checking them against the type of their field when they are compiled.
#include "policy/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/lists.h"
#include "base/text.h"
#include "base/yaml.h"
#include "policy/words.h"

namespace yard::policy {

bool Conditions::in_run(const Test& test) noexcept {
  return test.kind == Test::Kind::kInteger && test.integer.kind == op::IntegerTest::Kind::kRange &&
         (test.integer.b == INT64_MAX || test.integer.a == test.integer.b);
}

namespace {

bool text_holds(Test::Kind kind, const Operands& of, std::string_view text) {
  if (kind == Test::Kind::kRegex)
    return std::any_of(of.regexes.begin(), of.regexes.end(),
                       [&](const Regex& r) { return r.matches(text); });
  if (kind == Test::Kind::kGlob)
    return std::any_of(of.texts.begin(), of.texts.end(),
                       [&](const std::string& glob) { return glob_matches(glob, text); });
  return base::contains(of.texts, text);
}

// Of a device as Axis::read() has it.
bool device_matches(const Test& t, int64_t v) {
  const std::string type = to_string(Device{static_cast<int32_t>(v >> 16), 0});
  return text_holds(t.kind, *t.operands, type) ||
         (!t.platform &&
          text_holds(t.kind, *t.operands, fmt::format("{}:{}", type, (v & 0xffff) - 1)));
}

}  // namespace

bool Conditions::holds(const Test& t, const AxisValue& v) const {
  const auto lists = [&](int64_t i) {
    return std::binary_search(t.operands->integers.begin(), t.operands->integers.end(), i);
  };
  switch (t.kind) {
    case Test::Kind::kInteger: return t.integer.holds(v.i);
    case Test::Kind::kOneOf: return lists(v.i);
    case Test::Kind::kDeviceOneOf: return lists(v.i) || lists(v.i & ~int64_t{0xffff});
    default: break;
  }
  if (axes_[t.axis].kind == Axis::Kind::kDevice) return device_matches(t, v.i);
  return text_holds(t.kind, *t.operands, v.s);
}

void Conditions::answer(const Run& run, const AxisValue& v, uint8_t* truth) const {
  const int64_t* begin = run_numbers_.data() + run.first;
  const int64_t* end = begin + run.count;
  const auto fill = [&](size_t from, size_t to, uint8_t yes, uint8_t no) {
    for (size_t i = from; i < to; ++i) truth[2 * i] = yes, truth[2 * i + 1] = no;
  };
  if (!v.there) return fill(0, run.count, 0, 0);
  if (!run.equal) {
    const auto below = static_cast<size_t>(std::upper_bound(begin, end, v.i) - begin);
    fill(0, below, 1, 0);
    fill(below, run.count, 0, 1);
    return;
  }
  fill(0, run.count, 0, 1);
  const int64_t* at = std::lower_bound(begin, end, v.i);
  if (at != end && *at == v.i)
    fill(static_cast<size_t>(at - begin), static_cast<size_t>(at - begin) + 1, 1, 0);
}

void Conditions::evaluate(const CallView& call, std::vector<uint8_t>& to) const {
  // Most ops have a handful of axes; each is read once.
  constexpr size_t kFew = 16;
  AxisValue few[kFew];
  std::vector<AxisValue> many;
  if (axes_.size() > kFew) many.resize(axes_.size());
  AxisValue* values = axes_.size() > kFew ? many.data() : few;
  for (size_t i = 0; i < axes_.size(); ++i) values[i] = axes_[i].read(call);
  evaluate(values, to);
}

void Conditions::evaluate(const AxisValue* values, std::vector<uint8_t>& to) const {
  to.resize(2 * tests_.size());
  uint8_t* truth = to.data();
  for (const Run& run : runs_) answer(run, values[run.axis], truth + 2 * size_t{run.first});
  for (size_t i = run_numbers_.size(); i < tests_.size(); ++i) {
    const AxisValue& v = values[tests_[i].axis];
    const bool yes = v.there && holds(tests_[i], v);
    truth[2 * i] = yes ? 1 : 0;
    truth[2 * i + 1] = v.there && !yes ? 1 : 0;
  }
}

void Conditions::add_cuts(const Test& t, std::vector<int64_t>& to) {
  if (t.kind == Test::Kind::kInteger) t.integer.add_cuts(to);
  if (t.kind == Test::Kind::kOneOf)
    for (const int64_t i : t.operands->integers) op::IntegerTest::equals(i).add_cuts(to);
}

void Conditions::fold(const CallView& call, uint64_t* words) const {
  std::fill_n(words, key_words_, 0);
  for (const Axis& axis : axes_) {
    if (axis.bits == 0) continue;
    const AxisValue v = axis.read(call);
    words[axis.first_bit / 64] |= axis.class_of(v) << axis.first_bit % 64;
    auto bit = axis.first_bit + axis.bits - static_cast<uint32_t>(axis.patterns.size());
    for (const uint32_t t : axis.patterns) {
      words[bit / 64] |= uint64_t{v.there && holds(tests_[t], v)} << bit % 64;
      ++bit;
    }
  }
}

// ---- Compiling ----
namespace {

// The names of numpy and torch, which are accepted beside the usual ones.
constexpr const char* kLongNames[] = {
    "float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2",
    "int8",    "int16",   "int32",    "int64",   "uint8",         "uint16",
    "uint32",  "uint64",  "boolean",  "int4",    "uint4"};
constexpr int kMostDTypes = 64;

bool is_pattern(Operator op) { return op == Operator::kMatch || op == Operator::kRegex; }

using ValueNames = std::vector<std::vector<std::string>>;

ValueNames names_of_dtypes() {
  ValueNames names(kMostDTypes);
  for (int i = 1; i < kMostDTypes; ++i)
    if (const std::string name = to_string(static_cast<DType>(i)); name != "?")
      names[static_cast<size_t>(i)].push_back(name);
  for (const char* name : kLongNames)
    if (const auto t = parse_dtype(name)) names[static_cast<size_t>(*t)].emplace_back(name);
  return names;
}

// The names of each value of a field with a closed list of them.
ValueNames names_of_values(const OpField& field) {
  if (field.type == FieldType::kDType) return names_of_dtypes();
  ValueNames names;
  for (const std::string& word : field.words) names.push_back({word});
  return names;
}

template <class T>
void sort_unique(std::vector<T>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

}  // namespace

// Makes the test of one condition, with its operands.
class ConditionCompiler::Draft {
 public:
  Draft(const OpField& field, Operator op, const Condition& c, Wrong& wrong)
      : negated(op == Operator::kNe || op == Operator::kNotIn),
        field_(field),
        op_(op),
        c_(c),
        wrong_(wrong) {}

  // False and the reason in `wrong` if the condition is invalid.
  bool make() {
    if (!has_operator(field_.type, op_)) return no_operator();
    const bool many =
        op_ == Operator::kEq || op_ == Operator::kIn || op_ == Operator::kNotIn || is_pattern(op_);
    if (c_.list && !many) {
      wrong_.found = "found a list";
      wrong_.right = op_ == Operator::kNe
                         ? fmt::format("expected one value, or {}_not_in", field_.name)
                         : "expected one value";
      return false;
    }
    switch (field_.type) {
      case FieldType::kWhole:
      case FieldType::kNumber: return numbers();
      case FieldType::kSwitch: return on_or_off();
      case FieldType::kWord:
      case FieldType::kDType: return closed();
      default: break;
    }
    if (is_pattern(op_)) return patterns();
    if (field_.type != FieldType::kText) return device();
    test.kind = Test::Kind::kTextOneOf;
    for (const ConfigValue& v : c_.values) of.texts.push_back(v.text);
    return true;
  }

  Test test;
  Operands of;
  bool negated;

 private:
  bool no_operator() {
    std::vector<std::string> right{field_.name};
    for (const OperatorRow& row : operators())
      if (has_operator(field_.type, row.op)) right.push_back(field_.name + row.suffix);
    wrong_.found = fmt::format("{} has no such operator: it is {}", field_.name, type_text(field_));
    wrong_.right = "expected " + base::one_of(right);
    return false;
  }

  bool bad_value(const ConfigValue& v, std::string_view hint = {}) {
    wrong_.found = "found " + shown(v.text, v.quoted);
    wrong_.right = "expected " + type_text(field_);
    if (!hint.empty()) wrong_.right += fmt::format("; did you mean '{}'?", hint);
    return false;
  }

  void set(op::IntegerTest to) { test.kind = Test::Kind::kInteger, test.integer = to; }

  // Whole numbers, or others as ordered() has them.
  bool numbers() {
    const bool whole = field_.type == FieldType::kWhole;
    for (const ConfigValue& v : c_.values) {
      const auto n = base::yaml_whole_number(v.text);
      const auto x = base::yaml_number(v.text);
      if (v.quoted || !(whole ? n.has_value() : x.has_value())) return bad_value(v);
      if (!whole && !std::isfinite(*x)) {
        wrong_ = {"found " + v.text, "expected a finite number"};
        return false;
      }
      of.integers.push_back(whole ? *n : ordered(*x));
    }
    const bool above = op_ == Operator::kGt || op_ == Operator::kGe;
    if (!above && op_ != Operator::kLt && op_ != Operator::kLe) return true;  // one of them
    // The limit is the least that is above. No threshold holds for NaN, which comes after all numbers.
    const bool next = op_ == Operator::kGt || op_ == Operator::kLe;
    const int64_t a = of.integers[0], least = ordered(-HUGE_VAL), most = ordered(HUGE_VAL);
    of.integers.clear();
    negated = whole && !above;
    if (next && a == INT64_MAX) return true;  // one of none: never
    const int64_t limit = next ? a + 1 : a;
    set(whole   ? op::IntegerTest::at_least(limit)
        : above ? op::IntegerTest::range(limit, most)
                : op::IntegerTest::range(least, limit - 1));
    return true;
  }

  bool on_or_off() {
    bool seen[2] = {};
    for (const ConfigValue& v : c_.values) {
      const auto on = read_switch(v.text);
      if (!on.ok() || v.quoted) return bad_value(v);
      seen[*on] = true;
    }
    const bool both = seen[0] && seen[1];
    if (!seen[1]) negated = !negated;
    if (field_.axis.kind == Axis::Kind::kInteger)
      of.integers = both ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1};
    else  // bit 0 of a layout is "contiguous"; bit 1 of a flag is "set"
      set(op::IntegerTest::one_of_mask(both ? ~uint64_t{0} : on_mask()));
    return true;
  }
  uint64_t on_mask() const { return field_.axis.kind == Axis::Kind::kLayout ? 1 : 2; }

  std::optional<int64_t> value_of(const std::string& name) const {
    if (field_.type == FieldType::kDType) {
      const auto t = parse_dtype(name);
      return t ? std::optional(static_cast<int64_t>(*t)) : std::nullopt;
    }
    const auto it = std::find(field_.words.begin(), field_.words.end(), name);
    return it != field_.words.end() ? std::optional(it - field_.words.begin()) : std::nullopt;
  }

  bool closed() {
    if (is_pattern(op_)) {
      if (!matching_values()) return false;
    } else {
      for (const ConfigValue& v : c_.values) {
        const auto value = value_of(v.text);
        if (!value) {
          std::vector<std::string> known;
          for (const auto& names : names_of_values(field_))
            known.insert(known.end(), names.begin(), names.end());
          return bad_value(v, base::closest(base::lower(v.text), known));
        }
        of.integers.push_back(*value);
      }
    }
    test.kind = Test::Kind::kOneOf;
    // Enumerators may be more than a mask has bits.
    if (field_.type == FieldType::kWord && field_.axis.kind == Axis::Kind::kInteger) return true;
    uint64_t mask = 0;
    for (const int64_t v : of.integers) mask |= uint64_t{1} << v;
    of.integers.clear();
    set(op::IntegerTest::one_of_mask(mask));
    return true;
  }

  // The values of which a name matches one of the patterns.
  bool matching_values() {
    if (!patterns()) return false;
    const ValueNames names = names_of_values(field_);
    for (size_t i = 0; i < names.size(); ++i)
      if (std::any_of(names[i].begin(), names[i].end(),
                      [&](const std::string& name) { return text_holds(test.kind, of, name); }))
        of.integers.push_back(static_cast<int64_t>(i));
    of.texts.clear();
    of.regexes.clear();
    if (!of.integers.empty()) return true;
    wrong_.found = "found " + shown(c_.values[0].text, true) + ", which matches nothing";
    wrong_.right = "expected " + type_text(field_);
    return false;
  }

  bool device() {
    test.kind = Test::Kind::kDeviceOneOf;
    for (const ConfigValue& v : c_.values) {
      const auto d = parse_device(v.text);
      const bool has_index = v.text.find(':') != std::string::npos;
      if (!d || d->index > 0xfffe || (field_.type == FieldType::kPlatform && has_index))
        return bad_value(v);
      of.integers.push_back((int64_t{d->type} << 16) | (has_index ? d->index + 1 : 0));
    }
    return true;
  }

  bool patterns() {
    test.platform = field_.type == FieldType::kPlatform;
    test.kind = op_ == Operator::kMatch ? Test::Kind::kGlob : Test::Kind::kRegex;
    for (const ConfigValue& v : c_.values) {
      of.texts.push_back(v.text);
      if (op_ == Operator::kMatch) continue;
      auto regex = Regex::compile(v.text);
      if (!regex.ok()) {
        wrong_.found = fmt::format("found {}: {}", shown(v.text, true), regex.status().message());
        wrong_.right = "expected a regular expression as (pre|de)fill.*";
        return false;
      }
      of.regexes.push_back(*std::move(regex));
    }
    return true;
  }

  const OpField& field_;
  const Operator op_;
  const Condition& c_;
  Wrong& wrong_;
};

bool ConditionCompiler::add(const OpField& field, Operator op, const Condition& c, Wrong& wrong) {
  Draft draft(field, op, c, wrong);
  if (!draft.make()) return false;
  to_.literals_.push_back(2 * test_of(axis_of(field), draft) + (draft.negated ? 1 : 0));
  return true;
}

Conjunction ConditionCompiler::end() {
  const size_t begin = std::exchange(begin_, to_.literals_.size());
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(begin_ - begin)};
}

uint16_t ConditionCompiler::axis_of(const OpField& field) {
  const auto known = std::find_if(to_.axes_.begin(), to_.axes_.end(),
                                  [&](const Axis& a) { return a.reads_same(field.axis); });
  const auto index = static_cast<uint16_t>(known - to_.axes_.begin());
  if (known != to_.axes_.end()) return index;
  const Axis& axis = to_.axes_.emplace_back(field.axis);
  const bool scalar =
      axis.kind == Axis::Kind::kNumber || axis.kind == Axis::Kind::kText ||
      (axis.kind == Axis::Kind::kInteger && axis.field.kind == op::Field::Kind::kScalar);
  to_.reads_scalars_ |= scalar;
  to_.reads_labels_ |= axis.kind == Axis::Kind::kLabel || axis.kind == Axis::Kind::kLabelInteger;
  return index;
}

// The index of the test; equal ones share it.
uint32_t ConditionCompiler::test_of(uint16_t axis, Draft& d) {
  Operands& of = d.of;
  sort_unique(of.integers);
  if (of.regexes.empty()) sort_unique(of.texts);
  if (d.test.kind == Test::Kind::kOneOf && of.integers.size() == 1) {
    d.test.kind = Test::Kind::kInteger;
    d.test.integer = op::IntegerTest::equals(of.integers[0]);
    of.integers.clear();
  }
  d.test.axis = axis;
  const op::IntegerTest& i = d.test.integer;
  const auto [it, is_new] = tests_.emplace(
      TestKey(axis, d.test.kind, d.test.platform, i.kind, i.a, i.b, of.integers, of.texts),
      static_cast<uint32_t>(to_.tests_.size()));
  if (!is_new) return it->second;
  if (d.test.kind != Test::Kind::kInteger)
    d.test.operands = std::make_shared<const Operands>(std::move(of));
  to_.tests_.push_back(d.test);
  return it->second;
}

// Tests that a search among sorted numbers answers go to the front, sorted; literals follow.
void ConditionCompiler::make_runs() {
  const auto rank = [](const Test& t) {
    return std::tuple(t.axis, t.integer.a == t.integer.b, t.integer.a);
  };
  std::vector<uint32_t> order(to_.tests_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Test &x = to_.tests_[a], &y = to_.tests_[b];
    const bool in_run = Conditions::in_run(x);
    if (in_run != Conditions::in_run(y)) return in_run;
    return in_run ? rank(x) < rank(y) : a < b;
  });
  std::vector<uint32_t> moved(order.size());
  std::vector<Test> tests;
  for (uint32_t i = 0; i < order.size(); ++i) {
    const Test& t = to_.tests_[order[i]];
    moved[order[i]] = i;
    tests.push_back(t);
    if (!Conditions::in_run(t)) continue;
    const bool equal = t.integer.a == t.integer.b;
    to_.run_numbers_.push_back(t.integer.a);
    if (to_.runs_.empty() || to_.runs_.back().axis != t.axis || to_.runs_.back().equal != equal)
      to_.runs_.push_back({t.axis, equal, i, 0});
    ++to_.runs_.back().count;
  }
  to_.tests_ = std::move(tests);
  for (uint32_t& l : to_.literals_) l = 2 * moved[l / 2] + l % 2;
}

void ConditionCompiler::finish() {
  make_runs();
  for (uint32_t i = 0; i < to_.tests_.size(); ++i) {
    const Test& t = to_.tests_[i];
    Axis& axis = to_.axes_[t.axis];
    Conditions::add_cuts(t, axis.cuts);
    if (t.kind == Test::Kind::kTextOneOf)
      axis.words.insert(axis.words.end(), t.operands->texts.begin(), t.operands->texts.end());
    if (t.is_pattern() && axis.kind != Axis::Kind::kDevice) axis.patterns.push_back(i);
  }
  uint32_t next = 0;
  for (Axis& axis : to_.axes_) {
    sort_unique(axis.cuts);
    sort_unique(axis.words);
    const uint32_t bits = axis.class_bits();
    if (next % 64 + bits > 64) next += 64 - next % 64;  // no class crosses a word
    axis.first_bit = next;
    axis.bits = bits + static_cast<uint32_t>(axis.patterns.size());
    next += axis.bits;
  }
  to_.key_words_ = (next + 63) / 64;
}

}  // namespace yard::policy
