// SPDX-License-Identifier: Apache-2.0
// Applies the statements of a Config as a runtime would, and reports those that make no sense.
#include "policy/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/lists.h"
#include "policy/config_files.h"

namespace yard::policy {
namespace {

// Compares the calls that rules of one op match. On each axis it tries one value of every class
// that tests distinguish. Borrows the conditions.
class CallSets {
 public:
  using Literals = std::span<const uint32_t>;
  explicit CallSets(const Conditions& conditions) : on_(conditions) {}

  const Test& test(uint32_t literal) const { return on_.tests()[literal / 2]; }
  uint16_t axis(uint32_t literal) const { return test(literal).axis; }

  // Makes a call that passes the literals. Returns an axis on which no value passes, or -1.
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

  // Whether the rule holds for every call that passes `narrow`. Call sample(narrow) first. Returns
  // false once `most` is used up.
  bool covers(const Clause& rule, Literals narrow, size_t& most) {
    constexpr size_t kCost = 600;  // cost of comparing all values
    if (truth_.empty()) {
      on_.evaluate(call_, truth_);
      for (const uint32_t l : narrow) truth_[l] = 1;  // a pattern holds for some text
    }
    if (most <= kCost) return false;
    --most;
    // Only a rule that holds for the sample can cover.
    if (!on_.hold(rule.when, truth_)) return false;
    most -= kCost;
    return covers(on_.literals(rule.when), narrow);
  }

 private:
  static constexpr char kUnlisted[] = "\x01";
  static constexpr int64_t kUnlistedDevice = int64_t{1} << 40;

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

  // Whether a value passes the literals on its axis. Patterns may match texts that no test lists.
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
    for (const int64_t i : axis.domain) integer(i);
    if (!axis.domain.empty()) return;
    switch (axis.kind) {
      case Axis::Kind::kText:
      case Axis::Kind::kLabel:
        if (t.kind == Test::Kind::kTextOneOf)
          for (const std::string& text : t.texts) values_.push_back({true, 0, text});
        values_.push_back({true, 0, std::string_view(kUnlisted)});
        return;
      case Axis::Kind::kDevice:
        for (const int64_t i : t.integers) integer(i), integer(i | 0xffff);
        return integer(kUnlistedDevice);
      default: break;
    }
    std::vector<int64_t> cuts;
    t.add_cuts(cuts);
    if (cuts.empty()) integer(0);
    const bool never_negative =
        (axis.kind == Axis::Kind::kInteger || axis.kind == Axis::Kind::kTimes) &&
        axis.field.kind != op::Field::Kind::kScalar;
    for (const int64_t cut : cuts) {
      if (cut > (never_negative ? 0 : INT64_MIN)) integer(cut - 1);
      if (!never_negative || cut >= 0) integer(cut);
    }
  }

  const Conditions& on_;
  std::vector<AxisValue> values_, call_;
  std::vector<uint8_t> truth_;  // of the literals for `call_`, or empty
};

using Act = Clause::Act;

constexpr auto kAll = [](const KernelFacts&) { return true; };
constexpr Path kRules{&kTop, "dispatch_rules"}, kScores{&kTop, "score"};

// The effect of a rule on its ops.
struct Effect {
  uint32_t ops = 0;
  uint32_t impossible = 0;            // ops whose calls cannot pass all conditions
  uint32_t shadowed = 0, by = 0;      // ops where rule `by` comes first for all of its calls
  uint32_t named = 0, barred = 0;     // ops that have its kernels; ops where these may not run
  std::string why;                    // what excludes the kernels
  Names lost;                         // ops that have no kernel for its calls
  std::vector<size_t> contradicting;  // indices of conditions
};

class Conflicts {
 public:
  Conflicts(const OpsUnderConfig& ops, Findings& to) : ops_(ops), to_(to) {}

