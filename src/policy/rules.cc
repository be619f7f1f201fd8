// SPDX-License-Identifier: Apache-2.0
// Compiling the rules that concern an op, and matching calls with them.
#include "policy/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/yaml.h"
#include "policy/config_keys.h"
#include "policy/fields.h"

namespace yard::policy {
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

// Packs values of some bits into words; none crosses a word.
class BitSink {
 public:
  explicit BitSink(uint64_t* to) : to_(to) {}
  ~BitSink() {
    if (used_ > 0) *to_ = word_;
  }
  void put(uint64_t value, uint32_t bits) {
    if (bits == 0) return;
    if (used_ + bits > 64) *to_++ = word_, word_ = 0, used_ = 0;
    word_ |= value << used_;
    used_ += bits;
  }

 private:
  uint64_t* to_;
  uint64_t word_ = 0;
  uint32_t used_ = 0;
};

}  // namespace

uint32_t OpRules::bits_of(const Axis& axis) noexcept {
  const uint64_t absent = axis.optional ? 1 : 0;
  switch (axis.kind) {
    case Axis::Kind::kText:
    case Axis::Kind::kLabel:
      return bits_for(axis.words.size() + 1 + absent) + static_cast<uint32_t>(axis.patterns.size());
    case Axis::Kind::kDevice:
    case Axis::Kind::kFlag: return 0;
    default: return bits_for(axis.cuts.size() + 1 + absent);
  }
}

OpRules::Value OpRules::read(const Axis& axis, const CallView& call) {
  Value v;
  switch (axis.kind) {
    case Axis::Kind::kInteger: v.there = op::find(axis.field, call.args, v.i); return v;
    case Axis::Kind::kNumber:
      v.there = call.args[axis.arg].tag == YARD_TAG_FLOAT;
      if (v.there) v.i = ordered(call.args[axis.arg].u.f);
      return v;
    case Axis::Kind::kText:
      v.there = call.args[axis.arg].tag == YARD_TAG_STRING;
      if (v.there) v.s = {call.args[axis.arg].u.string, call.args[axis.arg].count};
      return v;
    case Axis::Kind::kLayout:
      v.i = -1;
      for (uint32_t i = axis.arg; i < uint32_t{axis.arg} + axis.count; ++i)
        v.i = std::max<int64_t>(v.i, layout_of(call.args[i]));
      v.there = v.i >= 0;
      return v;
    case Axis::Kind::kDevice:
      v.there = true;
      v.i = device_code(call.device);
      return v;
    case Axis::Kind::kFlag:
      v.there = true;
      v.i = (call.flags & axis.flag) != 0 ? 1 : 0;
      return v;
    case Axis::Kind::kLabel:
    case Axis::Kind::kLabelInteger: break;
  }
  if (call.labels == nullptr) return v;
  for (const auto& [name, text] : *call.labels) {
    if (name != axis.label) continue;
    v.there = true;
    v.s = text;
    if (axis.kind == Axis::Kind::kLabel) break;
    const auto number = base::yaml_whole_number(text);
    v.there = number.has_value();
    v.i = number.value_or(0);
    break;
  }
  return v;
}

bool OpRules::text_holds(const Test& t, std::string_view text) const {
  const auto begin = static_cast<ptrdiff_t>(t.first), end = begin + static_cast<ptrdiff_t>(t.count);
  if (t.kind == Test::Kind::kRegex)
    return std::any_of(regexes_.begin() + begin, regexes_.begin() + end,
                       [&](const Regex& r) { return r.matches(text); });
  if (t.kind == Test::Kind::kGlob)
    return std::any_of(texts_.begin() + begin, texts_.begin() + end,
                       [&](const std::string& glob) { return glob_matches(glob, text); });
  return std::find(texts_.begin() + begin, texts_.begin() + end, text) != texts_.begin() + end;
}

bool OpRules::device_holds(const Test& t, const Value& v) const {
  const Device device{static_cast<int32_t>(v.i >> 16), static_cast<int32_t>((v.i & 0xffff) - 1)};
  if (t.kind == Test::Kind::kDeviceOneOf) {
    for (uint32_t i = t.first; i < t.first + t.count; ++i)
      if (integers_[i] == v.i || integers_[i] == (v.i & ~int64_t{0xffff})) return true;
    return false;
  }
  const std::string type = to_string(Device{device.type, 0});
  if (text_holds(t, type)) return true;
  return !t.platform && text_holds(t, type + ":" + std::to_string(device.index));
}

