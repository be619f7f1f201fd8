// SPDX-License-Identifier: Apache-2.0
// Clauses of one Config that exclude, cover or contradict each other: valid, and never what was meant.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/lists.h"
#include "base/text.h"
#include "policy/check.h"
#include "policy/config_files.h"

namespace yard::policy {

// Compares the calls that rules of one op match. On each axis it is enough to try one value of every class that tests
// distinguish. Borrows the conditions.
class CallSets {
 public:
  using Literals = std::span<const uint32_t>;
  explicit CallSets(const Conditions& conditions) : on_(conditions) {}

  const Test& test(uint32_t literal) const { return on_.tests()[literal / 2]; }
  uint16_t axis(uint32_t literal) const { return test(literal).axis; }

  // Makes a call that passes the literals and has no other fields. Returns an axis on which no value passes, or -1.
  int sample(Literals of) {
    call_.assign(on_.axes().size(), {});
    truth_.clear();
    for (const uint32_t l : of) {
      if (call_[axis(l)].there) continue;
      values_.clear();
      for (const uint32_t other : of)
        if (axis(other) == axis(l)) add_values(other);
      const auto v = std::find_if(values_.begin(), values_.end(),
                                  [&](const AxisValue& x) { return passes(of, axis(l), x); });
      if (v == values_.end()) return axis(l);
      call_[axis(l)] = *v;
    }
    return -1;
  }

  // Adds a rule that may cover later ones. A rule whose rarest condition lists texts is found by these.
  void add(const Clause& rule) {
    const uint32_t l = on_.rarest(rule.when);
    if (rule.when.count == 0 || l % 2 != 0 || test(l).kind != Test::Kind::kTextOneOf)
      return rules_.push_back(&rule);
    for (const std::string& text : test(l).texts) rules_of_[{axis(l), text}].push_back(&rule);
  }

  // The first of the added rules that covers `narrow`, after sample(narrow). Only a rule that holds for the sample can.
  // Null if there is none, or if `most` comparisons found none.
  const Clause* first_cover(Literals narrow, size_t& most) {
    const Clause* first = first_cover(rules_, narrow, most);
    for (uint16_t i = 0; i < call_.size(); ++i) {
      const auto it = rules_of_.find({i, call_[i].s});
      if (it == rules_of_.end()) continue;
      const Clause* found = first_cover(it->second, narrow, most);
      if (found != nullptr && (first == nullptr || found < first)) first = found;
    }
    return first;
  }

 private:
  static constexpr char kUnlisted[] = "\x01";
  static constexpr int64_t kUnlistedDevice = int64_t{1} << 40;

  const Clause* first_cover(const std::vector<const Clause*>& rules, Literals narrow,
                            size_t& most) {
    constexpr size_t kCost = 50;  // of covers(), in comparisons
    if (!rules.empty() && truth_.empty()) {
      on_.evaluate(call_, truth_);
      for (const uint32_t l : narrow) truth_[l] = 1;  // a pattern holds for some text
    }
    for (const Clause* rule : rules) {
      if (most <= kCost) return nullptr;
      --most;
      if (!on_.hold(rule->when, truth_)) continue;
      most -= kCost;
      if (covers(on_.literals(rule->when), narrow)) return rule;
    }
    return nullptr;
  }

  bool is_pattern(uint32_t literal) const { return test(literal).is_pattern(); }
  static bool is_unlisted(const AxisValue& v) {
    return v.s.data() == kUnlisted || v.i == kUnlistedDevice;
  }

  // Whether every call that passes `narrow` passes `wide`.
  bool covers(Literals wide, Literals narrow) {
    return std::all_of(wide.begin(), wide.end(), [&](uint32_t l) {
      if (base::contains(narrow, l)) return true;
      values_.clear();
      add_values(l);
      for (const uint32_t other : narrow)
        if (axis(other) == axis(l)) add_values(other);
      return std::all_of(values_.begin(), values_.end(), [&](const AxisValue& v) {
        if (!passes(narrow, axis(l), v)) return true;
        return !(is_unlisted(v) && is_pattern(l)) && passes({&l, 1}, axis(l), v);
      });
    });
  }

  // Whether a value passes the literals on its axis. A text that no test lists may match a pattern or not, so it passes.
  bool passes(Literals of, uint16_t index, const AxisValue& v) const {
    return std::all_of(of.begin(), of.end(), [&](uint32_t l) {
      if (axis(l) != index || (is_unlisted(v) && is_pattern(l))) return true;
      return test(l).holds(v) == (l % 2 == 0);
    });
  }

