// SPDX-License-Identifier: Apache-2.0
#include "policy/clauses.h"

#include <fmt/format.h>

#include <limits>

#include "policy/check.h"
#include "policy/config_rows.h"
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
    {Act::kAllow, YARD_REASON_NOT_ALLOWED_KERNEL, "allow_kernels"},
    {Act::kDenyVendor, YARD_REASON_DENIED_VENDOR, "deny_vendors"},
    {Act::kAllowVendors, YARD_REASON_NOT_ALLOWED_VENDOR, "allow_vendors"},
    {Act::kSwitchedOff, YARD_REASON_DISABLED, "the backend's switch"},
    {Act::kOffByDefault, YARD_REASON_DISABLED, "the backend's switch"},
    {Act::kReferenceOnly, YARD_REASON_REFERENCE_ONLY, "reference_only"},
    {Act::kOrder, YARD_REASON_NOT_IN_ORDER, "per_op"},
    {Act::kStatic, YARD_REASON_NOT_MAPPED, "mode static"},
    {Act::kPrefer, YARD_REASON_NONE, "prefer"},
    {Act::kNoTransforms, YARD_REASON_TRANSFORM, "transforms"},
};

ActInfo info(const Clause& c) {
  const auto it = std::ranges::find(kActs, c.act, &ActInfo::act);
  return it != std::end(kActs) ? *it : ActInfo{c.act, YARD_REASON_NONE, ""};
}

bool token_names(std::string_view token, const KernelFacts& k) {
  if (token.starts_with("impl:")) return token.substr(5) == k.id;
  if (token.starts_with("vendor:")) return !k.vendor.empty() && token.substr(7) == k.vendor;
  return token == to_string(k.kind);
}

bool matches_any(const Names& globs, std::string_view text) {
  return std::ranges::any_of(globs, [&](auto& glob) { return glob_matches(glob, text); });
}

std::string placed(const Config& config, const std::string& what, const KernelRef& ref) {
  const std::string place = place_text(config, ref.at);
  return what + (place.empty() ? " of the rules" : place);
}

}  // namespace

size_t Clause::place(const KernelFacts& k) const {
  size_t i = 0;
  while (i < names.size() && !token_names(names[i], k)) ++i;
  return i;
}

bool Clause::excludes(const KernelFacts& k) const {
  const auto lists = [&](std::string_view text) { return base::contains(names, text); };
  switch (act) {
    case Act::kForce:
    case Act::kLock:
    case Act::kStatic: return !lists(k.id);
    case Act::kDeny: return matches_any(names, k.id);
    case Act::kAllow: return !matches_any(names, k.id);
    case Act::kDenyVendor: return !k.vendor.empty() && lists(k.vendor);
    case Act::kAllowVendors: return !k.vendor.empty() && !lists(k.vendor);
    case Act::kSwitchedOff: return lists(k.backend);
    case Act::kOffByDefault: return !k.on && !lists(k.backend);
    case Act::kReferenceOnly: return k.kind != Kind::kReference;
    case Act::kOrder: return place(k) == names.size();
    default: return false;
  }
}

std::vector<uint32_t> OpRules::match(const CallView& call) const {
  std::vector<AxisValue> values;
  std::vector<uint8_t> truth;
  std::vector<uint32_t> to;
  conditions_.read(call, values);
  conditions_.evaluate(values, truth);
  for (uint32_t i = 0; i < clauses().size(); ++i)
    if (conditions_.hold(clauses()[i].when, truth)) to.push_back(i);
  return to;
}

