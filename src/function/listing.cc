// SPDX-License-Identifier: Apache-2.0
// What there is and why: lists, explanations and checks of functions.
#include <fmt/format.h>
#include <yard/detail/commit.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/thread_record.h"
#include "function/check.h"
#include "function/registry.h"
#include "registry/function_sites.h"

namespace yard::function {
namespace {

FunctionProvider provider(const Candidate& c) {
  FunctionProvider p;
  p.backend = c.hook->backend;
  p.priority = c.priority();
  p.on = c.reason == YARD_REASON_NONE;
  if (!p.on) p.reason = reason_label(c.reason), p.detail = c.detail;
  if (!c.breaker) return p;
  p.breaker = to_string(c.breaker->state);
  if (c.breaker->state == BreakerState::kOpen) p.detail = breaker_text(*c.breaker);
  return p;
}

// Figures of calls, where there have been any.
void add_figures(const Table& table, FunctionInfo& to) {
  to.original_calls = table.originals->total();
  for (FunctionProvider& p : to.providers)
    for (const Table::Entry& e : table.entries) {
      if (e.implementation->hook->backend != p.backend) continue;
      p.calls = e.implementation->runs.total();
      p.failures = e.implementation->failures.total();
      p.refusals = e.implementation->refusals();
    }
}

FunctionInfo describe(const Situation& now, detail::FunctionSite& site, bool serves) {
  FunctionInfo to;
  to.group = site.group, to.name = site.name, to.signature = site.signature;
  if (site.point != site.group + "/" + site.name) to.choice = site.point;
  to.declared = true;
  for (const Candidate& c : candidates(now, site.group, site.name, site.signature))
    to.providers.push_back(provider(c));
  if (!serves) return to;
  base::ThreadRecord& thread = base::this_thread();
  base::Guard guard(thread);
  const detail::FunctionTable* t = guard.protect(site.table);
  to.asked = t != nullptr;
  if (const Table* table = as_table(t)) add_figures(*table, to);
  return to;
}

}  // namespace

std::vector<FunctionInfo> Registry::list() {
  std::vector<FunctionInfo> to;
  const auto s = core_.snapshot();
  const Situation now{*s, core_.host};
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
    for (const Candidate& c : candidates(now, hook->group, hook->name, ""))
      orphan.providers.push_back(provider(c));
    to.push_back(std::move(orphan));
  }
  std::sort(to.begin(), to.end(), [](const FunctionInfo& a, const FunctionInfo& b) {
    return std::tie(a.group, a.name, a.signature) < std::tie(b.group, b.name, b.signature);
  });
  return to;
}

FunctionExplanation Registry::explain(detail::FunctionSite& site,
                                      const detail::FunctionArgs& args) {
  FunctionExplanation to;
  to.function = site.group + "/" + site.name;
  to.selected = detail::kOriginal;
  attach(site);
  base::ThreadRecord& thread = base::this_thread();
  base::Guard guard(thread);
  const detail::FunctionTable* t = guard.protect(site.table);
  if (t == &detail::kFunctionsOff) to.why = "the master switch: every call is the original";
  const Table* table = as_table(t);
  if (table == nullptr) {
    if (thread.commit != nullptr)
      for (const CommitDecision& d : thread.commit->decisions())
        if (d.point == site.point && d.chosen != detail::kOriginal)
          to.why += fmt::format("{}the commit group has chosen {}, so a call is an error",
                                to.why.empty() ? "" : "; ", d.chosen);
    return to;
  }
  for (const Table::Entry& e : table->entries) {
    const Implementation& i = *e.implementation;
    FunctionCandidate c{i.hook->backend, i.priority(), "out", "", e.detail};
    if (e.reason != YARD_REASON_NONE) {
      c.reason = reason_label(e.reason);
      if (e.breaker_text()) c.detail = breaker_text(*e.breaker);
      to.candidates.push_back(std::move(c));
      continue;
    }
    if (e.probes() != nullptr) c.detail = "its breaker is half-open: one call at a time tries it";
    const Answer a = table->checked ? ask_checked(i, thread, args) : ask_once(i, thread, args);
    if (!a.broken.empty()) {
      c.verdict = "broken", c.reason = reason_label(YARD_REASON_VERIFIER_BROKEN);
      c.detail = a.broken;
    } else if (!a.accepted) {
      c.verdict = "refused", c.reason = reason_label(a.verdict.reason);
      c.detail = i.text_of(a.verdict.reason, a.verdict.figures);
    } else if (thread.commit != nullptr && e.partial) {
      c.reason = reason_label(YARD_REASON_REFUSED);
      c.detail = "it cannot run all functions that choose together";
    } else if (e.probes() != nullptr && !e.probes()->would_admit()) {
      c.reason = reason_label(YARD_REASON_UNHEALTHY);
      c.detail = "its breaker is half-open, and other calls try it now";
    } else {
      c.verdict = to.selected == detail::kOriginal ? "selected" : "able";
      if (c.verdict == "selected") to.selected = c.backend;
    }
    to.candidates.push_back(std::move(c));
  }
  if (thread.commit != nullptr)
    for (const CommitDecision& d : thread.commit->decisions())
      if (d.point == site.point) {
        to.why = fmt::format("the commit group has chosen {}", d.chosen);
        to.selected = d.chosen;
      }
  return to;
}

std::vector<std::string> Registry::check(detail::FunctionSite& site,
                                         const detail::FunctionArgs& args) {
  std::vector<std::string> to;
  attach(site);
  base::ThreadRecord& thread = base::this_thread();
  base::Guard guard(thread);
  const Table* table = as_table(guard.protect(site.table));
  if (table == nullptr) return to;
  for (const Table::Entry& e : table->entries) {
    if (e.reason != YARD_REASON_NONE) continue;
    const Answer a = ask_checked(*e.implementation, thread, args);
    if (a.broken.empty()) continue;
    e.implementation->broken(a.broken);
    to.push_back(fmt::format("the verifier of backend '{}' for function '{}/{}': {}",
                             e.implementation->hook->backend, site.group, site.name, a.broken));
  }
  return to;
}

void Registry::add_successes(std::vector<health::Successes>& to) {
  if (!serves_.load(std::memory_order_acquire)) return;
  base::ThreadRecord& thread = base::this_thread();
  for (const detail::FunctionSite* site : registry::function_sites()) {
    base::Guard guard(thread);
    const Table* table = as_table(guard.protect(site->table));
    if (table == nullptr) continue;
    for (const Table::Entry& e : table->entries) {
      const health::Key key = health_key(*e.implementation->hook);
      const uint64_t runs = e.implementation->runs.total();
      to.push_back({key.op, key.kernel, key.backend,
                    runs - std::min(runs, e.implementation->failures.total())});
    }
  }
}

}  // namespace yard::function

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

}  // namespace yard
