// SPDX-License-Identifier: Apache-2.0
// Clauses of one Config that exclude, cover or contradict each other: valid, and never what was meant.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

#include "base/lists.h"
#include "base/text.h"
#include "policy/check.h"

namespace yard::policy {

// Compares the calls that rules of one op match. The tests of an axis divide its values into classes that pass the same
// ones; it is enough to try one value of each class. Borrows the rules.
class CallSets {
 public:
  using Literals = std::span<const uint32_t>;
  explicit CallSets(const Conditions& conditions)
      : on_(conditions), uses_(conditions.tests_.size()) {
    for (const uint32_t l : conditions.literals_) ++uses_[l / 2];
  }

  uint16_t axis(uint32_t literal) const { return on_.tests_[literal / 2].axis; }

  // An axis on which no value passes; -1: there is none.
  int impossible_axis(Literals of) {
    for (const uint32_t l : of) {
      values_.clear();
      for (const uint32_t other : of)
        if (axis(other) == axis(l)) add_values(other);
      if (std::none_of(values_.begin(), values_.end(),
                       [&](const AxisValue& v) { return passes(of, axis(l), v); }))
        return axis(l);
    }
    return -1;
  }

  // Whether every call that passes `narrow` passes `wide`.
  bool covers(Literals wide, Literals narrow) {
    return std::all_of(wide.begin(), wide.end(), [&](uint32_t l) {
      if (base::contains(narrow, l)) return true;
      values_.clear();
      bool reads_it = false;
      for (const uint32_t other : narrow)
        if (axis(other) == axis(l)) reads_it = true, add_values(other);
      if (!reads_it) return false;
      add_values(l);
      return std::all_of(values_.begin(), values_.end(), [&](const AxisValue& v) {
        if (!passes(narrow, axis(l), v)) return true;
        return !(is_unlisted(v) && is_pattern(l)) && passes({&l, 1}, axis(l), v);
      });
    });
  }

  // Makes a rule one that first_cover() can find.
  void file(const Clause& rule) {
    const Literals of = on_.literals(rule.when);
    const uint32_t* rarest = nullptr;  // of those that list values
    for (const uint32_t& l : of)
      if (l % 2 == 0 && lists_values(on_.tests_[l / 2]) &&
          (rarest == nullptr || uses_[l / 2] < uses_[*rarest / 2]))
        rarest = &l;
    if (rarest == nullptr) return filed_[kAnyValue].push_back(&rule);
    const Test& t = on_.tests_[*rarest / 2];
    if (t.kind == Test::Kind::kInteger) filed_[{t.axis, t.integer.a, {}}].push_back(&rule);
    for (uint32_t i = t.first; t.kind == Test::Kind::kOneOf && i < t.first + t.count; ++i)
      filed_[{t.axis, on_.integers_[i], {}}].push_back(&rule);
    for (uint32_t i = t.first; t.kind == Test::Kind::kTextOneOf && i < t.first + t.count; ++i)
      filed_[{t.axis, 0, on_.texts_[i]}].push_back(&rule);
  }

  // A filed rule that covers `narrow`, whose conditions can hold; null: there is none, or `most` comparisons found none.
  // A rule that covers it accepts each value that it accepts, so one value of each axis leads to all candidates.
  const Clause* first_cover(Literals narrow, size_t& most) {
    const auto covering = [&](const Filed& at) -> const Clause* {
      const auto under = filed_.find(at);
      if (under == filed_.end()) return nullptr;
      for (const Clause* rule : under->second) {
        if (most == 0) return nullptr;
        --most;
        if (covers(on_.literals(rule->when), narrow)) return rule;
      }
      return nullptr;
    };
    if (const Clause* found = covering(kAnyValue)) return found;
    for (const uint32_t l : narrow) {
      values_.clear();
      add_values(l);
      const auto v = std::find_if(values_.begin(), values_.end(), [&](const AxisValue& value) {
        return passes(narrow, axis(l), value);
      });
      if (v == values_.end()) continue;
      if (const Clause* found = covering({axis(l), v->i, v->s})) return found;
    }
    return nullptr;
  }

