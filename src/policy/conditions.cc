// SPDX-License-Identifier: Apache-2.0
// Evaluates conditions, and checks them against the type of their field when they are compiled.
#include "policy/conditions.h"

#include <fmt/format.h>

#include <tuple>

#include "base/lists.h"
#include "base/yaml.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

bool in_run(const Test& t) noexcept {
  if (t.kind == Test::Kind::kTextOneOf) return t.texts.size() == 1;
  return t.kind == Test::Kind::kInteger && t.integer.kind == op::IntegerTest::Kind::kRange &&
         (t.integer.b == INT64_MAX || t.integer.a == t.integer.b);
}

bool is_pattern(Operator op) { return op == Operator::kMatch || op == Operator::kRegex; }

// Returns the names of a field's closed list of values. Dtypes also have other projects' names.
std::vector<std::pair<std::string, int64_t>> named_values(const OpField& field) {
  std::vector<std::pair<std::string, int64_t>> to;
  for (const std::string& word : field.words) to.emplace_back(word, to.size());
  if (field.type != FieldType::kDType) return to;
  constexpr int kMostDTypes = 64;
  for (int i = 1; i < kMostDTypes; ++i)
    if (const std::string name = to_string(static_cast<DType>(i)); name != "?")
      to.emplace_back(name, i);
  for (const char* name : {"float32", "float16", "bfloat16", "float64", "float8_e4m3fn",
                           "float8_e5m2", "int8", "int16", "int32", "int64", "uint8", "uint16",
                           "uint32", "uint64", "boolean", "int4", "uint4"})
    if (const auto t = parse_dtype(name)) to.emplace_back(name, static_cast<int64_t>(*t));
  return to;
}

