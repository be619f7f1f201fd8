// SPDX-License-Identifier: Apache-2.0
// Commands that only look.
#include <fmt/format.h>
#include <yard/trace.h>

#include <algorithm>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/planner.h"
#include "inspect/commands.h"
#include "op/call.h"
#include "policy/process.h"

namespace yard::inspect {
namespace {

using base::JsonObject;

template <class List, class F>
std::string each(const List& list, const F& json_of) {
  std::vector<std::string> to;
  for (const auto& item : list) to.push_back(json_of(item));
  return base::json_list(to);
}

std::string kernel_json(const KernelInfo& k) {
  JsonObject o;
  o.add("id", k.id).add("kind", yard::to_string(k.kind)).add_or_null("vendor", k.vendor);
  o.add("backend", k.backend).add("priority", k.priority).add("available", k.available);
  return o.add_or_null("reason", k.reason).text();
}

// As `yard list --json` has it.
Result<std::string> list(const Subject& s, const Json&) {
  std::vector<std::string> announced;
  for (const PluginInfo& p : s.runtime.plugins().list()) {
    if (p.state != PluginState::kFound) continue;
    for (const std::string& op : p.ops)
      announced.push_back(
          JsonObject().add("op", op).add("plugin", p.name).add("path", p.path).text());
  }
  const auto op_json = [](const OpInfo& op) {
    JsonObject o;
    o.add("name", op.name).add("schema", op.schema);
    return o.add_json("kernels", each(op.kernels, kernel_json)).text();
  };
  return JsonObject()
      .add_json("ops", each(s.runtime.list().ops, op_json))
      .add_json("announced", base::json_list(announced))
      .text();
}

Result<std::string> explain(const Subject& s, const Json& args) {
  Options options;
  if (const Json* const labels = find(args, "labels"))
    for (const auto& [key, value] : labels->items()) {
      if (!value.is_string()) return invalid("labels." + key, "a string", &value);
      options.labels[key] = value.get<std::string>();
    }
  YARD_ASSIGN_OR_RETURN(const auto explanation, s.runtime.explain(text(args, "call"), options));
  return explanation.to_json();
}

Result<std::string> health(const Subject& s, const Json&) {
  const HealthReport report = s.runtime.health().report();
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::string> breakers;
  for (const KernelHealth& k : report.kernels)
    for (const KernelHealth::Breaker& b : k.open) {
      JsonObject o;
      o.add("op", k.op).add("kernel", k.kernel).add("backend", k.backend).add("key", b.key);
      o.add("state", yard::to_string(b.state)).add_or_null("reason", k.last_error);
      if (b.until)
        o.add("until_s", std::max(0.0, std::chrono::duration<double>(*b.until - now).count()));
      else
        o.add_json("until_s", "null");
      breakers.push_back(o.add("manual", b.manual).add("repeats", b.repeats).text());
    }
  const auto backend_json = [](const BackendHealth& b) {
    JsonObject o;
    o.add("backend", b.backend).add("successes", b.successes);
    o.add("failures", b.failures.counted()).add("failure_rate", b.failure_rate());
    return o.add("open_kernels", b.open_kernels).add_or_null("last_error", b.last_error).text();
  };
  return JsonObject()
      .add_json("breakers", base::json_list(breakers))
      .add_json("backends", each(report.backends, backend_json))
      .text();
}

Result<std::string> policy_in_force(const Subject& s, const Json&) {
  const auto snapshot = s.core.snapshot();
  const Policy none;
  const policy::FileRules* const file = snapshot->policy->file.get();
  const policy::Source sources[] = {{"file", file != nullptr ? &file->said : &none},
                                    {"environment", &snapshot->policy->environment},
                                    {"process", &snapshot->policy->set}};
  JsonObject fields, from;
  for (const Explanation::PolicyNote& n : policy::notes(sources))
    fields.add(n.field, n.value), from.add(n.field, n.source);
  return JsonObject().add_json("policy", fields.text()).add_json("sources", from.text()).text();
}

Result<std::string> config_history(const Subject& s, const Json&) {
  const auto change_json = [](const ConfigChange& c) {
    JsonObject o;
    o.add("path", c.path).add_or_null("before", c.before);
    return o.add_or_null("after", c.after).text();
  };
  const auto version_json = [&](const ConfigVersion& v) {
    JsonObject o;
    o.add("version", v.number).add("sha256", v.sha256);
    o.add("at", seconds_since_1970(v.time)).add("source", v.source).add("in_force", v.in_force);
    return o.add_json("changes", each(v.changes, change_json)).text();
  };
  return JsonObject().add_json("versions", each(s.runtime.rules().history(), version_json)).text();
}

Result<std::string> config_show(const Subject& s, const Json&) {
  const rules::Rules::Standing now = s.rules.standing();
  JsonObject to;
  to.add("version", now.version).add_or_null("source", now.source);
  to.add_or_null("watched", now.watched);
  return to.add("yaml", now.rules ? to_yaml(s.runtime.rules().config()) : "").text();
}

Result<std::string> stats(const Subject& s, const Json&) {
  return yard::to_json(s.runtime.stats());
}

std::string plan_json(const Subject& s, const dispatch::Entry& entry,
                      const dispatch::Planner::KnownCall& known) {
  const std::string call = op::to_string(known.call->to_spec(entry.program()));
  std::vector<std::string> rejected;
  std::string kernel = known.kernel != nullptr ? known.kernel->id : "";
  if (const auto e = s.runtime.explain(call); e.ok()) {
    if (kernel.empty()) kernel = e->selected;
    for (const Candidate& c : e->candidates)
      if (c.verdict != "selected") {
        JsonObject o;
        o.add("kernel", c.id).add("verdict", c.verdict).add("reason", c.reason);
        rejected.push_back(o.add("detail", c.detail).text());
      }
  }
  JsonObject to;
  to.add("call", call).add("kernel", kernel).add("mode", yard::to_string(known.mode));
  to.add("direct", known.direct).add("used", known.kernel != nullptr);
  return to.add_json("rejected", base::json_list(rejected)).text();
}

Result<std::string> plans(const Subject& s, const Json& args) {
  const std::string op = text(args, "op");
  const auto snapshot = s.core.snapshot();
  const registry::OpRecord* const record = snapshot->state->find(op);
  if (record == nullptr)
    return Status(Code::kUnknownOp,
                  fmt::format("op '{}' is not known{}", op,
                              base::did_you_mean(op, base::keys(snapshot->state->op_records))));
  const dispatch::Entry& entry = *snapshot->entry(record->op->index);
  const auto known = s.core.planner.known_calls(entry);
  const auto one = [&](const auto& k) { return plan_json(s, entry, k); };
  JsonObject to;
  return to.add("op", op).add("count", known.size()).add_json("plans", each(known, one)).text();
}

Result<std::string> status(const Subject& s, const Json&) {
  const auto snapshot = s.core.snapshot();
  const rules::Rules::Standing rules = s.rules.standing();
  const policy::FileRules* const file = snapshot->policy->file.get();
  JsonObject config;
  config.add_or_null("path", rules.rules ? rules.source : "").add("version", rules.version);
  config.add("mode", file != nullptr ? file->config.settings.mode.value_or("auto") : "auto");
  config.add_or_null("watched", rules.watched);
  size_t loaded = 0, open = 0;
  for (const PluginInfo& p : s.runtime.plugins().list()) loaded += p.state == PluginState::kLoaded;
  for (const KernelHealth& k : s.runtime.health().report().kernels) open += k.open.size();
  const Recording recording = s.runtime.recording();
  JsonObject to;
  to.add("generation", snapshot->generation);
  to.add("policy", yard::to_string(snapshot->policy->in_force)).add_json("config", config.text());
  to.add("plugins", loaded).add("open_breakers", open);
  to.add_or_null("recording", recording.stats().path).add("verbose", recording.verbose());
  to.add("trace", recording.is_tracing()).add("rollout", snapshot->policy->rollout != nullptr);
  return to.add_json("last_change", last_change()).text();
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