bool OpRules::holds(const Test& t, const Value& v) const {
  switch (t.kind) {
    case Test::Kind::kInteger: return t.integer.holds(v.i);
    case Test::Kind::kOneOf:
      return std::binary_search(integers_.begin() + t.first, integers_.begin() + t.first + t.count,
                                v.i);
    case Test::Kind::kDeviceOneOf: return device_holds(t, v);
    case Test::Kind::kTextOneOf:
    case Test::Kind::kGlob:
    case Test::Kind::kRegex:
      if (axes_[t.axis].kind == Axis::Kind::kDevice) return device_holds(t, v);
      return text_holds(t, v.s);
  }
  return false;
}

void OpRules::answer(const Run& run, const Value& v, uint8_t* truth) const {
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

void OpRules::match(const CallView& call, Matches& to) const {
  to.rules.clear();
  to.scores.clear();
  to.truth.resize(2 * tests_.size());
  // Most ops have a handful of axes; each is read once.
  constexpr size_t kFew = 16;
  Value few[kFew];
  std::vector<Value> many;
  if (axes_.size() > kFew) many.resize(axes_.size());
  Value* values = axes_.size() > kFew ? many.data() : few;
  for (size_t i = 0; i < axes_.size(); ++i) values[i] = read(axes_[i], call);
  uint8_t* truth = to.truth.data();
  for (const Run& run : runs_) answer(run, values[run.axis], truth + 2 * size_t{run.first});
  for (size_t i = run_numbers_.size(); i < tests_.size(); ++i) {
    const Value& v = values[tests_[i].axis];
    const bool yes = v.there && holds(tests_[i], v);
    truth[2 * i] = yes ? 1 : 0;
    truth[2 * i + 1] = v.there && !yes ? 1 : 0;
  }
  for (uint32_t i = 0; i < rules_.size(); ++i)
    if (all_true(rules_[i].first, rules_[i].count, truth)) to.rules.push_back(i);
  for (uint32_t i = 0; i < scores_.size(); ++i)
    if (all_true(scores_[i].first, scores_[i].count, truth)) to.scores.push_back(i);
}

uint64_t OpRules::class_of(const Axis& axis, const Value& v) {
  if (!v.there) return 0;
  const uint64_t base = axis.optional ? 1 : 0;
  switch (axis.kind) {
    case Axis::Kind::kText:
    case Axis::Kind::kLabel: {
      const auto at = std::lower_bound(axis.words.begin(), axis.words.end(), v.s);
      const bool known = at != axis.words.end() && *at == v.s;
      return base + (known ? static_cast<uint64_t>(at - axis.words.begin()) + 1 : 0);
    }
    default: {
      const auto at = std::upper_bound(axis.cuts.begin(), axis.cuts.end(), v.i);
      return base + static_cast<uint64_t>(at - axis.cuts.begin());
    }
  }
}

void OpRules::fold(const CallView& call, uint64_t* words) const {
  BitSink sink(words);
  for (const Axis& axis : axes_) {
    if (axis.bits == 0) continue;
    const Value v = read(axis, call);
    sink.put(class_of(axis, v), axis.bits - static_cast<uint32_t>(axis.patterns.size()));
    for (const uint32_t t : axis.patterns) sink.put(v.there && holds(tests_[t], v) ? 1 : 0, 1);
  }
}

// ---- Compiling ----

RuleCompiler::RuleCompiler(const Config& config) : config_(config) {
  const std::vector<DispatchRule>& rules = config.dispatch_rules;
  order_.resize(rules.size());
  std::iota(order_.begin(), order_.end(), 0u);
  const int usual = config.defaults.default_priority.value_or(kDefaultPriority);
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return rules[a].priority.value_or(usual) > rules[b].priority.value_or(usual);
  });
  const auto note = [&](const auto& rule, std::vector<uint32_t>& patterns) {
    patterns.push_back(pattern_of(rule.operation));
    first_condition_.push_back(conditions_);
    conditions_ += rule.conditions.size();
  };
  for (const DispatchRule& r : rules) note(r, rule_pattern_);
  for (const ScoreRule& r : config.score) note(r, score_pattern_);
}

uint32_t RuleCompiler::pattern_of(std::string_view operation) {
  const auto [it, is_new] =
      pattern_ids_.emplace(operation, static_cast<uint32_t>(patterns_.size()));
  if (is_new) patterns_.push_back(operation);
  return it->second;
}

// The compilation for one op.
class RuleCompiler::OneOp {
 public:
  OneOp(const RuleCompiler& from, const op::Program& program, ConditionReport* report)
      : from_(from), report_(report), fields_(program), conditions_(to_) {
    to_.op_ = program.name();
  }