template <class T>
void sort_unique(std::vector<T>& v) {
  std::ranges::sort(v);
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

struct TestMaker {
  const OpField& field;
  const Operator comparison;
  const Condition& condition;
  Wrong& wrong;
  Test test = {};
  bool negated = comparison == Operator::kNe || comparison == Operator::kNotIn;

  // Returns false and sets `wrong` if the condition is invalid.
  bool make() {
    if (!has_operator(field.type, comparison)) return no_operator();
    const bool many = comparison == Operator::kEq || comparison == Operator::kIn ||
                      comparison == Operator::kNotIn || is_pattern(comparison);
    if (condition.list && !many)
      return bad("found a list", comparison == Operator::kNe
                                     ? "one value, or " + field.name + "_not_in"
                                     : "one value");
    switch (field.type) {
      case FieldType::kWhole:
      case FieldType::kNumber: return numbers();
      case FieldType::kSwitch: return on_or_off();
      case FieldType::kWord:
      case FieldType::kDType: return closed();
      default: break;
    }
    test.of = field.type;
    if (is_pattern(comparison)) return patterns();
    if (field.type != FieldType::kText) return device();
    test.kind = Test::Kind::kTextOneOf;
    for (const ConfigValue& v : condition.values) test.texts.push_back(v.text);
    return true;
  }

  void set(op::IntegerTest to) {
    test.kind = Test::Kind::kInteger;
    test.integer = to;
    test.integers.clear();
  }

  bool no_operator() {
    std::vector<std::string> right{field.name};
    for (const OperatorRow& row : kOperators)
      if (has_operator(field.type, row.op)) right.push_back(field.name + std::string(row.suffix));
    return bad(fmt::format("{} has no such operator: it is {}", field.name, type_text(field)),
               base::one_of(right));
  }

  bool bad(std::string found, const std::string& expected) {
    wrong = {std::move(found), "expected " + expected};
    return false;
  }
  bool bad_value(const ConfigValue& v, const std::string& hint = {}) {
    return bad("found " + shown(v.text, v.quoted), type_text(field) + hint);
  }

  bool numbers() {
    const bool whole = field.type == FieldType::kWhole;
    for (const ConfigValue& v : condition.values) {
      const auto n = base::yaml_whole_number(v.text);
      const auto x = base::yaml_number(v.text);
      if (v.quoted || !(whole ? n.has_value() : x.has_value())) return bad_value(v);
      if (!whole && !std::isfinite(*x)) return bad("found " + v.text, "a finite number");
      test.integers.push_back(whole ? *n : ordered(*x));
    }
    const bool above = comparison == Operator::kGt || comparison == Operator::kGe;
    if (!above && comparison != Operator::kLt && comparison != Operator::kLe) return true;
    // The limit is the least value above the threshold. NaN comes last and passes no threshold.
    const bool next = comparison == Operator::kGt || comparison == Operator::kLe;
    const int64_t a = test.integers[0], least = ordered(-HUGE_VAL), most = ordered(HUGE_VAL);
    test.integers.clear();
    negated = whole && !above;
    if (next && a == INT64_MAX) return true;  // no value passes
    const int64_t limit = next ? a + 1 : a;
    set(whole   ? op::IntegerTest::at_least(limit)
        : above ? op::IntegerTest::range(limit, most)
                : op::IntegerTest::range(least, limit - 1));
    return true;
  }

  bool on_or_off() {
    bool seen[2] = {};
    for (const ConfigValue& v : condition.values) {
      const auto on = read_switch(v.text);
      if (!on.ok() || v.quoted) return bad_value(v);
      seen[*on] = true;
    }
    if (!seen[1]) negated = !negated;
    const bool layout = field.axis.kind == Axis::Kind::kLayout;  // 0 is "contiguous"
    test.integers = {layout ? 0 : 1};
    if (seen[0] && seen[1]) test.integers = {0, 1, 2};
    return true;
  }

  bool closed() {
    std::vector<int64_t> values;
    if (is_pattern(comparison)) {
      if (!patterns()) return false;
      for (const auto& [name, value] : named_values(field))
        if (test.holds_for(name)) values.push_back(value);
      if (values.empty())
        return bad("found " + shown(condition.values[0].text, true) + ", which matches nothing",
                   type_text(field));
    } else {
      for (const ConfigValue& v : condition.values) {
        const auto dtype = field.type == FieldType::kDType ? parse_dtype(v.text) : std::nullopt;
        const auto word = std::ranges::find(field.words, v.text);
        if (!dtype && word == field.words.end())
          return bad_value(
              v, base::did_you_mean(base::lower(v.text), base::keys(named_values(field))));
        values.push_back(dtype ? static_cast<int64_t>(*dtype) : word - field.words.begin());
      }
    }
    test = {.integers = std::move(values)};
    return true;
  }

  bool device() {
    test.kind = Test::Kind::kDeviceOneOf;
    for (const ConfigValue& v : condition.values) {
      const auto d = parse_device(v.text);
      const bool has_index = v.text.find(':') != std::string::npos;
      if (!d || d->index > 0xfffe || (field.type == FieldType::kPlatform && has_index))
        return bad_value(v);
      test.integers.push_back((int64_t{d->type} << 16) | (has_index ? d->index + 1 : 0));
    }
    return true;
  }

  bool patterns() {
    test.kind = comparison == Operator::kMatch ? Test::Kind::kGlob : Test::Kind::kRegex;
    for (const ConfigValue& v : condition.values) {
      test.texts.push_back(v.text);
      if (comparison == Operator::kMatch) continue;
      auto regex = Regex::compile(v.text);
      if (!regex.ok())
        return bad(fmt::format("found {}: {}", shown(v.text, true), regex.status().message()),
                   "a regular expression as (pre|de)fill.*");
      test.regexes.push_back(*std::move(regex));
    }
    return true;
  }
};

}  // namespace

// Tests in runs come first, in their order.
bool Test::operator<(const Test& o) const {
  const auto rank = [](const Test& t) {
    return std::tuple_cat(
        std::tuple(!in_run(t), t.axis, t.integer.a == t.integer.b),
        std::tie(t.integer.a, t.integer.b, t.integer.kind, t.kind, t.of, t.integers, t.texts));
  };
  return rank(*this) < rank(o);
}