 private:
  // An axis, and an integer or a text that a test of it lists.
  using Filed = std::tuple<uint16_t, int64_t, std::string_view>;
  static constexpr Filed kAnyValue{UINT16_MAX, 0, {}};
  static bool lists_values(const Test& t) {
    return t.kind == Test::Kind::kOneOf || t.kind == Test::Kind::kTextOneOf ||
           (t.kind == Test::Kind::kInteger && t.integer.kind == op::IntegerTest::Kind::kRange &&
            t.integer.a == t.integer.b);
  }

  static constexpr char kUnlisted[] = "\x01";
  static constexpr int64_t kUnlistedDevice = int64_t{1} << 40;

  bool is_pattern(uint32_t literal) const {
    const Test::Kind kind = on_.tests_[literal / 2].kind;
    return kind == Test::Kind::kGlob || kind == Test::Kind::kRegex;
  }
  static bool is_unlisted(const AxisValue& v) {
    return v.s.data() == kUnlisted || v.i == kUnlistedDevice;
  }

  // Whether a value passes the literals on its axis. What no test names may match a pattern, or not: it passes.
  bool passes(Literals of, uint16_t index, const AxisValue& v) const {
    return std::all_of(of.begin(), of.end(), [&](uint32_t l) {
      if (axis(l) != index || (is_unlisted(v) && is_pattern(l))) return true;
      return on_.holds(on_.tests_[l / 2], v) == (l % 2 == 0);
    });
  }

  // Adds a value of each class that the test of a literal makes.
  void add_values(uint32_t literal) {
    const Test& t = on_.tests_[literal / 2];
    const Axis& axis = on_.axes_[t.axis];
    const auto integer = [&](int64_t i) { values_.push_back({true, i, {}}); };
    switch (axis.kind) {
      case Axis::Kind::kFlag: return integer(0), integer(1);
      case Axis::Kind::kLayout: return integer(0), integer(1), integer(2);
      case Axis::Kind::kText:
      case Axis::Kind::kLabel:
        for (uint32_t i = t.first; t.kind == Test::Kind::kTextOneOf && i < t.first + t.count; ++i)
          values_.push_back({true, 0, on_.texts_[i]});
        values_.push_back({true, 0, std::string_view(kUnlisted)});
        return;
      case Axis::Kind::kDevice:
        // Of a type without an index, one with an index.
        for (uint32_t i = t.first; t.kind == Test::Kind::kDeviceOneOf && i < t.first + t.count; ++i)
          integer(on_.integers_[i]), integer(on_.integers_[i] | 0xffff);
        return integer(kUnlistedDevice);
      default: break;
    }
    cuts_.clear();
    if (t.kind == Test::Kind::kInteger) t.integer.add_cuts(cuts_);
    for (uint32_t i = t.first; t.kind == Test::Kind::kOneOf && i < t.first + t.count; ++i)
      op::IntegerTest::equals(on_.integers_[i]).add_cuts(cuts_);
    if (t.kind == Test::Kind::kInteger && cuts_.empty()) integer(0);
    // Sizes are not negative.
    const bool size =
        axis.kind == Axis::Kind::kInteger && axis.field.kind != op::Field::Kind::kScalar;
    for (const int64_t cut : cuts_) {
      if (cut > (size ? 0 : INT64_MIN)) integer(cut - 1);
      if (!size || cut >= 0) integer(cut);
    }
  }