  void add_values(uint32_t literal) {
    const Test& t = test(literal);
    const Axis& axis = on_.axes()[t.axis];
    const auto integer = [&](int64_t i) { values_.push_back({true, i, {}}); };
    switch (axis.kind) {
      case Axis::Kind::kFlag: return integer(0), integer(1);
      case Axis::Kind::kLayout: return integer(0), integer(1), integer(2);
      case Axis::Kind::kText:
      case Axis::Kind::kLabel:
        if (t.kind == Test::Kind::kTextOneOf)
          for (const std::string& text : t.texts) values_.push_back({true, 0, text});
        values_.push_back({true, 0, std::string_view(kUnlisted)});
        return;
      case Axis::Kind::kDevice:
        // For a type without an index, also one with an index.
        for (const int64_t i : t.integers) integer(i), integer(i | 0xffff);
        return integer(kUnlistedDevice);
      default: break;
    }
    std::vector<int64_t> cuts;
    t.add_cuts(cuts);
    if (cuts.empty()) integer(0);
    // Sizes are not negative.
    const bool size =
        axis.kind == Axis::Kind::kInteger && axis.field.kind != op::Field::Kind::kScalar;
    for (const int64_t cut : cuts) {
      if (cut > (size ? 0 : INT64_MIN)) integer(cut - 1);
      if (!size || cut >= 0) integer(cut);
    }
  }

  const Conditions& on_;
  std::map<std::pair<uint16_t, std::string_view>, std::vector<const Clause*>> rules_of_;
  std::vector<const Clause*> rules_;  // the other ones
  std::vector<AxisValue> values_, call_;
  std::vector<uint8_t> truth_;  // of the literals for `call_`, if that was needed
};

void add_effects(const OpRules& rules, const Known::Op& op, RuleReport& to) {
  const Conditions& conditions = rules.conditions();
  CallSets sets(conditions);
  const RuleEffect* last = nullptr;  // clauses of one rule have the same conditions
  bool possible = true;
  for (const Clause& c : rules.clauses()) {
    RuleEffect& effect = to.of(c);
    const CallSets::Literals of = conditions.literals(c.when);
    if (&effect != last) {
      ++effect.ops;
      const int axis = sets.sample(of);
      possible = axis < 0;
      if (!possible) ++effect.impossible, effect.conditions.clear();
      for (size_t i = 0; !possible && i < of.size(); ++i)
        if (sets.axis(of[i]) == axis) effect.conditions.push_back(i);
    }
    last = &effect;
    if (!possible || c.act != Clause::Act::kChoose) continue;
    if (const Clause* first = sets.first_cover(of, to.comparisons_left))
      ++effect.shadowed, effect.by = first->source;
    else if (std::ranges::any_of(op.kernels,
                                 [&](auto& k) { return glob_matches(c.names[0], k.first); }))
      sets.add(c);
  }
}

namespace {

class Conflicts {
 public:
  Conflicts(const Known& known, Findings& to) : config_(to.config), known_(known), to_(to) {}

  void check() {
    check_labels();
    if (policy_.empty() && config_.dispatch_rules.empty()) return;
    if (policy_.allow_kernels && policy_.allow_kernels->empty()) return;  // the reader reports it
    for (const auto& [op, ref] : kernel_sections(config_).locks)
      check_map("kernel_locks", op, ref, "calls would have no kernel");
    check_ops();
    for (size_t i = 0; i < config_.dispatch_rules.size(); ++i)
      check_rule(config_.dispatch_rules[i], i);
    for (const auto& [op, ref] : config_.static_kernel_map)
      check_map("static_kernel_map", op, ref, "the map has no effect");
  }

 private:
  // The statement that excludes a kernel from all calls of an op; empty if there is none.
  std::string excluded_by(const KernelFacts& kernel) const {
    for (const Clause& c : statements_.own()) {
      if (!c.excludes(kernel)) continue;
      switch (c.act) {
        case Clause::Act::kDeny: return fmt::format("kernel_denies ({})", c.names[0]);
        case Clause::Act::kAllow: return "kernel_allows";
        case Clause::Act::kDenyVendor: return "policy.deny_vendors";
        case Clause::Act::kAllowVendors: return "policy.allow_vendors";
        case Clause::Act::kSwitchedOff: return "policy.backends";
        case Clause::Act::kReferenceOnly: return "policy.reference_only";
        default: break;
      }
    }
    return "";
  }

  // Names denies before others. Empty if one of the kernels that match is not excluded.
  std::string all_excluded_by(const Known::Op& op, const std::string& pattern) const {
    std::string why;
    for (const auto& [id, facts] : op.kernels) {
      if (!glob_matches(pattern, id)) continue;
      std::string one = excluded_by(facts);
      if (one.empty()) return one;
      if (why.empty() || (one.starts_with("kernel_denies") && !why.starts_with("kernel_denies")))
        why = std::move(one);
    }
    return why;
  }

