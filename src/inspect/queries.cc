// SPDX-License-Identifier: Apache-2.0
// Commands that change nothing.
#include <fmt/format.h>
#include <yard/trace.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/planner.h"
#include "inspect/commands.h"
#include "op/call.h"
#include "policy/process.h"

namespace yard::inspect {
namespace {

Result<Json> list(const Subject& s, const Value&) {
  std::vector<Json> announced;
  for (const PluginInfo& p : s.runtime.plugins().list())
    if (p.state == PluginState::kFound)
      for (const std::string& op : p.ops)
        announced.push_back(object("op", op, "plugin", p.name, "path", p.path));
  const auto kernel_json = [](const KernelInfo& k) {
    return object("id", k.id, "kind", yard::to_string(k.kind), "vendor", or_null(k.vendor),
                  "backend", k.backend, "priority", k.priority, "available", k.available, "reason",
                  or_null(k.reason));
  };
  const auto op_json = [&](const OpInfo& op) {
    return object("name", op.name, "schema", op.schema, "kernels", each(op.kernels, kernel_json));
  };
  return object("ops", each(s.runtime.list().ops, op_json), "announced", list_of(announced));
}

Result<Json> explain(const Subject& s, const Value& args) {
  Options options;
  if (const Value* const labels = find(args, "labels"))
    for (const Value& label : labels->members) {
      if (label.kind != Value::Kind::kText)
        return invalid("labels." + label.name, "a string", &label);
      options.labels[label.name] = label.text;
    }
  YARD_ASSIGN_OR_RETURN(const auto explanation, s.runtime.explain(text(args, "call"), options));
  return Json{explanation.to_json()};
}

Result<Json> health(const Subject& s, const Value&) {
  const HealthReport report = s.runtime.health().report();
  const auto now = std::chrono::steady_clock::now();
  const std::vector<base::Event> events = base::events();
  const auto opened = [&](const std::string& subject) {  // the last event of an opened breaker
    Json to;
    for (const base::Event& e : events)
      if (e.kind == &base::event::kBreakerOpened && e.runtime == s.id && e.subject == subject)
        to = {base::to_json(e)};
    return to;
  };
  std::vector<Json> breakers;
  for (const KernelHealth& k : report.kernels)
    for (const KernelHealth::Breaker& b : k.open) {
      const std::string key = b.key.empty() ? "" : fmt::format(" ({})", b.key);
      // An unknown time is NAN, which is written as null.
      const double until_s =
          b.until ? std::max(0.0, std::chrono::duration<double>(*b.until - now).count()) : NAN;
      breakers.push_back(object("op", k.op, "kernel", k.kernel, "backend", k.backend, "key", b.key,
                                "state", yard::to_string(b.state), "reason",
                                or_null(b.manual ? b.reason : k.last_error), "until_s", until_s,
                                "manual", b.manual, "repeats", b.repeats, "opened",
                                opened(fmt::format("{} {}{}", k.op, k.kernel, key))));
    }
  const auto backend_json = [](const BackendHealth& b) {
    return object("backend", b.backend, "successes", b.successes, "failures", b.failures.counted(),
                  "failure_rate", b.failure_rate(), "open_kernels", b.open_kernels, "last_error",
                  or_null(b.last_error));
  };
  return object("breakers", list_of(breakers), "backends", each(report.backends, backend_json));
}

Result<Json> policy_in_force(const Subject& s, const Value&) {
  const auto snapshot = s.core.snapshot();
  const Policy none;
  const policy::FileRules* const file = snapshot->policy->file.get();
  const policy::Source sources[] = {{"file", file != nullptr ? &file->said : &none},
                                    {"environment", &snapshot->policy->environment},
                                    {"process", &snapshot->policy->set}};
  base::JsonObject fields, from;
  for (const Explanation::PolicyNote& n : policy::notes(sources))
    fields.add(n.field, n.value), from.add(n.field, n.source);
  return object("policy", Json{fields.text()}, "sources", Json{from.text()});
}

Result<Json> config_history(const Subject& s, const Value&) {
  const auto change_json = [](const ConfigChange& c) {
    return object("path", c.path, "before", or_null(c.before), "after", or_null(c.after));
  };
  const auto version_json = [&](const ConfigVersion& v) {
    return object("version", v.number, "sha256", v.sha256, "at", seconds_since_1970(v.time),
                  "source", v.source, "in_force", v.in_force, "changes",
                  each(v.changes, change_json));
  };
  return object("versions", each(s.runtime.rules().history(), version_json));
}

Result<Json> config_show(const Subject& s, const Value&) {
  const rules::Rules::Standing now = s.rules.standing();
  return object("version", now.version, "source", or_null(now.source), "watched",
                or_null(now.watched), "yaml",
                now.rules ? to_yaml(s.runtime.rules().config()) : std::string());
}

Result<Json> stats(const Subject& s, const Value&) {
  return Json{yard::to_json(s.runtime.stats())};
}

Json plan_json(const Subject& s, const dispatch::Entry& entry,
               const dispatch::Planner::KnownCall& known) {
  const std::string call = op::to_string(known.call->to_spec(entry.program()));
  std::vector<Json> rejected;
  std::string kernel = known.kernel != nullptr ? known.kernel->id : "";
  if (const auto e = s.runtime.explain(call); e.ok()) {
    if (kernel.empty()) kernel = e->selected;
    for (const Candidate& c : e->candidates)
      if (c.verdict != "selected")
        rejected.push_back(
            object("kernel", c.id, "verdict", c.verdict, "reason", c.reason, "detail", c.detail));
  }
  return object("call", call, "kernel", kernel, "mode", yard::to_string(known.mode), "direct",
                known.direct, "used", known.kernel != nullptr, "rejected", list_of(rejected));
}

Result<Json> plans(const Subject& s, const Value& args) {
  const std::string op = text(args, "op");
  const auto snapshot = s.core.snapshot();
  const registry::OpRecord* const record = snapshot->state->find(op);
  if (record == nullptr)
    return base::failure(Code::kUnknownOp, "op '{}' is not known{}", op,
                         base::did_you_mean(op, base::keys(snapshot->state->op_records)));
  const dispatch::Entry& entry = *snapshot->entry(record->op->index);
  const auto known = s.core.planner.known_calls(entry);
  const auto one = [&](const auto& k) { return plan_json(s, entry, k); };
  return object("op", op, "count", known.size(), "plans", each(known, one));
}

// Lists where the state differs from what somebody asked for (docs/reference/inspect.md).
Json drift(const Subject& s, const std::vector<base::Event>& events) {
  namespace event = base::event;
  std::map<std::string, const base::Event*> found;  // by `what`
  std::vector<const base::Event*> denies;
  for (const base::Event& e : events) {
    if (e.runtime != s.id) continue;
    const bool of_client = e.subject.starts_with("live ") || e.subject.starts_with("undo");
    const bool new_rules = e.kind == &event::kRules && !of_client;
    const bool rollout = e.kind == &event::kRollout;
    if (rollout || e.kind == &event::kRules) found.erase("aborted rollout");
    if (rollout || new_rules) found.erase("refused file");
    if (new_rules && e.detail != nullptr)
      for (const base::Event* d : std::exchange(denies, {}))
        found[fmt::format("replaced change {}", d->id)] = d;
    if (e.kind == &event::kRulesRefused && !of_client) found["refused file"] = &e;
    if (e.kind == &event::kAborted) found["aborted rollout"] = &e;
    if (e.kind == &event::kChange) found.erase("undone change");
    if (e.kind == &event::kChange && e.subject == "deny") denies.push_back(&e);
    if (e.kind != &event::kUndo) continue;
    // Undoing a change of rules restores the denies that the change replaced.
    std::erase_if(found, [](const auto& f) { return f.first.starts_with("replaced"); });
    found["undone change"] = &e;
    std::erase_if(denies, [&](const base::Event* d) { return d->id == e.number; });
  }
  return each(found, [](const auto& f) {
    std::string event = base::to_json(*f.second);
    event.pop_back();
    return Json{fmt::format(R"({}, "what": {}}})", event, base::json_string(f.first))};
  });
}

// Returns the last event that is an error, or the last failure of a kernel if that is later.
Json last_error(const Subject& s, const HealthReport& health,
                const std::vector<base::Event>& events) {
  double last = 0;
  Json to;
  const auto add = [&](double at, const std::string& subject, const std::string& reason) {
    if (at <= last) return;
    last = at, to = object("at", at, "subject", subject, "reason", reason);
  };
  for (const base::Event& e : events)
    if (e.runtime == s.id && e.kind->error) add(seconds_since_1970(e.at), e.subject, e.reason);
  const auto now = std::chrono::steady_clock::now();
  const double seconds = seconds_since_1970(std::chrono::system_clock::now());
  for (const KernelHealth& k : health.kernels)
    if (k.last_error_at)
      add(seconds - std::chrono::duration<double>(now - *k.last_error_at).count(),
          k.op + " " + k.kernel, k.last_error);
  return to;
}

Result<Json> status(const Subject& s, const Value&) {
  const auto snapshot = s.core.snapshot();
  const rules::Rules::Standing rules = s.rules.standing();
  const policy::FileRules* const file = snapshot->policy->file.get();
  const Json config =
      object("path", or_null(rules.rules ? rules.source : ""), "version", rules.version, "mode",
             file != nullptr ? file->config.settings.mode.value_or("auto") : "auto", "watched",
             or_null(rules.watched));
  std::vector<Json> plugins;
  for (const PluginInfo& p : s.runtime.plugins().list())
    if (p.state == PluginState::kLoaded)
      plugins.push_back(object("name", p.name, "version", p.version));
  const HealthReport health = s.runtime.health().report();
  size_t open = 0;
  for (const KernelHealth& k : health.kernels) open += k.open.size();
  const std::vector<base::Event> events = base::events();
  const Recording recording = s.runtime.recording();
  return object("generation", snapshot->generation, "policy",
                yard::to_string(snapshot->policy->in_force), "config", config, "plugins",
                plugins.size(), "loaded_plugins", list_of(plugins), "open_breakers", open,
                "recording", or_null(recording.stats().path), "verbose", recording.verbose(),
                "trace", recording.is_tracing(), "rollout", snapshot->policy->rollout != nullptr,
                "last_change", last_change(), "drift", drift(s, events), "last_error",
                last_error(s, health, events));
}

}  // namespace

std::vector<Command> query_commands() {
  using enum Member::Kind;
  return {{"status", {}, status},
          {"list", {}, list},
          {"explain", {{"call", kNeededText}, {"labels", kObject}}, explain},
          {"health", {}, health},
          {"policy", {}, policy_in_force},
          {"config.history", {}, config_history},
          {"config.show", {}, config_show},
          {"stats", {}, stats},
          {"plans", {{"op", kNeededText}}, plans}};
}

}  // namespace yard::inspect