  const Conditions& on_;
  std::vector<uint32_t> uses_;  // of each test
  std::map<Filed, std::vector<const Clause*>> filed_;
  std::vector<AxisValue> values_;
  std::vector<int64_t> cuts_;
};

void add_effects(const OpRules& rules, const Names& kernels, Effects& to) {
  const Conditions& conditions = rules.conditions();
  CallSets sets(conditions);
  const Clause* last = nullptr;  // of the same rule: it has the same conditions
  bool possible = true;
  for (const Clause& c : rules.clauses()) {
    const bool score = c.act == Clause::Act::kScore;
    Effect& effect = (score ? to.scores : to.rules)[c.source];
    const CallSets::Literals of = conditions.literals(c.when);
    if (last == nullptr || score || last->source != c.source) {
      ++effect.ops;
      const int axis = sets.impossible_axis(of);
      possible = axis < 0;
      if (!possible) ++effect.impossible, effect.conditions.clear();
      for (size_t i = 0; !possible && i < of.size(); ++i)
        if (sets.axis(of[i]) == axis) effect.conditions.push_back(i);
    }
    last = &c;
    if (!possible || c.act != Clause::Act::kChoose) continue;
    if (const Clause* first = sets.first_cover(of, to.comparisons_left))
      ++effect.shadowed, effect.by = first->source;
    else if (std::any_of(kernels.begin(), kernels.end(),
                         [&](const std::string& id) { return glob_matches(rules.name(c, 0), id); }))
      sets.file(c);
  }
}

namespace {

class Conflicts {
 public:
  explicit Conflicts(Checker& checker)
      : checker_(checker),
        config_(checker.config()),
        policy_(policy_of(config_)),
        statements_(Clauses({policy_}, "", {}).own()) {}

  void check() {
    check_labels();
    if (policy_.empty() && config_.dispatch_rules.empty()) return;
    if (policy_.allow_kernels && policy_.allow_kernels->empty()) return;  // the reader reports it
    check_locks();
    check_ops();
    for (size_t i = 0; i < config_.dispatch_rules.size(); ++i)
      check_rule(config_.dispatch_rules[i], fmt::format("dispatch_rules[{}]", i));
    for (const auto& [op, ref] : config_.static_kernel_map)
      if (const std::string why = excluded_by(op, ref.id); !why.empty())
        warn(ref.at, "static_kernel_map." + op, fmt::format("{} is excluded by {}", ref.id, why),
             "the map has no effect");
  }

 private:
  void warn(ConfigPlace at, std::string path, std::string found, std::string right) {
    checker_.problem(Severity::kWarning, at, std::move(path), std::move(found), std::move(right));
  }