  void check_map(const char* section, const std::string& op, const KernelRef& ref,
                 const char* effect) {
    const Path map{&kTop, section};
    KernelFacts kernel{ref.id, "", "", Kind::kReference};  // unless it is registered
    if (const auto known = known_.ops.find(op); known != known_.ops.end())
      if (const auto it = known->second.kernels.find(ref.id); it != known->second.kernels.end())
        kernel = it->second;
    if (const std::string why = excluded_by(kernel); !why.empty())
      to_.warn({ref.at, {&map, op}}, fmt::format("{} is excluded by {}", ref.id, why), effect);
  }

  void check_ops() {
    Names lost;
    std::string why;
    for (const auto& [name, op] : known_.ops) {
      const std::string excluded = all_excluded_by(op, "*");
      if (excluded.empty()) continue;
      if (lost.empty()) why = excluded;
      lost.push_back(name);
    }
    if (lost.empty()) return;
    const size_t named = std::min<size_t>(lost.size(), 3);
    std::string ops = fmt::format("{}", fmt::join(std::span(lost).first(named), ", "));
    if (lost.size() > named) ops += fmt::format(" and {} more ops", lost.size() - named);
    if (lost.size() == known_.ops.size()) ops = "any op";
    const std::string section = why.substr(0, why.find(' '));
    ConfigPlace at;
    if (section == "kernel_allows" && config_.kernel_allows) at = config_.kernel_allows->front().at;
    for (const KernelRef& ref : config_.kernel_denies)
      if (why == fmt::format("kernel_denies ({})", ref.id)) at = ref.at;
    to_.warn({at, {&kTop, section}}, "no kernel of " + ops + " may run", "excluded by " + why);
  }

  void check_rule(const DispatchRule& r, size_t index) {
    if (r.kernel.empty()) return;
    const auto listed = [&](const std::vector<KernelRef>& refs) {
      return std::ranges::any_of(refs, [&](auto& ref) { return glob_matches(ref.id, r.kernel); });
    };
    std::string why;
    if (listed(r.deny)) {
      why = "the rule's own deny";
    } else if (r.allow && !has_wildcard(r.kernel) && !listed(*r.allow)) {
      why = "the rule's own allow";
    } else {
      for (const auto& [name, op] : known_.ops) {
        if (!glob_matches(r.operation, name)) continue;
        const std::string* lock = find_for_op(policy_.locks, name);
        why = lock != nullptr && !glob_matches(r.kernel, *lock)
                  ? fmt::format("kernel_locks ({})", *lock)
                  : all_excluded_by(op, r.kernel);
        if (why.empty()) return;
      }
    }
    if (why.empty()) return;
    const Path rules{&kTop, "dispatch_rules"}, rule{&rules, {}, index};
    to_.warn({r.kernel_at, {&rule, "kernel"}}, fmt::format("{} is excluded by {}", r.kernel, why),
             "the rule cannot choose it");
  }

  void check_labels() {
    Names known = known_.labels;
    for (const Names& more :
         {config_.settings.labels, Names(std::begin(kPlainLabels), std::end(kPlainLabels))})
      known.insert(known.end(), more.begin(), more.end());
    const auto look = [&](std::string_view name, const Where& at) {
      if (base::contains(known, name)) return;
      to_.warn(at, fmt::format("no label is called '{}'", name),
               suggestion(name, known, "expected a label that settings.labels lists"));
    };
    const auto in_rules = [&](const auto& rules, const char* section) {
      const Path list{&kTop, section};
      for (size_t i = 0; i < rules.size(); ++i) {
        const Path rule{&list, {}, i}, conditions{&rule, "conditions"};
        for (const Condition& c : rules[i].conditions)
          if (const std::string_view name = own_label(c.key); !name.empty())
            look(name, {c.at, {&conditions, c.key}});
      }
    };
    in_rules(config_.dispatch_rules, "dispatch_rules");
    in_rules(config_.score, "score");
    const Path labels{&kTop, "rollout.labels"};
    if (config_.rollout)
      for (const auto& [name, value] : config_.rollout->labels)
        look(name, {config_.rollout->at, {&labels, name}});
  }

  const Config& config_;
  const Known& known_;
  Findings& to_;
  const Policy policy_ = policy_of(config_);
  const Clauses statements_{{policy_}, "", {}};  // for all ops
};

}  // namespace

void check_conflicts(const Known& known, Findings& to) { Conflicts(known, to).check(); }

}  // namespace yard::policy