bool Test::holds_for(std::string_view text) const {
  if (kind == Kind::kRegex)
    return std::ranges::any_of(regexes, [&](const Regex& regex) { return regex.matches(text); });
  if (kind == Kind::kGlob)
    return std::ranges::any_of(texts, [&](auto& glob) { return glob_matches(glob, text); });
  return base::contains(texts, text);
}

bool Test::holds(const AxisValue& v) const {
  const auto lists = [&](int64_t i) {
    return std::binary_search(integers.begin(), integers.end(), i);
  };
  if (kind == Kind::kInteger) return integer.holds(v.i);
  if (kind == Kind::kOneOf) return lists(v.i);
  if (kind == Kind::kDeviceOneOf) return lists(v.i) || lists(v.i & ~int64_t{0xffff});
  if (of != FieldType::kDevice && of != FieldType::kPlatform) return holds_for(v.s);
  // Axis::read() encodes the device in this way.
  const std::string type = to_string(Device{static_cast<int32_t>(v.i >> 16), 0});
  return holds_for(type) ||
         (of == FieldType::kDevice && holds_for(fmt::format("{}:{}", type, (v.i & 0xffff) - 1)));
}

void Test::add_cuts(std::vector<int64_t>& to) const {
  if (kind == Kind::kInteger) integer.add_cuts(to);
  if (kind == Kind::kOneOf)
    for (const int64_t i : integers) op::IntegerTest::equals(i).add_cuts(to);
}

void Conditions::answer(const Run& run, const AxisValue& v, uint8_t* truth) const {
  const auto fill = [&](size_t from, size_t to, uint8_t yes, uint8_t no) {
    for (size_t i = from; i < to; ++i) truth[2 * i] = yes, truth[2 * i + 1] = no;
  };
  if (!v.there) return fill(0, run.count, 0, 0);
  const auto tests = std::span(tests_).subspan(run.first, run.count);
  const auto is_below = [&](const Test& t) {
    if (t.kind == Test::Kind::kTextOneOf) return t.texts[0] < v.s;
    return t.integer.a < v.i || (run.at_least && t.integer.a == v.i);
  };
  const auto first = std::partition_point(tests.begin(), tests.end(), is_below);
  const auto below = static_cast<size_t>(first - tests.begin());
  fill(0, below, run.at_least ? 1 : 0, run.at_least ? 0 : 1);
  fill(below, run.count, 0, 1);
  if (!run.at_least && first != tests.end() && first->holds(v)) fill(below, below + 1, 1, 0);
}

void Conditions::read(const CallView& call, std::vector<AxisValue>& values) const {
  values.clear();
  for (const Axis& axis : axes_) values.push_back(axis.read(call));
}

void Conditions::evaluate(const std::vector<AxisValue>& values, std::vector<uint8_t>& to) const {
  to.resize(2 * tests_.size() + 1);
  to.back() = 1;
  uint8_t* truth = to.data();
  for (const Run& run : runs_) answer(run, values[run.axis], truth + 2 * size_t{run.first});
  for (size_t i = in_runs_; i < tests_.size(); ++i) {
    const AxisValue& v = values[tests_[i].axis];
    const bool yes = v.there && tests_[i].holds(v);
    truth[2 * i] = yes ? 1 : 0;
    truth[2 * i + 1] = v.there && !yes ? 1 : 0;
  }
}

void Conditions::fold(const CallView& call, uint64_t* words) const {
  std::fill_n(words, key_words_, 0);
  for (const Axis& axis : axes_) {
    if (axis.bits == 0) continue;
    const AxisValue v = axis.read(call);
    words[axis.first_bit / 64] |= axis.class_of(v) << axis.first_bit % 64;
    auto bit = axis.first_bit + axis.bits - static_cast<uint32_t>(axis.patterns.size());
    for (const uint32_t t : axis.patterns) {
      words[bit / 64] |= uint64_t{v.there && tests_[t].holds(v)} << bit % 64;
      ++bit;
    }
  }
}