  OpRules compile() {
    std::vector<bool> mine(from_.patterns_.size());
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = glob_matches(from_.patterns_[i], to_.op_);
    const Config& config = from_.config_;
    const int usual = config.defaults.default_priority.value_or(kDefaultPriority);
    for (const uint32_t i : from_.order_) {
      if (!mine[from_.rule_pattern_[i]]) continue;
      const DispatchRule& r = config.dispatch_rules[i];
      CompiledRule c;
      if (!conjunction(r.conditions, from_.index_of(false, i, 0), c.first, c.count)) continue;
      if (!r.kernel.empty()) c.kernel = kernel_of(r.kernel);
      for (const KernelRef& k : r.deny) c.deny.push_back(kernel_of(k.id));
      if (r.allow) {
        c.allow.emplace();
        for (const KernelRef& k : *r.allow) c.allow->push_back(kernel_of(k.id));
      }
      to_.restricts_ |= !c.deny.empty() || c.allow.has_value();
      c.priority = r.priority.value_or(usual);
      c.source = i;
      c.at = r.at;
      to_.rules_.push_back(std::move(c));
    }
    for (uint32_t i = 0; i < config.score.size(); ++i) {
      if (!mine[from_.score_pattern_[i]]) continue;
      const ScoreRule& r = config.score[i];
      CompiledScore c;
      if (!conjunction(r.conditions, from_.index_of(true, i, 0), c.first, c.count)) continue;
      c.kernel = kernel_of(r.kernel);
      c.source = i;
      c.add = r.add, c.multiply = r.multiply;
      to_.scores_.push_back(c);
    }
    conditions_.finish();
    return std::move(to_);
  }

 private:
  // False if the op lacks one of the fields, or a condition is invalid.
  bool conjunction(const std::vector<Condition>& conditions, size_t index, uint32_t& first,
                   uint32_t& count) {
    const size_t begin = to_.literals_.size();
    bool good = true;
    for (size_t i = 0; i < conditions.size(); ++i) {
      const bool has = key_of(conditions[i]).field != nullptr;
      note(index + i, has ? ConditionReport::kFine : ConditionReport::kNoField);
      good = good && has;
    }
    // Such a rule does not concern this op, and must not make its keys longer.
    if (!good) return check_others(conditions, index), false;
    for (size_t i = 0; i < conditions.size(); ++i) {
      Wrong wrong;
      const SplitKey& key = key_of(conditions[i]);
      if (conditions_.add(*key.field, key.op, conditions[i], to_.literals_, wrong)) continue;
      good = false;
      if (report_ != nullptr) report_->wrong.emplace(index + i, std::move(wrong));
    }
    if (!good) to_.literals_.resize(begin);
    first = static_cast<uint32_t>(begin);
    count = static_cast<uint32_t>(to_.literals_.size() - begin);
    return good;
  }

  // Notes what is invalid about the conditions whose field the op has, in case no op has the missing one.
  void check_others(const std::vector<Condition>& conditions, size_t index) {
    if (report_ == nullptr) return;
    OpRules scratch;
    ConditionCompiler compiler(scratch);
    std::vector<uint32_t> literals;
    for (size_t i = 0; i < conditions.size(); ++i) {
      Wrong wrong;
      const SplitKey& key = key_of(conditions[i]);
      if (key.field != nullptr && !compiler.add(*key.field, key.op, conditions[i], literals, wrong))
        report_->maybe.emplace(index + i, std::move(wrong));
    }
  }

  const SplitKey& key_of(const Condition& c) {
    auto it = keys_.find(c.key);
    if (it == keys_.end()) it = keys_.emplace(c.key, split_key(c.key, fields_)).first;
    return it->second;
  }

  void note(size_t index, ConditionReport::Seen seen) {
    if (report_ != nullptr) report_->seen[index] = std::max<uint8_t>(report_->seen[index], seen);
  }

  uint32_t kernel_of(const std::string& kernel) {
    const auto [it, is_new] =
        kernel_ids_.emplace(kernel, static_cast<uint32_t>(to_.kernels_.size()));
    if (is_new) to_.kernels_.push_back(kernel);
    return it->second;
  }

  const RuleCompiler& from_;
  ConditionReport* report_;
  OpRules to_;
  OpFields fields_;
  ConditionCompiler conditions_;
  std::unordered_map<std::string_view, SplitKey> keys_;
  std::unordered_map<std::string_view, uint32_t> kernel_ids_;
};

OpRules RuleCompiler::compile(const op::Program& program, ConditionReport* report) const {
  return OneOp(*this, program, report).compile();
}

std::string place_text(const Config& config, ConfigPlace at) {
  if (at.line == 0 || at.file >= config.sources.files.size()) return "";
  return fmt::format(" ({}:{})", config.sources.files[at.file], at.line);
}

const std::vector<KernelRef>& chain_of(const Config& config, std::string_view op) {
  const auto* own = find_for_op(config.fallback_chains, op);
  return own != nullptr ? *own : config.defaults.fallback_policy;
}

const std::string* mode_of(const Config& config, std::string_view op) {
  if (const std::string* own = find_for_op(config.settings.modes, op)) return own;
  return config.settings.mode ? &*config.settings.mode : nullptr;
}

}  // namespace yard::policy
