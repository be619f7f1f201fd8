// SPDX-License-Identifier: Apache-2.0
// Policy as clauses: one ordered list of everything that policies, rule files, scopes and calls say
// about the kernels of an op. Precedence is applied before the list is made: a stronger source
// replaces what a weaker one says about a field, and an exact op name beats a glob. Clauses without
// conditions are applied when the list is made, and evaluate() applies the others to a call. An
// explanation names the clause that decided. A counterfactual is the list without one clause.
#pragma once

#include <yard/options.h>

#include "policy/conditions.h"

namespace yard::policy {

class FileRules;
struct ProgramMode;

// Borrows the texts.
struct KernelFacts {
  std::string_view id, vendor = {}, backend = {};  // `vendor` may be empty
  Kind kind = Kind::kDefault;
  bool on = true;  // its backend is used unless something switches it off
};

struct Clause {
  enum class Act : uint8_t {
    // These exclude kernels, and the first that does is the reason. kOffByDefault names the
    // backends to which it does not apply, and kOrder the tokens of Policy::per_op.
    kForce,
    kLock,
    kDeny,
    kAllow,
    kDenyVendor,
    kAllowVendors,
    kSwitchedOff,
    kOffByDefault,
    kReferenceOnly,
    kOrder,
    kStatic,
    // These change the order of kernels. kPrefer names kinds, and kChain names fallbacks.
    kMap,
    kChoose,
    kScore,
    kPrefer,
    kChain,
    kNoTransforms
  };
  Act act;
  std::vector<std::string> names = {};  // kernels as ids or globs, vendors, backends or tokens
  Conjunction when = {};
  static constexpr uint32_t kPolicy = UINT32_MAX, kCall = kPolicy - 1;
  uint32_t source = kPolicy;     // or index into Config::dispatch_rules or Config::score
  double add = 0, multiply = 1;  // kScore

  bool of_rule() const noexcept { return source < kCall; }
  bool excludes(const KernelFacts& k) const;
  // Returns the index of the first token that names the kernel, or names.size().
  size_t place(const KernelFacts& k) const;
};

struct ConditionReport {
  bool known = false;              // some op has the field
  std::optional<Wrong> wrong;      // invalid for an op that has all fields of the rule
  std::optional<Wrong> elsewhere;  // invalid for another op that has the field
};
struct RuleReport {  // by rule, then by condition
  std::vector<std::vector<ConditionReport>> rules, scores;
};

// The clauses of one op in a rule file: dispatch_rules, best first, then score. Immutable.
class OpRules {
 public:
  std::span<const Clause> clauses() const noexcept { return clauses_; }
  bool empty() const noexcept { return clauses_.empty(); }
  const Conditions& conditions() const noexcept { return conditions_; }
  // Returns the indices of the clauses that hold for a call.
  std::vector<uint32_t> match(const CallView& call) const;

 private:
  friend OpRules compile_rules(const Config&, const op::Program&, RuleReport*);
  std::vector<Clause> clauses_;
  Conditions conditions_;
};

// Leaves out rules with invalid conditions or with fields that the op lacks.
OpRules compile_rules(const Config& config, const op::Program& program,
                      RuleReport* report = nullptr);

// Returns null if the op has no rules.
using RulesByOp = std::map<std::shared_ptr<const op::Program>, std::shared_ptr<const OpRules>>;

// Finds an op's value in a map from names and globs, or null. Exact names win, then longer globs.
template <class Map>
const typename Map::mapped_type* find_for_op(const Map& map, std::string_view op) {
  if (const auto it = map.find(op); it != map.end()) return &it->second;
  const typename Map::mapped_type* best = nullptr;
  size_t length = 0;
  for (const auto& [pattern, value] : map)
    if (pattern.size() > length && glob_matches(pattern, op))
      best = &value, length = pattern.size();
  return best;
}
std::vector<std::string> ids(const std::vector<KernelRef>& refs);
const std::vector<KernelRef>& chain_of(const Config& config, std::string_view op);
const std::string* mode_of(const Config& config, std::string_view op);
// Returns " (rules.yaml:7)", or an empty text for rules that were made in code.
std::string place_text(const Config& config, ConfigPlace at);

// ---- The list of one op ----

struct ModeSettings {
  Mode mode = Mode::kAuto;
  const char* source = nullptr;                // "file", "scope" or "call", or null
  std::shared_ptr<const ProgramMode> program;  // for Mode::kProgram
  std::vector<Mode> fallback;                  // for Mode::kStatic

