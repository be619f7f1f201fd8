// SPDX-License-Identifier: Apache-2.0
// Lists and explanations of functions.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/reclaimer.h"
#include "base/text.h"
#include "functions/declarations.h"
#include "functions/functions.h"
#include "select/reasons.h"

namespace yard::functions {
namespace {

std::vector<FunctionProvider> describe_all(const Situation& now, const FunctionInfo& f,
                                           std::string_view signature) {
  std::vector<FunctionProvider> to;
  for (const Provider& from : providers_of(now, f.group, f.name, signature, f.selection)) {
    FunctionProvider p;
    p.backend = from.record->backend;
    p.priority = priority_of(*from.record);
    p.on = from.eligibility.eligible();
    p.takes_next = (from.record->d.flags & YARD_FUNCTION_NEXT) != 0;
    if (!p.on)
      p.reason = select::reason_name(from.eligibility.reason), p.detail = from.eligibility.why();
    if (from.eligibility.breaker) p.breaker = to_string(from.eligibility.breaker->state);
    for (const Activation& a : now.activations) {
      if (a.backend != p.backend) continue;
      if (a.device)
        p.devices.push_back(*a.device);
      else
        p.active = true;
    }
    to.push_back(std::move(p));
  }
  return to;
}

void add_counters(const Table& table, FunctionInfo& to) {
  to.original_calls = table.originals->total();
  for (FunctionProvider& p : to.providers)
    for (const Table::Entry& e : table.entries)
      if (e.implementation->record->backend == p.backend) {
        p.calls = e.implementation->successes.total() + e.implementation->thrown.total();
        p.failures = e.implementation->failures.total();
      }
}

// One candidate of an explanation; `selected` is the backend selected so far.
FunctionCandidate explain_entry(const Table::Entry& e, const base::ThreadRecord& thread,
                                const detail::FunctionArgs& args, std::string& selected) {
  const Implementation& i = *e.implementation;
  const auto because = [](int32_t reason) { return std::string(select::reason_name(reason)); };
  FunctionCandidate c{i.record->backend, priority_of(*i.record), "out", "", e.eligibility.why()};
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

std::vector<FunctionInfo> Service::list() const {
  std::vector<FunctionInfo> to;
  const auto s = core_.snapshot();
  const Activations active = activations();
  const Situation now(*s, core_.host, active);
  const SnapshotTables* const tables = SnapshotTables::of(*s);
  std::set<std::pair<std::string, std::string>> declared;
  for (const detail::FunctionSite* site : declared_sites()) {
    declared.emplace(site->group, site->name);
    FunctionInfo f{
        site->group, site->name, site->signature, site->selection, true, in_use(site->group),
        {},          0};
    f.providers = describe_all(now, f, f.signature);
    // The counters are those of the shared runtime, which serves the calls.
    if (tables != nullptr && site->index < tables->tables.size() &&
        tables->tables[site->index] != nullptr)
      add_counters(*tables->tables[site->index], f);
    to.push_back(std::move(f));
  }
  for (const auto& record : s->state->functions) {
    if (!declared.emplace(record->group, record->name).second) continue;
    FunctionInfo orphan;
    orphan.group = record->group, orphan.name = record->name;
    orphan.signature = record->signature;
    if ((record->d.flags & YARD_FUNCTION_NEXT) != 0) orphan.selection = Selection::kActive;
    orphan.providers = describe_all(now, orphan, "");
    to.push_back(std::move(orphan));
  }
  std::ranges::sort(to, [](const FunctionInfo& a, const FunctionInfo& b) {
    return std::tie(a.group, a.name, a.signature) < std::tie(b.group, b.name, b.signature);
  });
  return to;
}

FunctionExplanation Service::explain(detail::FunctionSite& site, const detail::FunctionArgs& args) {
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
  const Activations none;
  const bool off =
      Situation(*core_.snapshot(), core_.host, none, scope != nullptr ? &scope->content : nullptr)
          .off();
  if (off) to.why = "the master switch: every call is the original";
  base::Guard guard(thread);
  const Table* const table = find_table(site, thread, guard);
  if (table != nullptr && !off)
    for (const Table::Entry& e : table->entries)
      to.candidates.push_back(explain_entry(e, thread, args, to.selected));
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
