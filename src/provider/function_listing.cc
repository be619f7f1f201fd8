// SPDX-License-Identifier: Apache-2.0
// Lists, explanations and checks of dispatched functions.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/scope.h"
#include "provider/function_service.h"
#include "provider/provider_table.h"
#include "registry/declarations.h"
#include "select/reasons.h"

namespace yard::provider {
namespace {

std::vector<FunctionProvider> describe_all(const std::vector<Provider>& providers) {
  std::vector<FunctionProvider> to;
  for (const Provider& from : providers) {
    FunctionProvider p;
    p.backend = from.hook->backend;
    p.priority = priority_of(*from.hook);
    p.on = from.eligibility.eligible();
    if (!p.on)
      p.reason = select::reason_name(from.eligibility.reason), p.detail = from.eligibility.why();
    if (from.eligibility.breaker) p.breaker = to_string(from.eligibility.breaker->state);
    to.push_back(std::move(p));
  }
  return to;
}

void add_counters(const ProviderTable& table, FunctionInfo& to) {
  to.original_calls = table.originals->total();
  for (FunctionProvider& p : to.providers)
    for (const ProviderTable::Entry& e : table.entries) {
      if (e.implementation->hook->backend != p.backend) continue;
      p.calls = e.implementation->runs.total();
      p.failures = e.implementation->failures.total();
    }
}

// The counters are those of the shared runtime, which serves the calls.
FunctionInfo describe(const Situation& now, detail::FunctionSite& site, bool serves) {
  FunctionInfo to;
  to.group = site.group, to.name = site.name, to.signature = site.signature;
  to.declared = true;
  to.providers = describe_all(function_providers(now, site.group, site.name, site.signature));
  if (!serves) return to;
  base::Guard guard(base::this_thread());
  const detail::FunctionTable* t = guard.protect(site.table);
  to.asked = t != nullptr;
  if (const ProviderTable* table = as_table(t)) add_counters(*table, to);
  return to;
}

// One candidate of an explanation; `selected` is the backend selected so far.
FunctionCandidate explain_entry(const ProviderTable::Entry& e, const base::ThreadRecord& thread,
                                const detail::FunctionArgs& args, std::string& selected) {
  const Implementation& i = *e.implementation;
  const auto because = [](int32_t reason) { return std::string(select::reason_name(reason)); };
  FunctionCandidate c{i.hook->backend, priority_of(*i.hook), "out", "", e.eligibility.why()};
  if (!e.eligibility.eligible()) {
    c.reason = because(e.eligibility.reason);
    return c;
  }
  const Answer a = ask_once(i, thread, args);
  health::ProbeSlots* const probes = e.eligibility.probes();
  if (!a.broken.empty()) {
    c.verdict = "broken", c.reason = because(YARD_REASON_VERIFIER_BROKEN);
    c.detail = a.broken;
  } else if (!a.accepted) {
    c.verdict = "refused", c.reason = because(a.verdict.reason);
    c.detail = i.text_of(a.verdict.reason, a.verdict.figures);
  } else if (probes != nullptr && !probes->would_admit()) {
    c.reason = because(YARD_REASON_UNHEALTHY);
    c.detail = "its breaker is half-open, and other calls try it now";
  } else {
    c.verdict = selected == detail::kOriginal ? "selected" : "able";
    if (c.verdict == "selected") selected = c.backend;
  }
  return c;
}

}  // namespace

std::vector<FunctionInfo> FunctionService::list() {
  std::vector<FunctionInfo> to;
  const auto s = core_.snapshot();
  const Situation now(*s, core_.host);
  const bool serves = serves_.load(std::memory_order_acquire);
  std::set<std::pair<std::string, std::string>> declared;
  for (detail::FunctionSite* site : registry::function_sites()) {
    declared.emplace(site->group, site->name);
    to.push_back(describe(now, *site, serves));
  }
  for (const auto& hook : s->state->functions) {
    if (!declared.emplace(hook->group, hook->name).second) continue;
    FunctionInfo orphan;
    orphan.group = hook->group, orphan.name = hook->name, orphan.signature = hook->signature;
    orphan.providers = describe_all(function_providers(now, hook->group, hook->name, ""));
    to.push_back(std::move(orphan));
  }
  std::sort(to.begin(), to.end(), [](const FunctionInfo& a, const FunctionInfo& b) {
    return std::tie(a.group, a.name, a.signature) < std::tie(b.group, b.name, b.signature);
  });
  return to;
}

FunctionExplanation FunctionService::explain(detail::FunctionSite& site,
                                             const detail::FunctionArgs& args) {
  FunctionExplanation to;
  to.function = site.group + "/" + site.name;
  to.selected = detail::kOriginal;
  base::ThreadRecord& thread = base::this_thread();
  const detail::ScopeState* const scope = detail::provider_scope_of(thread);
  if (scope != nullptr && !scope->problem.ok()) {
    to.selected.clear();
    to.why = "a call is an error: " + scope->problem.to_string();
    return to;
  }
  attach(site);
  base::Guard guard(thread);
  const detail::FunctionTable* t = detail::protect_table(site, thread, guard);
  if (t == &detail::kFunctionsOff) to.why = "the master switch: every call is the original";
  const ProviderTable* table = as_table(t);
  if (table == nullptr) return to;
  for (const ProviderTable::Entry& e : table->entries)
    to.candidates.push_back(explain_entry(e, thread, args, to.selected));
  return to;
}

void FunctionService::add_successes(std::vector<health::Successes>& to) {
  if (!serves_.load(std::memory_order_acquire)) return;
  base::ThreadRecord& thread = base::this_thread();
  for (const detail::FunctionSite* site : registry::function_sites()) {
    base::Guard guard(thread);
    const ProviderTable* table = as_table(guard.protect(site->table));
    if (table == nullptr) continue;
    for (const ProviderTable::Entry& e : table->entries) {
      const health::Key key = health_key(*e.implementation->hook);
      const uint64_t runs = e.implementation->runs.total();
      to.push_back({key.op, key.kernel, key.backend,
                    runs - std::min(runs, e.implementation->failures.total())});
    }
  }
}

}  // namespace yard::provider

namespace yard {

std::string FunctionExplanation::to_text() const {
  std::string to = fmt::format("{}: {}", function, selected);
  if (!why.empty()) to += fmt::format(" ({})", why);
  to += "\n";
  for (const FunctionCandidate& c : candidates) {
    to += fmt::format("  {:<16} {:<8}", c.backend, c.verdict);
    if (!c.reason.empty()) to += fmt::format(" {}", c.reason);
    if (!c.detail.empty()) to += fmt::format(": {}", c.detail);
    to += "\n";
  }
  return to;
}

std::vector<FunctionInfo> Functions::list() const { return service_->list(); }
std::vector<FunctionSource> Functions::sources() const { return service_->sources(); }

Result<FunctionInfo> Functions::find(std::string_view function) const {
  std::vector<std::string> names;
  for (FunctionInfo& f : service_->list()) {
    names.push_back(f.group + "/" + f.name);
    if (names.back() == function) return std::move(f);
  }
  return Status(Code::kNotFound,
                fmt::format("no function {} is declared or provided{}", base::excerpt(function),
                            base::did_you_mean(function, names)));
}

void Functions::add_provider(std::string group, FunctionSetup setup, std::string name) {
  service_->add_provider(std::move(group), std::move(setup), std::move(name));
}
Status Functions::load(std::string_view group) { return service_->load(group); }

}  // namespace yard