OpRules compile_rules(const Config& config, const op::Program& program, RuleReport* report) {
  OpRules to;
  OpFields fields(program);
  ConditionCompiler compiler(to.conditions_);
  std::unordered_map<std::string_view, SplitKey> keys;
  const auto key_of = [&](const Condition& c) {
    const auto [it, is_new] = keys.try_emplace(c.key);
    if (is_new) it->second = split_key(c.key, fields);
    return it->second;
  };
  Conditions unused;
  ConditionCompiler trial(unused);
  RuleReport unread;
  if (report == nullptr) report = &unread;
  report->rules.resize(config.dispatch_rules.size()), report->scores.resize(config.score.size());
  // Returns nothing if the op lacks one of the fields or a condition is invalid.
  const auto conjunction =
      [&](const std::vector<Condition>& all,
          std::vector<ConditionReport>& reports) -> std::optional<Conjunction> {
    reports.resize(all.size());
    if (all.size() > kMostConditions) return std::nullopt;
    const bool lacks =
        std::ranges::any_of(all, [&](auto& c) { return key_of(c).field == nullptr; });
    bool valid = !lacks;
    for (size_t i = 0; i < all.size(); ++i) {
      const SplitKey key = key_of(all[i]);
      if (key.field == nullptr) continue;
      reports[i].known = true;
      Wrong wrong;
      if ((lacks ? trial : compiler).add(*key.field, key.op, all[i], wrong)) continue;
      valid = false;
      (lacks ? reports[i].elsewhere : reports[i].wrong) = std::move(wrong);
    }
    if (valid) return compiler.end();
    compiler.drop();
    return std::nullopt;
  };
  const std::vector<DispatchRule>& rules = config.dispatch_rules;
  const int usual = config.defaults.default_priority.value_or(kDefaultPriority);
  std::vector<uint32_t> mine;
  for (uint32_t i = 0; i < rules.size(); ++i)
    if (glob_matches(rules[i].operation, program.name())) mine.push_back(i);
  std::ranges::stable_sort(mine, std::ranges::greater(),
                           [&](uint32_t i) { return rules[i].priority.value_or(usual); });
  for (const uint32_t i : mine) {
    const DispatchRule& r = rules[i];
    const auto when = conjunction(r.conditions, report->rules[i]);
    if (!when) continue;
    if (!r.deny.empty()) to.clauses_.push_back({Act::kDeny, ids(r.deny), *when, i});
    if (r.allow) to.clauses_.push_back({Act::kAllow, ids(*r.allow), *when, i});
    if (!r.kernel.empty()) to.clauses_.push_back({Act::kChoose, {r.kernel}, *when, i});
  }
  for (uint32_t i = 0; i < config.score.size(); ++i) {
    const ScoreRule& r = config.score[i];
    if (!glob_matches(r.operation, program.name())) continue;
    if (const auto when = conjunction(r.conditions, report->scores[i]))
      to.clauses_.push_back({Act::kScore, {r.kernel}, *when, i, r.add, r.multiply});
  }
  compiler.finish();
  return to;
}

// ---- The list of one op ----

Clauses::Clauses(ClauseSources sources, std::string_view op, std::span<const KernelFacts> kernels)
    : sources_(std::move(sources)), op_(op) {
  if (sources_.without && sources_.without->act == Act::kStatic)
    sources_.mode.mode = Mode::kDynamic;
  read_policy();
  read_mode();
  always_.resize(kernels.size());
  apply_own(kernels);
  if (reads_rules_) read_rules(kernels);
}

void Clauses::read_policy() {
  const Policy& p = sources_.policy;
  const auto left_out = [&](Act act) { return sources_.without && sources_.without->act == act; };
  const auto add = [&](Act act, std::vector<std::string> names = {}) {
    own_.push_back({act, std::move(names)});
  };
  // A forced kernel bypasses locks, and both bypass the order of the op and its static kernel.
  const bool forced = !sources_.force.empty() && !left_out(Act::kForce);
  const std::string* lock = forced || left_out(Act::kLock) ? nullptr : find_for_op(p.locks, op_);
  if (forced) add(Act::kForce, {sources_.force});
  if (lock != nullptr) add(Act::kLock, {*lock});
  for (const std::string& name : p.deny_kernels) add(Act::kDeny, {name});
  for (const std::string& name : sources_.deny)
    own_.push_back({Act::kDeny, {name}, {}, Clause::kCall});
  if (p.allow_kernels) add(Act::kAllow, *p.allow_kernels);
  for (const std::string& name : p.deny_vendors) add(Act::kDenyVendor, {name});
  if (p.allow_vendors) add(Act::kAllowVendors, *p.allow_vendors);
  for (const auto& [backend, is_on] : p.backends)
    if (!is_on) add(Act::kSwitchedOff, {backend});
  add(Act::kOffByDefault, base::keys(p.backends));
  if (p.reference_only.value_or(false)) add(Act::kReferenceOnly);
  if (p.prefer)  // place() finds the first of two equal kinds
    add(Act::kPrefer, {to_string(*p.prefer), "default", "vendor", "reference"});
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
      add(Act::kMap, {mapped_});
    if (m.is_static_only()) add(Act::kStatic, {mapped_});
  }
  if (config != nullptr && !chain_of(*config, op_).empty())
    add(Act::kChain, ids(chain_of(*config, op_)));
}

void Clauses::read_mode() {
  const ModeSettings& m = sources_.mode;
  using Takes = ClauseGroup::Takes;
  const auto add_group = [&](Mode mode, Takes takes) {
    const bool reads = mode == Mode::kAuto || mode == Mode::kConfig || mode == Mode::kHotReload;
    groups_.push_back({mode, sources_.rules != nullptr && reads, takes});
  };
  if (m.mode == Mode::kStatic && !m.fallback.empty()) {
    add_group(Mode::kStatic, Takes::kMapped);
    for (const Mode& mode : m.fallback)
      add_group(mode, mode == Mode::kConfig && &mode != &m.fallback.back() ? Takes::kChosen
                                                                           : Takes::kAll);
  } else {
    add_group(m.mode, Takes::kAll);
  }
  for (const ClauseGroup& g : groups_) reads_rules_ |= g.rules;
  // Rules that deny or allow count in every mode.
  for (const Clause& c : of_rules()) reads_rules_ |= c.act == Act::kDeny || c.act == Act::kAllow;
}