  void check() {
    const Config& config = to_.config;
    effects_[0].resize(config.dispatch_rules.size()), effects_[1].resize(config.score.size());
    for (const OpUnderConfig& op : ops_)
      if (const auto& rules = op.clauses.sources().rules; rules != nullptr) examine(op, *rules);
    report(config.dispatch_rules, effects_[0], kRules, "the rule cannot choose it");
    report(config.score, effects_[1], kScores, "the entry has no effect");
    check_ops();
  }

 private:
  void examine(const OpUnderConfig& op, const OpRules& rules) {
    const Conditions& conditions = rules.conditions();
    CallSets sets(conditions);
    std::vector<const Clause*> excluding, choosing, also;
    for (const Clause& c : rules.clauses())
      if (c.when.count > 0 && (c.act == Act::kDeny || c.act == Act::kAllow))
        excluding.push_back(&c);
    const bool lost = exclusion(op, kAll).by != nullptr;
    const Effect* last = nullptr;  // clauses of one rule have the same conditions
    bool possible = true;
    for (const Clause& c : rules.clauses()) {
      Effect& effect = effects_[c.act == Act::kScore ? 1 : 0][c.source];
      const CallSets::Literals calls = conditions.literals(c.when);
      if (&effect != last) {
        ++effect.ops;
        also.clear();
        const int axis = sets.sample(calls);
        possible = axis < 0;
        if (!possible) ++effect.impossible, effect.contradicting.clear();
        for (size_t i = 0; !possible && i < calls.size(); ++i)
          if (sets.axis(calls[i]) == axis) effect.contradicting.push_back(i);
        for (const Clause* e : excluding)
          if (possible && sets.covers(*e, calls, comparisons_left_)) also.push_back(e);
      }
      last = &effect;
      if (!possible) continue;
      if (c.act == Act::kDeny || c.act == Act::kAllow) {
        if (!lost && exclusion(op, kAll, also).by != nullptr &&
            !base::contains(effect.lost, op.name))
          effect.lost.push_back(op.name);
        continue;
      }
      const auto named = [&](const KernelFacts& k) { return glob_matches(c.names[0], k.id); };
      const Exclusion e = exclusion(op, named, also);
      effect.named += e.any ? 1 : 0;
      if (e.by != nullptr && ++effect.barred == 1)
        effect.why = statement(op, *e.by, c.act == Act::kChoose ? c.source : kNoClause);
      if (c.act != Act::kChoose) continue;
      const auto first = std::ranges::find_if(choosing, [&](const Clause* rule) {
        return sets.covers(*rule, calls, comparisons_left_);
      });
      if (first != choosing.end())
        ++effect.shadowed, effect.by = (*first)->source;
      else if (e.any)
        choosing.push_back(&c);
    }
  }

  template <class Rule>
  void report(const std::vector<Rule>& rules, const std::vector<Effect>& effects, const Path& list,
              const char* barred) {
    for (size_t i = 0; i < rules.size(); ++i) {
      const Rule& r = rules[i];
      const Effect& e = effects[i];
      const Path path{&list, {}, i};
      if (e.ops == 0) continue;
      if (e.impossible == e.ops) {
        Names keys;
        for (const size_t c : e.contradicting) keys.push_back(shown(r.conditions[c].key, false));
        to_.warn({r.at, {&path, "conditions"}},
                 fmt::format("no call can pass {}", fmt::join(keys, " and ")),
                 "the rule has no effect");
      } else if (e.impossible + e.shadowed == e.ops) {
        to_.warn(
            {r.at, path}, fmt::format("dispatch_rules[{}] comes first for all of its calls", e.by),
            "expected a higher priority, other conditions, or fallback_chains for a second choice");
      }
      if (e.barred > 0 && e.barred == e.named)
        to_.warn({r.kernel_at, {&path, "kernel"}},
                 fmt::format("{} is excluded by {}", r.kernel, e.why), barred);
      if (!e.lost.empty())
        to_.warn({r.at, path}, fmt::format("no kernel of {} may serve its calls", some(e.lost)),
                 "they fail");
    }
  }

