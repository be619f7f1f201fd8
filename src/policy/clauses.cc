// SPDX-License-Identifier: Apache-2.0
#include "policy/clauses.h"

#include <fmt/format.h>
#include <yard/plugin.h>

#include <algorithm>
#include <limits>

#include "base/lists.h"
#include "policy/config_keys.h"
#include "policy/process.h"

namespace yard::policy {
namespace {

using Act = Clause::Act;

struct ActInfo {
  Act act;
  int32_t reason;
  const char* text;
};
constexpr ActInfo kActs[] = {
    {Act::kForce, YARD_REASON_NOT_FORCED, "force"},
    {Act::kLock, YARD_REASON_LOCKED_OUT, "locks"},
    {Act::kDeny, YARD_REASON_DENIED_KERNEL, "deny_kernels"},
    {Act::kCallDeny, YARD_REASON_DENIED_KERNEL, "the call's deny list"},
    {Act::kAllow, YARD_REASON_NOT_ALLOWED_KERNEL, "allow_kernels"},
    {Act::kDenyVendor, YARD_REASON_DENIED_VENDOR, "deny_vendors"},
    {Act::kAllowVendors, YARD_REASON_NOT_ALLOWED_VENDOR, "allow_vendors"},
    {Act::kSwitchedOff, YARD_REASON_DISABLED, "the backend's switch"},
    {Act::kOffByDefault, YARD_REASON_DISABLED, "the backend's switch"},
    {Act::kReferenceOnly, YARD_REASON_REFERENCE_ONLY, "reference_only"},
    {Act::kOrder, YARD_REASON_NOT_IN_ORDER, "per_op"},
    {Act::kStatic, YARD_REASON_NOT_MAPPED, "mode static"},
    {Act::kRuleDeny, YARD_REASON_DENIED_KERNEL, ""},
    {Act::kRuleAllow, YARD_REASON_NOT_ALLOWED_KERNEL, ""},
    {Act::kMap, YARD_REASON_NONE, ""},
    {Act::kChoose, YARD_REASON_NONE, ""},
    {Act::kScore, YARD_REASON_NONE, ""},
    {Act::kPrefer, YARD_REASON_NONE, "prefer"},
    {Act::kChain, YARD_REASON_NONE, ""},
    {Act::kNoTransforms, YARD_REASON_TRANSFORM, "transforms"},
};
static_assert([] {
  for (size_t i = 0; i < std::size(kActs); ++i)
    if (static_cast<size_t>(kActs[i].act) != i) return false;
  return true;
}());

const ActInfo& info(const Clause& c) { return kActs[static_cast<size_t>(c.act)]; }

bool reads_rules(Mode m) { return m == Mode::kAuto || m == Mode::kConfig || m == Mode::kHotReload; }

// Whether a token of Policy::per_op names the kernel.
bool token_names(std::string_view token, const KernelFacts& k) {
  if (token.starts_with("impl:")) return token.substr(5) == k.id;
  if (token.starts_with("vendor:")) return !k.vendor.empty() && token.substr(7) == k.vendor;
  return token == to_string(k.kind);
}

// The preferred kind, then default, vendor and reference.
std::vector<std::string> kinds_from(Kind first) {
  std::vector<std::string> kinds{to_string(first)};
  for (const Kind k : {Kind::kDefault, Kind::kVendor, Kind::kReference})
    if (k != first) kinds.emplace_back(to_string(k));
  return kinds;
}

// "static_kernel_map (rules.yaml:7)"
std::string placed(const Config& config, const std::string& what, const KernelRef& ref) {
  const std::string place = place_text(config, ref.at);
  return what + (place.empty() ? " of the rules" : place);
}

}  // namespace

// ---- Lists ----

void ClauseList::add(Clause clause, std::span<const std::string> names) {
  clause.first_name = static_cast<uint32_t>(names_.size());
  clause.names = static_cast<uint32_t>(names.size());
  for (const std::string& name : names) {
    const auto [it, is_new] = text_ids_.emplace(name, static_cast<uint32_t>(texts_.size()));
    if (is_new) texts_.push_back(name);
    names_.push_back(it->second);
  }
  clauses_.push_back(clause);
}

bool ClauseList::lists(const Clause& c, std::string_view text) const {
  for (uint32_t i = 0; i < c.names; ++i)
    if (name(c, i) == text) return true;
  return false;
}

bool ClauseList::matches(const Clause& c, std::string_view text) const {
  for (uint32_t i = 0; i < c.names; ++i)
    if (glob_matches(name(c, i), text)) return true;
  return false;
}

uint32_t ClauseList::place(const Clause& c, const KernelFacts& k) const {
  uint32_t i = 0;
  while (i < c.names && !token_names(name(c, i), k)) ++i;
  return i;
}

bool ClauseList::excludes(const Clause& c, const KernelFacts& k) const {
  switch (c.act) {
    case Act::kForce:
    case Act::kLock:
    case Act::kStatic: return !lists(c, k.id);
    case Act::kDeny:
    case Act::kCallDeny:
    case Act::kRuleDeny: return matches(c, k.id);
    case Act::kAllow:
    case Act::kRuleAllow: return !matches(c, k.id);
    case Act::kDenyVendor: return !k.vendor.empty() && lists(c, k.vendor);
    case Act::kAllowVendors: return !k.vendor.empty() && !lists(c, k.vendor);
    case Act::kSwitchedOff: return lists(c, k.backend);
    case Act::kOffByDefault: return !k.on && !lists(c, k.backend);
    case Act::kReferenceOnly: return k.kind != Kind::kReference;
    case Act::kOrder: return place(c, k) == c.names;
    default: return false;
  }
}

std::vector<uint32_t> OpRules::match(const CallView& call) const {
  std::vector<uint8_t> truth;
  std::vector<uint32_t> to;
  conditions_.evaluate(call, truth);
  for (uint32_t i = 0; i < clauses().size(); ++i)
    if (conditions_.hold(clauses()[i].when, truth)) to.push_back(i);
  return to;
}

// ---- Compiling rules ----

// Compiles the rules of a Config for one op.
class RuleCompiler {
 public:
  RuleCompiler(const Config& config, const op::Program& program, RuleReport* report)
      : config_(config), op_(program.name()), report_(report), fields_(program) {}

