// SPDX-License-Identifier: Apache-2.0
#include "functions/table.h"

#include <fmt/format.h>

#include "base/float_state.h"
#include "base/lists.h"
#include "base/text.h"
#include "policy/words.h"
#include "select/reasons.h"

namespace yard::functions {
namespace {

// The code of a reason from the program is kProgramReasons plus the place of its text.
constexpr int32_t kProgramReasons = 1 << 20;
constexpr size_t kTexts = 4096, kMostProbes = 64;
constinit std::atomic<const char*> g_reason_texts[kTexts]{};

// Names the strongest source that mentions the disabled backend, or the backend's own default.
std::string disabled_text(const Situation& s, const registry::Backend& b) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const std::string variable = policy::backend_variable(b.name);
  const auto named_by = [&](const Policy& from) { return from.backends.contains(b.name); };
  if (s.scope != nullptr && named_by(s.scope->content.policy))
    return "switched off by a scope of the thread";
  if (named_by(p.set)) return "switched off by the program";
  if (named_by(p.environment))
    return "switched off by " + (p.by_own.contains(b.name) ? b.env : variable);
  if (p.file != nullptr && named_by(p.file->said)) return "switched off by the rule file";
  return fmt::format("switched off by default; {}=on enables it", b.env.empty() ? variable : b.env);
}

// Merges all rules for one function. The most exact key is applied last.
FunctionRule rule_for(const Situation& s, std::string_view group, std::string_view name) {
  FunctionRule to;
  if (s.snapshot.policy->file == nullptr) return to;
  const std::string whole = fmt::format("{}/{}", group, name);
  // Longer patterns are more exact. Patterns without wildcards are the most exact.
  std::multimap<std::pair<bool, size_t>, const FunctionRule*> found;
  for (const auto& [key, rule] : s.snapshot.policy->file->config.functions) {
    const bool of_group = key.find('/') == key.npos;
    if (!glob_matches(key, of_group ? group : std::string_view(whole))) continue;
    const bool exact = !of_group && key.find_first_of("*?") == key.npos;
    found.emplace(std::pair(exact, key.size()), &rule);
  }
  for (const auto& [rank, rule] : found) {
    if (rule->enabled) to.enabled = rule->enabled;
    if (rule->backends) to.backends = rule->backends;
    to.deny.insert(to.deny.end(), rule->deny.begin(), rule->deny.end());
  }
  return to;
}

// Backends of the scope come first, then backends that are active on its device, then backends that
// are active everywhere. In the last two groups, higher priority and then later activation wins.
Table::Place active_place(const Situation& s, const Implementation& implementation) {
  const std::string& backend = implementation.record->backend;
  std::optional<Device> here;
  if (s.scope != nullptr) {
    const auto& first = s.scope->content.backends;
    const auto at = std::ranges::find(first, backend);
    if (at != first.end()) return {0, static_cast<int>(at - first.begin()), 0};
    here = s.scope->content.device;
  }
  Table::Place place = Table::kOut;
  for (size_t i = 0; i < s.activations.size(); ++i) {
    const auto& [active, device, waiting] = s.activations[i];
    const bool counts = !device || (here && device->type == here->type &&
                                    (device->index == -1 || device->index == here->index));
    if (active == backend && counts)
      place = std::min(place, {device ? 1 : 2, -implementation.priority, -static_cast<int>(i)});
  }
  return place;
}

// Sets the place of the entry, too.
Eligibility decide(const Situation& s, const FunctionRule& rule, const FunctionSite& site,
                   Table::Entry& e) {
  const registry::Function& f = *e.implementation->record;
  if (f.signature != site.signature)
    return {YARD_REASON_REFUSED,
            fmt::format("its signature is {}, declared is {}", f.signature, site.signature)};
  const auto b = backend_of(*s.snapshot.state, f.backend);
  if (Eligibility by = by_policy(s, *b); !by.eligible()) return by;
  if (s.off()) return {YARD_REASON_REFERENCE_ONLY, "the master switch: every call is the original"};
  if (rule.enabled == false) return {YARD_REASON_DISABLED, "the rules switch the function off"};
  if (base::contains(rule.deny, b->name)) return {YARD_REASON_DENIED_KERNEL, "denied by a rule"};
  if (rule.backends && !base::contains(*rule.backends, b->name))
    return {YARD_REASON_NOT_IN_ORDER, "the rules list other backends"};
  if (site.selection == Selection::kActive) {
    // Activation has checked availability and health.
    e.place = active_place(s, *e.implementation);
    if (e.place == Table::kOut) return {YARD_REASON_DISABLED, "its backend is not active"};
    return {};
  }
  if (e.implementation->takes_next)
    return {YARD_REASON_REFUSED, "it takes a Next, which only functions of active backends offer"};
  int listed_at = 0;
  if (const auto& listed = rule.backends)
    listed_at = static_cast<int>(std::ranges::find(*listed, f.backend) - listed->begin());
  e.place = {listed_at, -e.implementation->priority, 0};
  // A call names no device, so check the first device of the backend's type.
  if (Eligibility by = on_device(s, *b, {b->d.device_type, 0}); !by.eligible()) {
    // A backend that is on by default is expected to be available.
    if (by.reason == YARD_REASON_UNAVAILABLE && b->d.enable == YARD_ENABLE_ON)
      base::log(LogLevel::kWarn, "dispatch",
                fmt::format("Backend '{}' is on and not available: {}", b->name, by.text));
    return by;
  }
  const health::Key key = health_key(f);
  const health::HealthSnapshot::OfOp* of = s.snapshot.health->of_op(key.op);
  const health::BreakerStatus* breaker = of != nullptr ? of->find(key) : nullptr;
  if (breaker == nullptr) return {};
  const bool open = breaker->state == BreakerState::kOpen;
  return {open ? YARD_REASON_UNHEALTHY : YARD_REASON_NONE, "", *breaker};
}

}  // namespace