  // Locks, orders and static maps that leave an op without a kernel are reported elsewhere.
  void check_ops() {
    // By the statement that excludes the kernels.
    std::map<std::string, std::pair<Names, const Clause*>> lost;
    for (const OpUnderConfig& op : ops_) {
      const Clause* by = exclusion(op, kAll).by;
      const auto takes = {Act::kLock, Act::kOrder, Act::kStatic};
      if (by == nullptr || std::ranges::any_of(takes, [&](Act a) { return op.clauses.find(a); }))
        continue;
      auto& [ops, first] = lost[statement(op, *by)];
      ops.push_back(op.name), first = by;
    }
    for (const auto& [why, of] : lost) {
      const auto& [ops, by] = of;
      const bool all = ops.size() == ops_.size();
      to_.warn(where_of(*by, why),
               fmt::format("no kernel of {} may run", all ? "any op" : some(ops)),
               "excluded by " + why);
    }
  }

  Where where_of(const Clause& c, const std::string& statement) const {
    if (c.of_rule()) return {to_.config.dispatch_rules[c.source].at, {&kRules, {}, c.source}};
    ConfigPlace at;
    if (c.act == Act::kAllow && to_.config.kernel_allows) at = to_.config.kernel_allows->front().at;
    for (const KernelRef& ref : to_.config.kernel_denies)
      if (c.act == Act::kDeny && c.names[0] == ref.id) at = ref.at;
    return {at, {&kTop, std::string_view(statement).substr(0, statement.find(' '))}};
  }

  static std::string some(const Names& ops) {
    constexpr size_t kMost = 3;
    const size_t named = std::min(ops.size(), kMost);
    const std::string to = fmt::format("{}", fmt::join(std::span(ops).first(named), ", "));
    return named == ops.size() ? to : fmt::format("{} and {} more ops", to, ops.size() - named);
  }

  const OpsUnderConfig& ops_;
  Findings& to_;
  std::vector<Effect> effects_[2];        // of dispatch_rules and of score
  size_t comparisons_left_ = 50'000'000;  // of two rules; later conflicts are not found
};

}  // namespace

Exclusion exclusion(const OpUnderConfig& op, const std::function<bool(const KernelFacts&)>& means,
                    const std::vector<const Clause*>& also) {
  Exclusion to;
  for (size_t k = 0; k < op.kernels.size(); ++k) {
    if (!means(op.kernels[k])) continue;
    const uint32_t always = op.clauses.always(k).excluded;
    const auto it =
        std::ranges::find_if(also, [&](const Clause* c) { return c->excludes(op.kernels[k]); });
    const Clause* by = always != kNoClause ? &op.clauses.clause(always)
                       : it != also.end()  ? *it
                                           : nullptr;
    // The environment may still switch a backend on, and a plugin may bring the kernel of a lock.
    const auto locked = [&](const KernelFacts& other) { return other.id == by->names[0]; };
    if (by == nullptr || by->act == Act::kOffByDefault ||
        (by->act == Act::kLock && std::ranges::none_of(op.kernels, locked)))
      return {true, nullptr};
    if (!to.any || (by->act == Act::kDeny && to.by->act != Act::kDeny)) to = {true, by};
  }
  return to;
}

std::string statement(const OpUnderConfig& op, const Clause& c, uint32_t own) {
  if (c.of_rule() && c.source == own)
    return fmt::format("the rule's own {}", c.act == Act::kDeny ? "deny" : "allow");
  if (c.of_rule()) return fmt::format("dispatch_rules[{}]", c.source);
  switch (c.act) {
    case Act::kStatic: return "mode static";
    case Act::kLock: return fmt::format("kernel_locks ({})", c.names[0]);
    case Act::kDeny: return fmt::format("kernel_denies ({})", c.names[0]);
    case Act::kAllow: return "kernel_allows";
    case Act::kSwitchedOff: return "policy.backends";
    default: return "policy." + op.clauses.text(c);
  }
}

void check_conflicts(const OpsUnderConfig& ops, Findings& to) { Conflicts(ops, to).check(); }

}  // namespace yard::policy