  OpRules compile() {
    const std::vector<DispatchRule>& rules = config_.dispatch_rules;
    const int usual = config_.defaults.default_priority.value_or(kDefaultPriority);
    std::vector<uint32_t> mine;
    for (uint32_t i = 0; i < rules.size(); ++i)
      if (glob_matches(rules[i].operation, op_)) mine.push_back(i);
    std::stable_sort(mine.begin(), mine.end(), [&](uint32_t a, uint32_t b) {
      return rules[a].priority.value_or(usual) > rules[b].priority.value_or(usual);
    });
    for (const uint32_t i : mine) {
      const DispatchRule& r = rules[i];
      const auto when = conjunction(r.conditions, i);
      if (!when) continue;
      if (!r.deny.empty()) to_.add({Act::kRuleDeny, *when, 0, 0, i}, ids(r.deny));
      if (r.allow) to_.add({Act::kRuleAllow, *when, 0, 0, i}, ids(*r.allow));
      if (!r.kernel.empty()) to_.add({Act::kChoose, *when, 0, 0, i}, {&r.kernel, 1});
    }
    for (uint32_t i = 0; i < config_.score.size(); ++i) {
      const ScoreRule& r = config_.score[i];
      if (!glob_matches(r.operation, op_)) continue;
      if (const auto when = conjunction(r.conditions, rules.size() + i))
        to_.add({Act::kScore, *when, 0, 0, i, r.add, r.multiply}, {&r.kernel, 1});
    }
    conditions_.finish();
    to_.finish();
    return std::move(to_);
  }

 private:
  static std::vector<std::string> ids(const std::vector<KernelRef>& refs) {
    std::vector<std::string> to;
    for (const KernelRef& ref : refs) to.push_back(ref.id);
    return to;
  }

  // Returns nothing if the op lacks one of the fields, or a condition is invalid.
  std::optional<Conjunction> conjunction(const std::vector<Condition>& conditions, size_t rule) {
    for (const Condition& c : conditions)
      if (key_of(c).field == nullptr) return std::nullopt;
    const bool valid = std::all_of(conditions.begin(), conditions.end(), [&](const Condition& c) {
      Wrong wrong;
      return conditions_.add(*key_of(c).field, key_of(c).op, c, wrong);
    });
    if (report_ != nullptr) (valid ? report_->applies : report_->invalid)[rule] = true;
    if (valid) return conditions_.end();
    conditions_.drop();
    return std::nullopt;
  }

