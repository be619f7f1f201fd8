// SPDX-License-Identifier: Apache-2.0
#include "functions/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/append_list.h"
#include "base/float_state.h"
#include "base/log.h"
#include "base/text.h"
#include "policy/words.h"
#include "select/candidate_set.h"
#include "select/reasons.h"

namespace yard::functions {
namespace {

base::InternedTexts g_reason_texts;  // of the program's verifiers
base::InternedTexts g_backend_names;
constexpr int32_t kInterned = 1 << 20;
constexpr uint32_t kMostTexts = 4096;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// The strongest source that names the backend has disabled it; none: its own default.
std::string disabled_text(const Situation& s, const registry::Backend& b) {
  const policy::ProcessPolicy& p = *s.snapshot.policy;
  const auto named_by = [&](const Policy& from) { return from.backends.contains(b.name); };
  if (s.scope != nullptr && named_by(s.scope->policy))
    return "switched off by a scope of the thread";
  if (named_by(p.set)) return "switched off by the program";
  if (named_by(p.environment))
    return fmt::format("switched off by {}",
                       p.by_own.contains(b.name) ? b.env : policy::backend_variable(b.name));
  if (p.file != nullptr && named_by(p.file->said)) return "switched off by the rule file";
  return fmt::format("switched off by default; {}=on enables it",
                     b.env.empty() ? policy::backend_variable(b.name) : b.env);
}

// All rules for one function merged, the most exact key last.
FunctionRule rule_for(const Situation& s, std::string_view group, std::string_view name) {
  FunctionRule to;
  if (s.snapshot.policy->file == nullptr) return to;
  const std::string whole = fmt::format("{}/{}", group, name);
  // A longer pattern is more exact, one without wildcards the most.
  std::vector<std::pair<std::pair<bool, size_t>, const FunctionRule*>> found;
  for (const auto& [key, rule] : s.snapshot.policy->file->config.functions) {
    const bool of_group = key.find('/') == key.npos;
    if (!glob_matches(key, of_group ? group : std::string_view(whole))) continue;
    const bool exact = !of_group && key.find_first_of("*?") == key.npos;
    found.push_back({{exact, key.size()}, &rule});
  }
  std::ranges::sort(found, {}, [](const auto& f) { return f.first; });
  for (const auto& [rank, rule] : found) {
    if (rule->enabled) to.enabled = rule->enabled;
    if (rule->backends) to.backends = rule->backends;
    to.deny.insert(to.deny.end(), rule->deny.begin(), rule->deny.end());
  }
  return to;
}

Eligibility by_rule(const FunctionRule& rule, const registry::Backend& b) {
  if (rule.enabled == false) return {YARD_REASON_DISABLED, "the rules switch the function off"};
  if (contains(rule.deny, b.name)) return {YARD_REASON_DENIED_KERNEL, "denied by a rule"};
  if (rule.backends && !contains(*rule.backends, b.name))
    return {YARD_REASON_NOT_IN_ORDER, "the rules list other backends"};
  return {};
}

Eligibility by_health(const Situation& s, const registry::Function& f) {
  if (s.snapshot.health == nullptr) return {};
  const health::Key key = health_key(f);
  const health::HealthSnapshot::OfOp* of = s.snapshot.health->of_op(key.op);
  const health::BreakerStatus* breaker = of != nullptr ? of->find(key) : nullptr;
  if (breaker == nullptr) return {};
  const bool open = breaker->state == BreakerState::kOpen;
  return {open ? YARD_REASON_UNHEALTHY : YARD_REASON_NONE, "", *breaker};
}

// The place of an active backend; unset if it is not active. Backends of the scope come first, then those of its device, then
// those of the process; in the last two higher priority, then later activation.
std::optional<std::tuple<int, int, int>> active_place(const Situation& s,
                                                      const registry::Function& f) {
  if (s.scope != nullptr) {
    const auto at = std::ranges::find(s.scope->backends, f.backend);
    if (at != s.scope->backends.end())
      return std::tuple(0, static_cast<int>(at - s.scope->backends.begin()), 0);
  }
  std::optional<std::tuple<int, int, int>> place;
  for (size_t i = 0; i < s.activations.size(); ++i) {
    const Activation& a = s.activations[i];
    if (a.backend != f.backend) continue;
    int tier = 2;
    if (a.device) {
      if (s.scope == nullptr || !s.scope->device || a.device->type != s.scope->device->type ||
          (a.device->index != -1 && a.device->index != s.scope->device->index))
        continue;
      tier = 1;
    }
    const std::tuple found(tier, -priority_of(f), -static_cast<int>(i));
    if (!place || found < *place) place = found;
  }
  return place;
}

Eligibility decide(const Situation& s, const FunctionRule& rule, std::string_view signature,
                   Selection selection, Provider& p) {
  const registry::Function& f = *p.record;
  if (!signature.empty() && f.signature != signature)
    return {YARD_REASON_REFUSED,
            fmt::format("its signature is {}, declared is {}", f.signature, signature)};
  const auto b = backend_of(*s.snapshot.state, f.backend);
  if (Eligibility e = by_policy(s, *b); !e.eligible()) return e;
  if (Eligibility e = by_rule(rule, *b); !e.eligible()) return e;
  if (selection == Selection::kActive) {
    // Availability and health were checked on activation.
    const auto place = active_place(s, f);
    if (!place) return {YARD_REASON_DISABLED, "its backend is not active"};
    p.place = *place;
    return {};
  }
  if ((f.d.flags & YARD_FUNCTION_NEXT) != 0)
    return {YARD_REASON_REFUSED, "it takes a Next, which only functions of active backends offer"};
  const auto order = [&] {
    return static_cast<int>(std::ranges::find(*rule.backends, f.backend) - rule.backends->begin());
  };
  p.place = {rule.backends ? order() : 0, -priority_of(f), 0};
  // A call names no device: it is the first one of the backend's type.
  if (Eligibility e = on_device(s, *b, {b->d.device_type, 0}, false); !e.eligible()) {
    // A backend that is on by itself is expected to be available.
    if (e.reason == YARD_REASON_UNAVAILABLE && b->d.enable == YARD_ENABLE_ON)
      base::log(LogLevel::kWarn, "dispatch",
                fmt::format("Backend '{}' is on and not available: {}", b->name, e.text));
    return e;
  }
  return by_health(s, f);
}

}  // namespace

std::string Eligibility::why() const {
  if (!breaker) return text;
  if (breaker->state == BreakerState::kHalfOpen)
    return "its breaker is half-open: one call at a time tries it";
  return "its breaker " + select::open_breaker_text(*breaker);
}

bool Eligibility::same_as(const Eligibility& o) const noexcept {
  if (reason != o.reason || text != o.text || breaker.has_value() != o.breaker.has_value())
    return false;
  return !breaker || (breaker->state == o.breaker->state && breaker->until == o.breaker->until &&
                      breaker->probes == o.breaker->probes);
}

std::shared_ptr<const registry::Backend> backend_of(const registry::State& state,
                                                    std::string_view name) {
  if (const auto it = state.backends.find(name); it != state.backends.end()) return it->second;
  auto made = std::make_shared<registry::Backend>();
  made->name = name, made->d.device_type = 1;
  return made;
}

Eligibility by_policy(const Situation& s, const registry::Backend& b) {
  switch (const int32_t reason = select::backend_reason(s.policy(), b)) {
    case YARD_REASON_NONE: break;
    case YARD_REASON_DENIED_VENDOR: return {reason, fmt::format("vendor '{}' is denied", b.vendor)};
    case YARD_REASON_NOT_ALLOWED_VENDOR:
      return {reason, fmt::format("vendor '{}' is not allowed", b.vendor)};
    default: return {reason, disabled_text(s, b)};
  }
  if (s.off()) return {YARD_REASON_REFERENCE_ONLY, "the master switch: every call is the original"};
  if (s.snapshot.forked && (b.d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return {YARD_REASON_FORKED, "it cannot be used in a forked child"};
  return {};
}

Eligibility on_device(const Situation& s, const registry::Backend& b, Device device,
                      bool any_device) {
  if (const registry::DeviceProbe& probe = b.probe(device, s.host); !probe.available) {
    std::string text = select::refusal(probe);
    if (text.empty()) text = fmt::format("it is not available on {}", to_string(device));
    return {YARD_REASON_UNAVAILABLE, std::move(text)};
  }
  if (!any_device && s.snapshot.health != nullptr && s.snapshot.health->is_lost(device))
    return {YARD_REASON_UNHEALTHY, fmt::format("device {} is lost", to_string(device))};
  return {};
}

int priority_of(const registry::Function& f) noexcept {
  return (f.d.flags & YARD_FUNCTION_LOWER_FIRST) != 0 ? -f.d.priority : f.d.priority;
}

health::Key health_key(const registry::Function& f) {
  health::Key key;
  key.op = f.group + "/" + f.name, key.kernel = key.backend = f.backend;
  return key;
}

std::vector<Provider> providers_of(const Situation& s, std::string_view group,
                                   std::string_view name, std::string_view signature,
                                   Selection selection) {
  const FunctionRule rule = rule_for(s, group, name);
  std::vector<Provider> to;
  for (const auto& record : s.snapshot.state->functions) {
    if (record->group != group || record->name != name) continue;
    Provider& p = to.emplace_back(Provider{record, {}});
    p.eligibility = decide(s, rule, signature, selection, p);
  }
  std::ranges::sort(to, [](const Provider& a, const Provider& b) {
    const bool in = a.eligibility.eligible();
    if (in != b.eligibility.eligible()) return in;
    if (in && a.place != b.place) return a.place < b.place;
    return a.record->backend < b.record->backend;
  });
  return to;
}

// ---- Implementations ----

Implementation::Implementation(std::shared_ptr<const registry::Function> r)
    : record(std::move(r)),
      retired_(std::make_unique<base::Retired>(
          base::Retired{this,
                        [](void* p) { delete static_cast<Implementation*>(p); },
                        {static_cast<const detail::FunctionRow*>(this)}})) {
  run = record->d.function, verify = record->d.verify, self = record->d.self;
  takes_next = (record->d.flags & YARD_FUNCTION_NEXT) != 0;
  backend = g_backend_names.intern(record->backend)->text.c_str();
  succeeded = successes.id();
}

std::shared_ptr<const Implementation> Implementation::make(
    std::shared_ptr<const registry::Function> record) {
  return {new Implementation(std::move(record)), [](const Implementation* i) {
            base::reclaimer().retire(std::move(const_cast<Implementation*>(i)->retired_));
          }};
}

bool Implementation::has_text(int32_t reason) const noexcept {
  if (reason >= kInterned || reason < YARD_REASON_OWN) return true;
  return static_cast<size_t>(reason - YARD_REASON_OWN) < record->reasons.size();
}

std::string Implementation::text_of(int32_t reason, const int64_t figures[3]) const {
  if (reason >= kInterned)
    return registry::fill_in(g_reason_texts.text(static_cast<uint32_t>(reason - kInterned)),
                             figures);
  if (reason < YARD_REASON_OWN) return select::reason_meaning(reason);
  if (!has_text(reason)) return fmt::format("reason {}, for which the backend has no text", reason);
  return registry::fill_in(record->reasons[static_cast<size_t>(reason - YARD_REASON_OWN)], figures);
}

void Implementation::refused(const yard_verdict_t& v) const {
  const int32_t reason = v.reason > YARD_REASON_NONE ? v.reason : int32_t{YARD_REASON_REFUSED};
  for (std::atomic<int32_t>& logged : logged_) {
    int32_t known = logged.load(std::memory_order_relaxed);
    if (known == reason) return;
    if (known != YARD_REASON_NONE) continue;
    if (logged.compare_exchange_strong(known, reason, std::memory_order_relaxed))
      return base::log(
          LogLevel::kInfo, "dispatch",
          fmt::format("Backend '{}' refuses a call of function '{}/{}': {}", record->backend,
                      record->group, record->name, text_of(reason, v.figures)));
    if (known == reason) return;
  }
}

void Implementation::broken(const std::string& text) const {
  base::log(LogLevel::kWarn, "dispatch",
            fmt::format("The verifier of backend '{}' for function '{}/{}' is broken: {}",
                        record->backend, record->group, record->name, text));
}

Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args) {
  Answer a;
  if (i.verify == nullptr) {
    a.accepted = true;
    return a;
  }
  const base::FloatState before;
  try {
    const int32_t code = args.ask(args.tuple, thread, i, a.verdict);
    a.accepted = code == YARD_OK && a.verdict.reason == YARD_REASON_NONE;
    if (!a.accepted && a.verdict.reason <= YARD_REASON_NONE) a.verdict.reason = YARD_REASON_REFUSED;
  } catch (...) {
    a.broken = "it threw: " + base::current_exception_text();
  }
  if (before.restore() && a.broken.empty())
    a.accepted = false, a.broken = "it changed the floating-point control state";
  return a;
}

// ---- Tables ----

std::shared_ptr<const Table> Table::make(const Situation& situation,
                                         const detail::FunctionSite& site, const Table* before) {
  auto to = std::make_unique<Table>();
  for (Provider& p :
       providers_of(situation, site.group, site.name, site.signature, site.selection)) {
    std::shared_ptr<const Implementation> implementation;
    if (before != nullptr)
      for (const Entry& e : before->entries)
        if (e.implementation->record == p.record) implementation = e.implementation;
    if (implementation == nullptr) implementation = Implementation::make(p.record);
    if (p.eligibility.eligible()) to->list.push_back(implementation.get());
    to->plain &= p.eligibility.probes() == nullptr;
    to->entries.push_back({std::move(implementation), std::move(p.eligibility)});
  }
  to->originals = before != nullptr ? before->originals : std::make_shared<base::Counter>();
  to->strict = situation.policy().strict.value_or(false);
  to->rows = to->list.data(), to->count = static_cast<uint32_t>(to->list.size());
  to->original = to->originals->id();
  if (const auto& file = situation.snapshot.policy->file; file != nullptr)
    if (const auto& n = file->config.settings.max_fallback_attempts)
      to->fallbacks = static_cast<size_t>(*n);
  const detail::FunctionTable* const held = to.get();
  to->retired_ = std::make_unique<base::Retired>(
      base::Retired{to.get(), [](void* p) { delete static_cast<Table*>(p); }, {held}});
  return {to.release(), [](const Table* t) {
            base::reclaimer().retire(std::move(const_cast<Table*>(t)->retired_));
          }};
}

bool Table::same_as(const Table& other) const {
  return strict == other.strict && fallbacks == other.fallbacks && list == other.list &&
         std::ranges::equal(entries, other.entries, [](const Entry& a, const Entry& b) {
           return a.implementation == b.implementation && a.eligibility.same_as(b.eligibility);
         });
}

SnapshotTables::~SnapshotTables() {
  for (Scoped* s = scoped_.load(std::memory_order_acquire); s != nullptr;)
    delete std::exchange(s, s->next);
}

const Table* SnapshotTables::find(const detail::FunctionSite& site, uint64_t scope) const noexcept {
  for (const Scoped* s = scoped_.load(std::memory_order_acquire); s != nullptr; s = s->next)
    if (s->site == site.index && s->scope == scope) return s->table.get();
  return nullptr;
}

uint32_t SnapshotTables::add(const detail::FunctionSite& site, uint64_t scope,
                             std::shared_ptr<const Table> table) const {
  auto* const made = new Scoped{site.index, scope, std::move(table), nullptr, 0};
  made->next = scoped_.load(std::memory_order_acquire);
  do made->number = made->next != nullptr ? made->next->number + 1 : 1;
  while (!scoped_.compare_exchange_weak(made->next, made, std::memory_order_acq_rel));
  return made->number;
}

const Table* find_table(const detail::FunctionSite& site, const detail::ThreadHead& thread,
                        detail::Guard& guard) noexcept {
  const detail::ScopeState* const scope = detail::provider_scope_of(thread);
  if (scope == nullptr) return static_cast<const Table*>(detail::protect_table(site, guard));
  const auto* const current = detail::g_snapshot.load(std::memory_order_acquire);
  if (current == nullptr) return nullptr;
  const SnapshotTables* const tables = SnapshotTables::of(*guard.protect(*current));
  return tables != nullptr ? tables->find(site, scope->providers) : nullptr;
}

}  // namespace yard::functions

namespace yard::detail {

using functions::Implementation;

int32_t ProgramTexts::number(const char* text) noexcept {
  for (const Known& k : known_) {
    const char* const t = k.text.load(std::memory_order_acquire);
    if (t == text) return k.number;
    if (t == nullptr) break;
  }
  const auto* item = functions::g_reason_texts.intern(text, functions::kMostTexts);
  const int32_t n = item != nullptr ? functions::kInterned + static_cast<int32_t>(item->number)
                                    : int32_t{YARD_REASON_REFUSED};
  if (!learning_.exchange(true, std::memory_order_acquire)) {
    for (Known& k : known_)
      if (k.text.load(std::memory_order_relaxed) == nullptr) {
        k.number = n;
        k.text.store(text, std::memory_order_release);
        break;
      }
    learning_.store(false, std::memory_order_release);
  }
  return n;
}

void function_refused(const FunctionRow& row, const yard_verdict_t& v) {
  static_cast<const Implementation&>(row).refused(v);
}

void function_verifier_threw(const FunctionRow& row) {
  static_cast<const Implementation&>(row).broken("it threw: " + base::current_exception_text());
}

}  // namespace yard::detail
