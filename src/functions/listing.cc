// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "functions/functions.h"
#include "select/reasons.h"

namespace yard::functions {

static FunctionInfo describe(const Situation& now, const FunctionSite& site, const Table* table,
                             bool declared) {
  FunctionInfo to{site.group, site.name, site.signature, site.selection, declared, false, {}, 0};
  // Only the shared runtime serves calls and has counters.
  if (table != nullptr) to.original_calls = table->originals->total();
  for (const auto made = Table::make(now, site, table); const Table::Entry& e : made->entries) {
    const Implementation& i = *e.implementation;
    // A function that is not declared is listed once for each signature.
    if (!declared && i.record->signature != site.signature) continue;
    FunctionProvider& p = to.providers.emplace_back();
    p.backend = i.backend, p.priority = i.priority, p.takes_next = i.takes_next;
    p.on = e.eligibility.eligible();
    if (!p.on) p.reason = select::reason_name(e.eligibility.reason), p.detail = e.eligibility.why();
    if (e.eligibility.breaker) p.breaker = to_string(e.eligibility.breaker->state);
    p.calls = i.successes.total() + i.thrown.total(), p.failures = i.failures.total();
    for (const FunctionActivation& a : now.activations) {
      if (a.backend != p.backend) continue;
      if (a.device)
        p.devices.push_back(*a.device);
      else
        p.active = true;
    }
  }
  return to;
}

FunctionCandidate explain_entry(const Table::Entry& e, const ThreadHead& thread,
                                const FunctionArgs& args) {
  const Implementation& i = *e.implementation;
  FunctionCandidate c{i.backend, i.priority, "out", "", e.eligibility.why()};
  int32_t reason = e.eligibility.reason;
  if (e.eligibility.eligible()) {
    const Answer a = ask_once(i, thread, args);
    const auto probes = e.eligibility.probes();
    reason = a.verdict.reason;
    if (!a.broken.empty())
      c.verdict = "broken", c.detail = a.broken;
    else if (!a.accepted())
      c.verdict = "refused", c.detail = i.text_of(a.verdict);
    else if (probes == nullptr || probes->would_admit())
      c.verdict = "able";
    else
      reason = YARD_REASON_UNHEALTHY, c.detail = "its breaker is half-open; another call tries it";
  }
  if (reason != YARD_REASON_NONE) c.reason = select::reason_name(reason);
  return c;
}

FunctionExplanation Service::explain(FunctionSite& site, const FunctionArgs& args) {
  FunctionExplanation to;
  to.function = site.group + "/" + site.name;
  to.selected = kOriginal;
  base::ThreadRecord& thread = base::this_thread();
  const ScopeState* const scope = provider_scope_of(thread);
  if (scope != nullptr && !scope->problem.ok()) {
    to.selected.clear();
    to.why = "a call is an error: " + scope->problem.to_string();
    return to;
  }
  attach(site);
  const auto s = core_.snapshot();
  if (Situation{*s, core_.host, {}, scope}.off())
    to.why = "the master switch: every call is the original";
  base::Guard guard(thread);
  if (const Table* const table = find_table(site, thread, guard))
    for (const Table::Entry& e : table->entries) {
      FunctionCandidate& c = to.candidates.emplace_back(explain_entry(e, thread, args));
      if (c.verdict == "able" && to.selected == kOriginal)
        c.verdict = "selected", to.selected = c.backend;
    }
  return to;
}

void Service::add_successes(std::vector<health::Successes>& to) {
  const auto s = core_.snapshot();
  const SnapshotTables* const tables = SnapshotTables::of(*s);
  if (tables == nullptr) return;
  for (const auto& table : tables->tables) {
    if (table == nullptr) continue;
    for (const Table::Entry& e : table->entries) {
      const health::Key key = health_key(*e.implementation->record);
      to.push_back({key.op, key.kernel, key.backend, e.implementation->successes.total()});
    }
  }
}

}  // namespace yard::functions

namespace yard {

std::string FunctionExplanation::to_text() const {
  std::string to = fmt::format("{}: {}", function, selected);
  if (!why.empty()) to += fmt::format(" ({})", why);
  to += "\n";
  for (const FunctionCandidate& c : candidates)
    to += fmt::format("  {:<16} {:<8}{}{}{}{}\n", c.backend, c.verdict, c.reason.empty() ? "" : " ",
                      c.reason, c.detail.empty() ? "" : ": ", c.detail);
  return to;
}

std::vector<FunctionInfo> Functions::list() const {
  std::vector<FunctionInfo> to;
  const auto s = service_->core_.snapshot();
  const functions::Situation now{*s, service_->core_.host, service_->activations()};
  const auto* const tables = functions::SnapshotTables::of(*s);
  using Names = std::pair<std::string, std::string>;
  std::set<Names> declared;
  std::set<std::pair<Names, std::string>> orphans;  // with their signatures
  for (const detail::FunctionSite* site : functions::declared_sites()) {
    declared.emplace(site->group, site->name);
    const functions::Table* const table = tables != nullptr ? tables->find(*site) : nullptr;
    to.push_back(functions::describe(now, *site, table, true));
    to.back().asked = service_->in_use(site->group);
  }
  for (const auto& record : s->state->functions) {
    const Names names(record->group, record->name);
    if (declared.contains(names) || !orphans.emplace(names, record->signature).second) continue;
    detail::FunctionSite orphan;
    orphan.group = record->group, orphan.name = record->name;
    orphan.signature = record->signature;
    if ((record->d.flags & YARD_FUNCTION_NEXT) != 0) orphan.selection = Selection::kActive;
    to.push_back(functions::describe(now, orphan, nullptr, false));
  }
  std::ranges::sort(to, {},
                    [](const FunctionInfo& f) { return std::tie(f.group, f.name, f.signature); });
  base::reclaimer().collect();  // frees implementations that were made for the list
  return to;
}

Result<FunctionInfo> Functions::find(std::string_view function) const {
  std::vector<std::string> names;
  for (FunctionInfo& f : list()) {
    names.push_back(f.group + "/" + f.name);
    if (names.back() == function) return std::move(f);
  }
  return Status(Code::kNotFound,
                fmt::format("no function {} is declared or provided{}", base::excerpt(function),
                            base::did_you_mean(function, names)));
}

}  // namespace yard