  const SplitKey& key_of(const Condition& c) {
    auto it = keys_.find(c.key);
    if (it == keys_.end()) it = keys_.emplace(c.key, split_key(c.key, fields_)).first;
    return it->second;
  }

  const Config& config_;
  const std::string_view op_;
  RuleReport* const report_;
  OpRules to_;
  OpFields fields_;
  ConditionCompiler conditions_{to_.conditions_};
  std::unordered_map<std::string_view, SplitKey> keys_;
};

OpRules compile_rules(const Config& config, const op::Program& program, RuleReport* report) {
  return RuleCompiler(config, program, report).compile();
}

// ---- The list of one op ----

Clauses::Clauses(ClauseSources sources, std::string_view op, std::span<const KernelFacts> kernels)
    : sources_(std::move(sources)), op_(op) {
  if (sources_.without && sources_.without->act == Act::kStatic)
    sources_.mode.mode = Mode::kDynamic;
  read_policy();
  read_mode();
  own_.finish();
  apply_to(kernels);
}

void Clauses::add(Act act, std::span<const std::string> names) { own_.add({act}, names); }

void Clauses::read_policy() {
  const Policy& p = sources_.policy;
  const auto left_out = [&](Act act) { return sources_.without && sources_.without->act == act; };
  const auto add_each = [&](Act act, const std::vector<std::string>& names) {
    for (const std::string& name : names) add(act, {&name, 1});
  };
  // A forced kernel bypasses locks, and both bypass the order of the op and its static kernel.
  const bool forced = !sources_.force.empty() && !left_out(Act::kForce);
  const std::string* lock = forced || left_out(Act::kLock) ? nullptr : find_for_op(p.locks, op_);
  if (forced) add(Act::kForce, {&sources_.force, 1});
  if (lock != nullptr) add(Act::kLock, {lock, 1});
  add_each(Act::kDeny, p.deny_kernels);
  add_each(Act::kCallDeny, sources_.deny);
  if (p.allow_kernels) add(Act::kAllow, *p.allow_kernels);
  add_each(Act::kDenyVendor, p.deny_vendors);
  if (p.allow_vendors) add(Act::kAllowVendors, *p.allow_vendors);
  std::vector<std::string> on;
  for (const auto& [backend, is_on] : p.backends) {
    if (!is_on) add(Act::kSwitchedOff, {&backend, 1});
    on.push_back(backend);
  }
  add(Act::kOffByDefault, on);
  if (p.reference_only.value_or(false)) add(Act::kReferenceOnly);
  if (p.prefer) add(Act::kPrefer, kinds_from(*p.prefer));
  const bool* transforms = find_for_op(p.transforms, op_);
  if (transforms != nullptr && !*transforms && !left_out(Act::kNoTransforms))
    add(Act::kNoTransforms);

  mapped_ = sources_.mapped;
  const Config* config = sources_.file != nullptr ? &sources_.file->config : nullptr;
  const KernelRef* ref = config != nullptr ? find_for_op(config->static_kernel_map, op_) : nullptr;
  if (mapped_.empty() && ref != nullptr) mapped_ = ref->id;
  const ModeSettings& m = sources_.mode;
  if (!forced && lock == nullptr) {
    const auto order = p.per_op.find(op_);
    if (order != p.per_op.end() && !left_out(Act::kOrder)) add(Act::kOrder, order->second);
    if (!mapped_.empty() && (m.mode == Mode::kStatic || m.mode == Mode::kAuto))
      add(Act::kMap, {&mapped_, 1});
    if (m.is_static_only()) add(Act::kStatic, {&mapped_, 1});
  }
  if (config == nullptr) return;
  std::vector<std::string> chain;
  for (const KernelRef& k : chain_of(*config, op_)) chain.push_back(k.id);
  if (!chain.empty()) add(Act::kChain, chain);
}

void Clauses::read_mode() {
  const ModeSettings& m = sources_.mode;
  using Takes = ClauseGroup::Takes;
  const auto add_group = [&](Mode mode, Takes takes) {
    groups_.push_back({mode, sources_.rules != nullptr && reads_rules(mode), takes});
  };
  if (m.mode == Mode::kStatic && !m.fallback.empty()) {
    add_group(Mode::kStatic, Takes::kMapped);
    for (const Mode& mode : m.fallback)
      add_group(mode, mode == Mode::kConfig && &mode != &m.fallback.back() ? Takes::kChosen
                                                                           : Takes::kAll);
  } else {
    add_group(m.mode, Takes::kAll);
  }
  if (sources_.rules == nullptr) return;
  // Rules that deny or allow count in every mode.
  const auto rules = sources_.rules->clauses();
  reads_rules_ = std::any_of(groups_.begin(), groups_.end(), [](auto& g) { return g.rules; }) ||
                 std::any_of(rules.begin(), rules.end(), [](const Clause& c) {
                   return c.act == Act::kRuleDeny || c.act == Act::kRuleAllow;
                 });
}

// Applies the clauses without conditions.
void Clauses::apply_to(std::span<const KernelFacts> kernels) {
  always_.resize(kernels.size());
  const auto& without = sources_.without;
  const auto left_out = [&](const ClauseList& list, const Clause& c) {
    return without && c.act == without->act && c.source == without->source &&
           list.excludes(c, without->kernel);
  };
  for (uint32_t i = 0; i < own_.clauses().size(); ++i) {
    const Clause& c = own_.clauses()[i];
    if (left_out(own_, c)) continue;
    for (size_t k = 0; k < kernels.size(); ++k)
      if (always_[k].excluded == kNoClause && own_.excludes(c, kernels[k])) always_[k].excluded = i;
  }
  const auto matching = [&](const std::string& pattern) {
    std::vector<uint16_t> to;
    for (size_t k = 0; k < kernels.size(); ++k)
      if (glob_matches(pattern, kernels[k].id)) to.push_back(static_cast<uint16_t>(k));
    return to;
  };
  if (reads_rules_) {
    const OpRules& rules = *sources_.rules;
    for (const std::string& pattern : rules.texts()) named_.push_back(matching(pattern));
    for (uint32_t i = 0; i < rules.clauses().size(); ++i) {
      if (left_out(rules, rules.clauses()[i])) left_out_ = i;
      if (rules.clauses()[i].when.count == 0) apply(i, always_);
    }
  }
  const Clause *map = find(Act::kMap), *order = find(Act::kOrder), *prefer = find(Act::kPrefer);
  for (const KernelFacts& k : kernels) {
    int tier = k.kind == Kind::kReference ? 1 : 0;
    if (order != nullptr || prefer != nullptr)
      tier = static_cast<int>(own_.place(order != nullptr ? *order : *prefer, k));
    if (map != nullptr && k.id == own_.name(*map, 0)) tier = -1;
    tiers_.push_back(tier);
  }
  if (const Clause* chain = find(Act::kChain))
    for (uint32_t i = 0; i < chain->names; ++i)
      for (const uint16_t k : matching(own_.name(*chain, i)))
        if (!base::contains(chain_, k)) chain_.push_back(k);
}

// Applies a clause of the rules that holds.
void Clauses::apply(uint32_t index, std::vector<Ruling>& to) const {
  if (index == left_out_) return;
  const OpRules& rules = *sources_.rules;
  const Clause& c = rules.clauses()[index];
  const uint32_t rank = static_cast<uint32_t>(own_.clauses().size()) + index;
  const auto each = [&](auto f) {
    for (uint32_t i = 0; i < c.names; ++i)
      for (const uint16_t k : named_[rules.text_of(c, i)]) f(to[k]);
  };
  switch (c.act) {
    case Act::kRuleDeny: return each([&](Ruling& r) { r.excluded = std::min(r.excluded, rank); });
    case Act::kChoose: return each([&](Ruling& r) { r.chosen = std::min(r.chosen, rank); });
    case Act::kScore:
      return each([&](Ruling& r) {
        r.add += c.add;
        r.multiply = std::min(r.multiply * c.multiply, std::numeric_limits<double>::max());
      });
    default: break;
  }
  // kRuleAllow
  for (size_t k = 0; k < to.size(); ++k) {
    bool named = false;
    for (uint32_t i = 0; i < c.names; ++i)
      named = named || base::contains(named_[rules.text_of(c, i)], static_cast<uint16_t>(k));
    if (!named) to[k].excluded = std::min(to[k].excluded, rank);
  }
}

void Clauses::evaluate(const CallView& call, Rulings& to) const {
  to.kernels = always_;
  if (!reads_rules_) return;
  const OpRules& rules = *sources_.rules;
  rules.conditions().evaluate(call, to.truth);
  const std::span<const Clause> all = rules.clauses();
  for (uint32_t i = 0; i < all.size(); ++i)
    if (all[i].when.count > 0 && rules.conditions().hold(all[i].when, to.truth))
      apply(i, to.kernels);
}

std::vector<const Clause*> Clauses::scores(const CallView& call, size_t kernel) const {
  std::vector<const Clause*> to;
  if (std::none_of(groups_.begin(), groups_.end(), [](auto& g) { return g.rules; })) return to;
  const OpRules& rules = *sources_.rules;
  for (const uint32_t i : rules.match(call)) {
    const Clause& c = rules.clauses()[i];
    if (c.act == Act::kScore && base::contains(named_[rules.text_of(c, 0)], kernel))
      to.push_back(&c);
  }
  return to;
}

const Clause& Clauses::clause(uint32_t i) const {
  const size_t own = own_.clauses().size();
  return i < own ? own_.clauses()[i] : sources_.rules->clauses()[i - own];
}

const Clause* Clauses::find(Act act) const {
  const auto all = own_.clauses();
  const auto it = std::find_if(all.begin(), all.end(), [&](auto& c) { return c.act == act; });
  return it != all.end() ? &*it : nullptr;
}

std::shared_ptr<const Conditions> Clauses::conditions() const {
  if (!reads_rules_) return nullptr;
  return {sources_.rules, &sources_.rules->conditions()};
}

int32_t Clauses::reason(const Clause& c) noexcept { return info(c).reason; }

std::string Clauses::text(const Clause& c) const {
  if (c.act == Act::kMap && !sources_.mapped.empty()) return "the program's static map";
  if (info(c).text[0] != '\0') return info(c).text;
  const Config& config = sources_.file->config;
  if (c.act == Act::kMap)
    return placed(config, "static_kernel_map", *find_for_op(config.static_kernel_map, op_));
  if (c.act == Act::kChain) {
    const std::vector<KernelRef>& chain = chain_of(config, op_);
    for (const auto& [pattern, kernels] : config.fallback_chains)
      if (&kernels == &chain) return placed(config, "fallback_chains." + pattern, chain[0]);
    return placed(config, "defaults.fallback_policy", chain[0]);
  }
  if (c.act == Act::kScore)
    return fmt::format("score[{}]{}", c.source, place_text(config, config.score[c.source].at));
  const DispatchRule& rule = config.dispatch_rules[c.source];
  return (rule.name.empty() ? fmt::format("dispatch_rules[{}]", c.source)
                            : fmt::format("rule '{}'", rule.name)) +
         place_text(config, rule.at);
}

// ---- Where clauses come from ----

ClauseSources sources_for(const ProcessPolicy& process,
                          const std::shared_ptr<const op::Program>& program) {
  ClauseSources to{process.in_force};
  const std::string op(program->name());
  const auto& mapped = process.mapped.kernels();
  if (const auto it = mapped.find(op); it != mapped.end()) to.mapped = it->second;
  if (process.file == nullptr) return to;
  const Config& config = process.file->config;
  to.file = process.file;
  to.rules = process.file->rules_for(program);
  if (const std::string* mode = mode_of(config, op))
    set_mode(to.mode, *process.modes, *mode, "file");
  for (const std::string& mode : config.settings.mode_fallback)
    if (const auto m = parse_mode(mode)) to.mode.fallback.push_back(*m);
  return to;
}

void set_mode(ModeSettings& to, const Modes& modes, const std::string& name, const char* by) {
  to.source = by;
  to.program = nullptr;
  if (const auto mode = parse_mode(name)) {
    to.mode = *mode;
  } else if (const auto it = modes.find(name); it != modes.end()) {
    to.mode = Mode::kProgram;
    to.program = it->second;
  }
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