  // The statement that excludes a kernel from all calls of an op; empty if there is none.
  std::string excluded_by(std::string_view op, const std::string& kernel) const {
    const KernelFacts facts = checker_.known().facts(op, kernel);
    for (const Clause& c : statements_.clauses()) {
      if (!statements_.excludes(c, facts)) continue;
      switch (c.act) {
        case Clause::Act::kDeny: return fmt::format("kernel_denies ({})", statements_.name(c, 0));
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

  // The same for all kernels of an op that match, denies before others; empty if one is not excluded, or there is none.
  std::string all_excluded_by(const std::string& op, const std::string& pattern) const {
    std::string why;
    for (const std::string& id : checker_.kernels_of(op)) {
      if (!glob_matches(pattern, id)) continue;
      std::string one = excluded_by(op, id);
      if (one.empty()) return one;
      if (why.empty() || (one.starts_with("kernel_denies") && !why.starts_with("kernel_denies")))
        why = std::move(one);
    }
    return why;
  }

  void check_locks() {
    for (const auto& [op, kernel] : policy_.locks) {
      const auto ref = config_.kernel_locks.find(op);
      const std::string why = excluded_by(op, kernel);
      if (!why.empty())
        warn(ref != config_.kernel_locks.end() ? ref->second.at : ConfigPlace(),
             "kernel_locks." + op, fmt::format("{} is excluded by {}", kernel, why),
             "calls would have no kernel");
    }
  }

  // Ops that are left without a kernel.
  void check_ops() {
    Names lost;
    std::string why;
    for (const std::string& op : checker_.ops()) {
      const std::string excluded = all_excluded_by(op, "*");
      if (excluded.empty()) continue;
      if (lost.empty()) why = excluded;
      lost.push_back(op);
    }
    if (lost.empty()) return;
    constexpr size_t kMostNamed = 3;
    const bool every = lost.size() == checker_.ops().size();
    const size_t more = lost.size() > kMostNamed ? lost.size() - kMostNamed : 0;
    lost.resize(lost.size() - more);
    const std::string ops = every ? "any op"
                            : more > 0
                                ? fmt::format("{} and {} more ops", fmt::join(lost, ", "), more)
                                : fmt::format("{}", fmt::join(lost, ", "));
    const std::string section(why.substr(0, why.find(' ')));
    warn(place_of(section, why), section, "no kernel of " + ops + " may run", "excluded by " + why);
  }

  // Of the entry that check_ops() names.
  ConfigPlace place_of(const std::string& section, const std::string& why) const {
    if (section == "kernel_allows" && config_.kernel_allows && !config_.kernel_allows->empty())
      return config_.kernel_allows->front().at;
    for (const KernelRef& ref : config_.kernel_denies)
      if (why == fmt::format("kernel_denies ({})", ref.id)) return ref.at;
    return {};
  }

  // A kernel that a rule can never choose.
  void check_rule(const DispatchRule& r, const std::string& path) {
    if (r.kernel.empty()) return;
    const auto listed = [&](const std::vector<KernelRef>& refs) {
      return std::any_of(refs.begin(), refs.end(),
                         [&](const KernelRef& k) { return glob_matches(k.id, r.kernel); });
    };
    if (listed(r.deny) || (r.allow && !has_wildcard(r.kernel) && !listed(*r.allow)))
      return warn(r.kernel_at, path + ".kernel",
                  fmt::format("{} is excluded by the rule's own {}", r.kernel,
                              listed(r.deny) ? "deny" : "allow"),
                  "the rule cannot choose it");
    std::string why;
    for (const std::string& op : checker_.matching(r.operation)) {
      const std::string* lock = find_for_op(policy_.locks, op);
      std::string here = lock != nullptr && !glob_matches(r.kernel, *lock)
                             ? fmt::format("kernel_locks ({})", *lock)
                             : all_excluded_by(op, r.kernel);
      if (here.empty()) return;
      why = std::move(here);
    }
    if (!why.empty())
      warn(r.kernel_at, path + ".kernel", fmt::format("{} is excluded by {}", r.kernel, why),
           "the rule cannot choose it");
  }

  void check_labels() {
    Names known = config_.settings.labels;
    known.insert(known.end(), plain_labels().begin(), plain_labels().end());
    for (std::string& label : checker_.known().labels()) known.push_back(std::move(label));
    const auto look = [&](const std::string& name, ConfigPlace at, const std::string& path) {
      if (base::contains(known, name)) return;
      const std::string_view near = base::closest(name, known);
      warn(at, path, fmt::format("no label is called '{}'", name),
           near.empty() ? "expected a label that settings.labels lists"
                        : fmt::format("did you mean '{}'?", near));
    };
    const auto in_rules = [&](const auto& rules, const char* section) {
      for (size_t i = 0; i < rules.size(); ++i)
        for (const Condition& c : rules[i].conditions)
          if (const std::string_view name = own_label(c.key); !name.empty())
            look(std::string(name), c.at, condition_path(fmt::format("{}[{}]", section, i), c.key));
    };
    in_rules(config_.dispatch_rules, "dispatch_rules");
    in_rules(config_.score, "score");
    if (config_.rollout)
      for (const auto& [name, value] : config_.rollout->labels)
        look(name, config_.rollout->at, "rollout.labels." + name);
  }

  Checker& checker_;
  const Config& config_;
  const Policy policy_;
  const ClauseList statements_;  // for all ops
};

}  // namespace

void check_conflicts(Checker& checker) { Conflicts(checker).check(); }

}  // namespace yard::policy