std::string Eligibility::why() const {
  if (!breaker) return text;
  if (breaker->state == BreakerState::kHalfOpen)
    return "its breaker is half-open: one call at a time tries it";
  return "its breaker " + select::open_breaker_text(*breaker);
}

std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name) {
  if (const auto it = state.backends.find(name); it != state.backends.end()) return it->second;
  auto made = std::make_shared<registry::Backend>();
  made->name = name, made->d.device_type = 1;
  return made;
}

Eligibility by_policy(const Situation& s, const registry::Backend& b) {
  const int32_t reason = select::backend_reason(s.policy, b);
  if (reason == YARD_REASON_DISABLED) return {reason, disabled_text(s, b)};
  if (reason != YARD_REASON_NONE)
    return {reason, fmt::format("vendor '{}' is {}", b.vendor,
                                reason == YARD_REASON_DENIED_VENDOR ? "denied" : "not allowed")};
  if (s.snapshot.forked && (b.d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return {YARD_REASON_FORKED, "it cannot be used in a forked child"};
  return {};
}

Eligibility on_device(const Situation& s, const registry::Backend& b, Device device) {
  const bool any_device = device.index < 0;
  if (any_device) device.index = 0;
  if (const registry::DeviceProbe& probe = b.probe(device, s.host); !probe.available) {
    std::string text = select::refusal(probe);
    if (text.empty()) text = fmt::format("it is not available on {}", to_string(device));
    return {YARD_REASON_UNAVAILABLE, std::move(text)};
  }
  if (!any_device && s.snapshot.health->is_lost(device))
    return {YARD_REASON_UNHEALTHY, fmt::format("device {} is lost", to_string(device))};
  return {};
}

health::Key health_key(const registry::Function& f) {
  health::Key key;
  key.op = f.group + "/" + f.name, key.kernel = key.backend = f.backend;
  return key;
}

std::shared_ptr<const Implementation> Implementation::make(
    std::shared_ptr<const registry::Function> record) {
  auto to = std::make_unique<Implementation>();
  to->record = std::move(record);
  const yard_function_t& d = to->record->d;
  to->run = d.function, to->verify = d.verify, to->self = d.self;
  to->takes_next = (d.flags & YARD_FUNCTION_NEXT) != 0;
  to->priority = (d.flags & YARD_FUNCTION_LOWER_FIRST) != 0 ? -d.priority : d.priority;
  to->backend = base::interned(to->record->backend);
  to->succeeded = to->successes.id();
  const FunctionRow* const held = to.get();
  to->retired = std::make_unique<base::Retired>(
      base::Retired{to.get(), [](void* p) { delete static_cast<Implementation*>(p); }, {held}});
  return {to.release(), [](Implementation* i) { base::reclaimer().retire(std::move(i->retired)); }};
}

const char* Implementation::own_text(int32_t reason) const noexcept {
  const auto program = static_cast<uint32_t>(reason - kProgramReasons);
  if (program < kTexts) return g_reason_texts[program].load(std::memory_order_acquire);
  const auto own = static_cast<size_t>(reason - YARD_REASON_OWN);
  return own < record->reasons.size() ? record->reasons[own].c_str() : nullptr;
}

std::string Implementation::text_of(const yard_verdict_t& v) const {
  if (v.reason < YARD_REASON_OWN) return select::reason_meaning(v.reason);
  if (const char* const text = own_text(v.reason)) return registry::fill_in(text, v.figures);
  return fmt::format("reason {}, for which the backend has no text", v.reason);
}

void Implementation::log_broken_verifier(const std::string& text) const {
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("The verifier of backend '{}' for function '{}/{}' is broken: {}",
                        record->backend, record->group, record->name, text));
}

Answer ask_once(const Implementation& i, const ThreadHead& thread, const FunctionArgs& args) {
  Answer a;
  const base::FloatState before;
  try {
    const int32_t code = args.ask(args.tuple, thread, i, a.verdict);
    if (a.verdict.reason < YARD_REASON_NONE || (code != YARD_OK && a.accepted()))
      a.verdict.reason = YARD_REASON_REFUSED;
  } catch (...) {
    a.broken = "it threw: " + base::current_exception_text();
  }
  if (before.restore() && a.broken.empty())
    a.broken = "it changed the floating-point control state";
  if (!a.broken.empty()) a.verdict.reason = YARD_REASON_VERIFIER_BROKEN;
  return a;
}

std::unique_ptr<const Table> Table::make(const Situation& s, const FunctionSite& site,
                                         const Table* before) {
  auto to = std::make_unique<Table>();
  const FunctionRule rule = rule_for(s, site.group, site.name);
  for (const auto& record : s.snapshot.state->functions) {
    if (record->group != site.group || record->name != site.name) continue;
    Entry& made = to->entries.emplace_back();
    if (before != nullptr)
      for (const Entry& e : before->entries)
        if (e.implementation->record == record) made.implementation = e.implementation;
    if (made.implementation == nullptr) made.implementation = Implementation::make(record);
    made.eligibility = decide(s, rule, site, made);
    if (!made.eligibility.eligible()) made.place = kOut;
    to->plain &= made.eligibility.probes() == nullptr;
  }
  std::ranges::sort(to->entries, {}, [](const Entry& e) {
    return std::tie(e.place, e.implementation->record->backend);
  });
  for (const Entry& e : to->entries)
    if (e.eligibility.eligible()) to->list.push_back(e.implementation.get());
  to->rows = to->list.data(), to->count = static_cast<uint32_t>(to->list.size());
  to->originals = before != nullptr ? before->originals : std::make_shared<base::Counter>();
  to->original = to->originals->id();
  return to;
}

const Table* SnapshotTables::find(const FunctionSite& site, uint64_t scope) const noexcept {
  if (scope == 0) return site.index < tables.size() ? tables[site.index].get() : nullptr;
  for (const Scoped& s : scoped)
    if (s.site == site.index && s.scope == scope) return s.table.get();
  return nullptr;
}

const Table* find_table(const FunctionSite& site, const ThreadHead& thread, Guard& guard) noexcept {
  const ScopeState* const scope = provider_scope_of(thread);
  if (scope == nullptr) return static_cast<const Table*>(protect_table(site, guard));
  const auto* const current = g_snapshot.load(std::memory_order_acquire);
  if (current == nullptr) return nullptr;
  const SnapshotTables* const tables = SnapshotTables::of(*guard.protect(*current));
  return tables != nullptr ? tables->find(site, scope->providers) : nullptr;
}

}  // namespace yard::functions