// ---- Compiling ----

bool ConditionCompiler::add(const OpField& field, Operator op, const Condition& c, Wrong& wrong) {
  TestMaker maker{field, op, c, wrong};
  if (!maker.make()) return false;
  Test& t = maker.test;
  t.axis = axis_of(field);
  sort_unique(t.integers);
  if (t.regexes.empty()) sort_unique(t.texts);
  if (t.kind == Test::Kind::kOneOf && t.integers.size() == 1)
    maker.set(op::IntegerTest::equals(t.integers[0]));
  const auto test = tests_.try_emplace(std::move(t), static_cast<uint32_t>(tests_.size())).first;
  to_.literals_.push_back(2 * test->second + (maker.negated ? 1 : 0));
  return true;
}

Conjunction ConditionCompiler::end() {
  const size_t count = to_.literals_.size() - begin_;
  all_.push_back({static_cast<uint32_t>(begin_), static_cast<uint32_t>(count)});
  to_.literals_.push_back(0);  // for the rarest literal of the next conjunction
  begin_ = to_.literals_.size();
  return all_.back();
}

uint16_t ConditionCompiler::axis_of(const OpField& field) {
  const auto known =
      std::ranges::find_if(to_.axes_, [&](const Axis& a) { return a.reads_same(field.axis); });
  const auto index = static_cast<uint16_t>(known - to_.axes_.begin());
  if (known != to_.axes_.end()) return index;
  const Axis& axis = to_.axes_.emplace_back(field.axis);
  const auto is_scalar = [](const op::Field& f) {
    return f.count > 0 && f.kind == op::Field::Kind::kScalar;
  };
  const bool scalar = axis.kind == Axis::Kind::kNumber || axis.kind == Axis::Kind::kText ||
                      is_scalar(axis.field) || is_scalar(axis.other);
  to_.reads_scalars_ |= scalar;
  to_.reads_labels_ |= axis.kind == Axis::Kind::kLabel || axis.kind == Axis::Kind::kLabelInteger;
  return index;
}

void ConditionCompiler::finish() {
  std::vector<uint32_t> moved(tests_.size());
  while (!tests_.empty()) {
    auto node = tests_.extract(tests_.begin());
    const auto i = moved[node.mapped()] = static_cast<uint32_t>(to_.tests_.size());
    const Test& t = to_.tests_.emplace_back(std::move(node.key()));
    if (in_run(t)) {
      const bool at_least = t.kind == Test::Kind::kInteger && t.integer.a != t.integer.b;
      if (to_.runs_.empty() || to_.runs_.back().axis != t.axis ||
          to_.runs_.back().at_least != at_least)
        to_.runs_.push_back({t.axis, at_least, i, 0});
      ++to_.runs_.back().count;
      ++to_.in_runs_;
    }
    Axis& axis = to_.axes_[t.axis];
    t.add_cuts(axis.cuts);
    if (t.kind == Test::Kind::kTextOneOf)
      axis.words.insert(axis.words.end(), t.texts.begin(), t.texts.end());
    if (t.is_pattern() && axis.kind != Axis::Kind::kDevice) axis.patterns.push_back(i);
  }
  finish_literals(moved);
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

void ConditionCompiler::finish_literals(const std::vector<uint32_t>& moved) {
  // The literal of conjunctions without conditions.
  const auto always = static_cast<uint32_t>(2 * moved.size());
  std::vector<uint32_t> uses(always);
  for (const Conjunction& c : all_)
    for (uint32_t i = c.first; i < c.first + c.count; ++i) {
      uint32_t& l = to_.literals_[i];
      l = 2 * moved[l / 2] + l % 2;
      ++uses[l];
    }
  for (const Conjunction& c : all_) {
    const auto of = to_.literals(c);
    const auto rarest = std::ranges::min_element(of, {}, [&](uint32_t l) { return uses[l]; });
    to_.literals_[c.first - 1] = rarest != of.end() ? *rarest : always;
  }
}

}  // namespace yard::policy