bool Clauses::is_left_out(const Clause& c) const {
  const auto& without = sources_.without;
  return without && c.act == without->act && c.source == without->source &&
         c.excludes(without->kernel);
}

void Clauses::apply_own(std::span<const KernelFacts> kernels) {
  for (uint32_t i = 0; i < own_.size(); ++i)
    for (size_t k = 0; k < kernels.size() && !is_left_out(own_[i]); ++k)
      if (always_[k].excluded == kNoClause && own_[i].excludes(kernels[k])) always_[k].excluded = i;
  const Clause *map = find(Act::kMap), *order = find(Act::kOrder);
  if (order == nullptr) order = find(Act::kPrefer);
  for (const KernelFacts& k : kernels) {
    const int usual = k.kind == Kind::kReference ? 1 : 0;
    const bool mapped = map != nullptr && k.id == map->names[0];
    tiers_.push_back(mapped ? -1 : order != nullptr ? static_cast<int>(order->place(k)) : usual);
  }
  if (const Clause* chain = find(Act::kChain))
    for (const std::string& name : chain->names)
      for (uint16_t k = 0; k < kernels.size(); ++k)
        if (glob_matches(name, kernels[k].id) && !base::contains(chain_, k)) chain_.push_back(k);
}

void Clauses::read_rules(std::span<const KernelFacts> kernels) {
  const std::span<const Clause> all = of_rules();
  targets_.resize(all.size());
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (is_left_out(all[i])) continue;
    for (uint16_t k = 0; k < kernels.size(); ++k)
      if (matches_any(all[i].names, kernels[k].id) != (all[i].act == Act::kAllow))
        targets_[i].push_back(k);
    if (all[i].when.count == 0)
      apply(i, always_);
    else
      rules_.push_back({i, all[i].when});
  }
}

void Clauses::apply(uint32_t rule, std::vector<Ruling>& to) const {
  const Clause& c = of_rules()[rule];
  const uint32_t rank = static_cast<uint32_t>(own_.size()) + rule;
  for (const uint16_t k : targets_[rule]) {
    Ruling& r = to[k];
    if (c.act == Act::kChoose) {
      r.chosen = std::min(r.chosen, rank);
    } else if (c.act == Act::kScore) {
      r.add += c.add;
      r.multiply = std::min(r.multiply * c.multiply, std::numeric_limits<double>::max());
    } else {  // kDeny, kAllow
      r.excluded = std::min(r.excluded, rank);
    }
  }
}

void Clauses::evaluate(const CallView& call, Rulings& to) const {
  to.kernels = always_;
  if (rules_.empty()) return;
  const Conditions& conditions = sources_.rules->conditions();
  conditions.read(call, to.values);
  conditions.evaluate(to.values, to.truth);
  for (const Rule& rule : rules_)
    if (conditions.hold(rule.when, to.truth)) apply(rule.index, to.kernels);
}

std::vector<const Clause*> Clauses::scores(const CallView& call, std::string_view kernel) const {
  std::vector<const Clause*> to;
  if (std::ranges::none_of(groups_, &ClauseGroup::rules)) return to;
  for (const uint32_t i : sources_.rules->match(call))
    if (const Clause& c = of_rules()[i]; c.act == Act::kScore && glob_matches(c.names[0], kernel))
      to.push_back(&c);
  return to;
}

const Clause& Clauses::clause(size_t i) const {
  return i < own_.size() ? own_[i] : of_rules()[i - own_.size()];
}

const Clause* Clauses::find(Act act) const {
  const auto it = std::ranges::find(own_, act, &Clause::act);
  return it != own_.end() ? &*it : nullptr;
}

std::shared_ptr<const Conditions> Clauses::conditions() const {
  if (!reads_rules_) return nullptr;
  return {sources_.rules, &sources_.rules->conditions()};
}

int32_t Clauses::reason(const Clause& c) noexcept { return info(c).reason; }

std::string Clauses::text(const Clause& c) const {
  if (c.act == Act::kMap && !sources_.mapped.empty()) return "the program's static map";
  if (c.source == Clause::kCall) return "the call's deny list";
  if (!c.of_rule() && info(c).text[0] != '\0') return info(c).text;
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
  const auto& mapped = process.mapped;
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

Names ids(const std::vector<KernelRef>& refs) {
  Names to;
  for (const KernelRef& ref : refs) to.push_back(ref.id);
  return to;
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