namespace yard::detail {

using functions::Implementation;

int32_t ProgramTexts::number(const char* text) noexcept {
  size_t at = reinterpret_cast<uintptr_t>(text) * 0x9e3779b97f4a7c15u >> 32;
  for (size_t n = 0; n < functions::kMostProbes; ++n, ++at) {
    std::atomic<const char*>& place = functions::g_reason_texts[at % functions::kTexts];
    const char* there = place.load(std::memory_order_relaxed);
    if (there == nullptr && place.compare_exchange_strong(there, text)) there = text;
    if (there == text)
      return functions::kProgramReasons + static_cast<int32_t>(at % functions::kTexts);
  }
  return YARD_REASON_REFUSED;
}

void function_refused(const FunctionRow& row, yard_verdict_t v) {
  if (v.reason <= YARD_REASON_NONE) v.reason = YARD_REASON_REFUSED;
  const auto& i = static_cast<const Implementation&>(row);
  for (std::atomic<int32_t>& logged : i.logged) {
    int32_t known = logged.load(std::memory_order_relaxed);
    if (known == YARD_REASON_NONE && logged.compare_exchange_strong(known, v.reason))
      return base::log(LogLevel::kInfo, "dispatch",
                       fmt::format("Backend '{}' refuses a call of function '{}/{}': {}", i.backend,
                                   i.record->group, i.record->name, i.text_of(v)));
    if (known == v.reason) return;
  }
}

void function_verifier_threw(const FunctionRow& row) {
  static_cast<const Implementation&>(row).log_broken_verifier("it threw: " +
                                                              base::current_exception_text());
}

}  // namespace yard::detail