  bool is_static_only() const noexcept { return mode == Mode::kStatic && fallback.empty(); }
};

struct ClauseSources {
  Policy policy;                       // of all sources together
  std::string force = {};              // of the call
  std::vector<std::string> deny = {};  // of the call
  ModeSettings mode = {};
  std::string mapped = {};  // the op's kernel in the program's static map; may be empty
  std::shared_ptr<const FileRules> file = {};  // may be null
  std::shared_ptr<const OpRules> rules = {};   // the rules of `file` for the op; may be null
  // For counterfactuals, leaves out the clauses of this kind and source that exclude the kernel.
  struct Without {
    Clause::Act act;
    uint32_t source;
    KernelFacts kernel;
  };
  std::optional<Without> without = {};
};

// A mode that orders the kernels which the modes before it left, and takes some of them.
struct ClauseGroup {
  enum class Takes : uint8_t { kMapped, kChosen, kAll };
  Mode mode = Mode::kAuto;
  bool rules = false;  // kernels are chosen and scored by rules
  Takes takes = Takes::kAll;
};

inline constexpr uint32_t kNoClause = UINT32_MAX;

struct Ruling {
  uint32_t excluded = kNoClause;  // the first clause that excludes it
  uint32_t chosen = kNoClause;    // the best rule that names it
  double add = 0, multiply = 1;   // to its priority
};
// Reuse one to save allocations.
struct Rulings {
  std::vector<Ruling> kernels;
  std::vector<AxisValue> values;
  std::vector<uint8_t> truth;
};

class Clauses {
 public:
  Clauses(ClauseSources sources, std::string_view op, std::span<const KernelFacts> kernels);

  const ClauseSources& sources() const noexcept { return sources_; }
  std::span<const Clause> own() const noexcept { return own_; }
  const Clause& clause(size_t i) const;
  size_t size() const noexcept { return own_.size() + of_rules().size(); }
  const Clause* find(Clause::Act act) const;
  // Returns the source of the clause, such as "deny_vendors" or "rule 'wide rows' (rules.yaml:7)".
  std::string text(const Clause& c) const;
  // Returns the YARD_REASON_* of a clause that excludes kernels.
  static int32_t reason(const Clause& c) noexcept;

  const Ruling& always(size_t kernel) const noexcept { return always_[kernel]; }
  // Ranks a kernel by the static map, the op's order or the preferred kind. Lower is better.
  int tier(size_t kernel) const noexcept { return tiers_[kernel]; }
  std::span<const ClauseGroup> groups() const noexcept { return groups_; }
  const std::vector<uint16_t>& chain() const noexcept { return chain_; }
  const std::string& mapped() const noexcept { return mapped_; }

  // Returns null if no rule applies.
  std::shared_ptr<const Conditions> conditions() const;
  void evaluate(const CallView& call, Rulings& to) const;
  // Returns the score clauses that hold for a call and name the kernel.
  std::vector<const Clause*> scores(const CallView& call, std::string_view kernel) const;

 private:
  struct Rule {
    uint32_t index;
    Conjunction when;
  };

  std::span<const Clause> of_rules() const noexcept {
    return sources_.rules != nullptr ? sources_.rules->clauses() : std::span<const Clause>();
  }
  void read_policy();
  void read_mode();
  void apply_own(std::span<const KernelFacts> kernels);
  void read_rules(std::span<const KernelFacts> kernels);
  void apply(uint32_t rule, std::vector<Ruling>& to) const;
  bool is_left_out(const Clause& c) const;

  ClauseSources sources_;
  std::string op_, mapped_;
  std::vector<Clause> own_;
  std::vector<Ruling> always_;
  std::vector<int> tiers_;
  std::vector<ClauseGroup> groups_;
  std::vector<uint16_t> chain_;
  std::vector<Rule> rules_;                     // with conditions
  std::vector<std::vector<uint16_t>> targets_;  // kernels that a rule excludes, chooses or scores
  bool reads_rules_ = false;
};

}  // namespace yard::policy
