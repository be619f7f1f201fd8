// SPDX-License-Identifier: Apache-2.0
// Commands about the plugins of a running process, and the effect of a change on recent calls.
#include <fmt/format.h>

#include <map>
#include <tuple>

#include "base/results.h"
#include "dispatch/planner.h"
#include "inspect/commands.h"
#include "op/call.h"

namespace yard::inspect {
namespace {

Json plugin_json(const PluginInfo& p) {
  return object("name", p.name, "version", p.version, "path", p.path, "sha256", or_null(p.sha256));
}

// Returns the plugin that a load of the name or path would find, or why the load would be refused.
Result<PluginInfo> could_load(const Subject& s, const std::string& name_or_path) {
  std::string path = name_or_path;
  for (const PluginInfo& p : s.runtime.plugins().list())
    if (p.name == name_or_path) path = p.path;
  if (!path.starts_with('/'))
    return base::failure(Code::kNotFound,
                         "no plugin '{}' has been found; expected the name of one, or the "
                         "absolute path of a file",
                         name_or_path);
  PluginInfo info = s.runtime.plugins().would_load(path);
  if (info.state != PluginState::kRefused) return info;
  return base::invalid("{}: {}: {}", path, to_string(info.reason), info.detail);
}

Result<PluginInfo> loaded(const Subject& s, const std::string& name_or_path) {
  for (const PluginInfo& p : s.runtime.plugins().list())
    if (p.state == PluginState::kLoaded && (p.name == name_or_path || p.path == name_or_path))
      return p;
  return base::failure(Code::kNotFound, "no plugin '{}' is loaded", name_or_path);
}

// Returns the known calls of all ops with the kernels that serve them now. Keys are CallSpecs.
std::map<std::string, dispatch::MovedCall> served_now(const Subject& s) {
  std::map<std::string, dispatch::MovedCall> to;
  const auto snapshot = s.core.snapshot();
  for (const auto& entry : snapshot->entries) {
    if (entry == nullptr) continue;
    for (const auto& known : s.core.planner.known_calls(*entry)) {
      const std::string call = op::to_string(known.call->to_spec(entry->program()));
      dispatch::MovedCall& c = to[call];
      c.op = entry->name(), c.call = call;
      if (const auto r = s.runtime.resolve(call); r.ok()) c.to = r->kernel, c.kind = r->kind;
    }
  }
  return to;
}

template <class F>
Result<Json> moved_by(const Subject& s, const F& change) {
  const auto before = served_now(s);
  YARD_RETURN_IF_ERROR(change());
  std::vector<dispatch::MovedCall> moved;
  for (auto& [call, now] : served_now(s))
    if (const auto it = before.find(call); it != before.end() && it->second.to != now.to) {
      moved.push_back(now);
      moved.back().from = it->second.to;
    }
  return takeover(s, moved);
}

Result<Changed> plugin_load(const Subject& s, const Value& args) {
  const std::string what = text(args, "plugin");
  YARD_ASSIGN_OR_RETURN(const PluginInfo info, could_load(s, what));
  const Json plugin = plugin_json(info);
  if (is_set(args, "dry_run")) return Changed{.effect = object("plugin", plugin)};
  YARD_ASSIGN_OR_RETURN(const Json takes_over,
                        moved_by(s, [&] { return s.runtime.plugins().load(what); }));
  return Changed{
      [name = info.name](const Subject& to) { return to.runtime.plugins().unload(name).status(); },
      object("plugin", plugin, "takes_over", takes_over)};
}

// First tries rules that deny the plugin's kernels, so that the unload is refused if it would leave
// a recent call without a kernel.
Result<Changed> plugin_unload(const Subject& s, const Value& args) {
  YARD_ASSIGN_OR_RETURN(const PluginInfo info, loaded(s, text(args, "plugin")));
  Config without = s.runtime.rules().config();
  for (const auto& [op, record] : s.core.snapshot()->state->op_records)
    for (const auto& [id, kernel] : record->kernels)
      if (kernel->origin.plugin == info.name) {
        DispatchRule& rule = without.dispatch_rules.emplace_back();
        rule.operation = op, rule.deny = {{id, true, {}}};
      }
  YARD_ASSIGN_OR_RETURN(const auto moved, s.rules.dry_run(std::move(without)));
  Changed to{[path = info.path](const Subject& of) { return of.runtime.plugins().load(path); },
             object("plugin", plugin_json(info), "takes_over", takeover(s, moved))};
  if (!is_set(args, "dry_run"))
    YARD_RETURN_IF_ERROR(s.runtime.plugins().unload(info.name).status());
  return to;
}

Result<Changed> plugin_replace(const Subject& s, const Value& args) {
  YARD_ASSIGN_OR_RETURN(const PluginInfo old, loaded(s, text(args, "plugin")));
  const std::string path = find(args, "path") != nullptr ? text(args, "path") : old.path;
  YARD_ASSIGN_OR_RETURN(const PluginInfo next, could_load(s, path));
  const Json plugin = plugin_json(next), replaced = plugin_json(old);
  if (is_set(args, "dry_run"))
    return Changed{.effect = object("plugin", plugin, "replaced", replaced)};
  const KeptOps keep = is_set(args, "allow_incompatible") ? KeptOps::kNone : KeptOps::kInUse;
  const auto put = [name = old.name, keep](const Subject& to, const std::string& file) {
    return to.runtime.plugins().replace(name, file, keep).status();
  };
  YARD_ASSIGN_OR_RETURN(const Json takes_over, moved_by(s, [&] { return put(s, path); }));
  Changed to{.effect = object("plugin", plugin, "replaced", replaced, "takes_over", takes_over)};
  // If the path is unchanged, the file of the old version is gone and cannot be restored.
  if (path != old.path)
    to.undo = [put, file = old.path](const Subject& of) { return put(of, file); };
  return to;
}

}  // namespace

Json takeover(const Subject& s, const std::vector<dispatch::MovedCall>& moved) {
  using Row = std::tuple<std::string, std::string, std::string>;
  std::map<Row, LatencyHistogram> times;  // by op, kernel and call
  for (const CallStats& c : s.runtime.stats().calls) times[{c.op, c.kernel, c.call}].add(c.latency);
  struct Sum {
    size_t calls = 0, timed = 0;
    double samples = 0, from_ns = 0, to_ns = 0;  // frequent kinds of calls weigh more
    bool measured = true;
    Kind kind = Kind::kDefault;
  };
  std::map<Row, Sum> sums;  // by op and both kernels
  for (const dispatch::MovedCall& m : moved) {
    Sum& sum = sums[{m.op, m.from, m.to}];
    ++sum.calls, sum.kind = m.kind;
    const LatencyHistogram& before = times[{m.op, m.from, m.call}];
    const double from = before.mean_ns();
    double to = times[{m.op, m.to, m.call}].mean_ns();
    const bool measured = to > 0;
    if (const auto e = s.runtime.explain(m.call); !measured && e.ok())
      for (const Candidate& c : e->candidates)
        if (c.id == m.to) to = c.estimate_ns.value_or(0);
    if (from <= 0 || to <= 0) continue;
    const auto samples = static_cast<double>(before.count);
    sum.samples += samples, sum.from_ns += samples * from, sum.to_ns += samples * to;
    ++sum.timed, sum.measured &= measured;
  }
  return each(sums, [](const auto& entry) {
    const auto& [op, from, to] = entry.first;
    const Sum& sum = entry.second;
    // Without a timed call the means are NaN, which is written as null.
    return object("op", op, "from", from, "to", or_null(to), "kind", yard::to_string(sum.kind),
                  "calls", sum.calls, "timed", sum.timed, "from_ns", sum.from_ns / sum.samples,
                  "to_ns", sum.to_ns / sum.samples, "measured", sum.timed > 0 && sum.measured);
  });
}

std::vector<Command> plugin_commands() {
  using enum Member::Kind;
  const Member plugin = {"plugin", kNeededText}, dry = {"dry_run", kSwitch};
  return {{"plugin.load", {plugin, dry}, nullptr, plugin_load},
          {"plugin.unload", {plugin, dry}, nullptr, plugin_unload},
          {"plugin.replace",
           {plugin, {"path", kText}, {"allow_incompatible", kSwitch}, dry},
           nullptr,
           plugin_replace}};
}

}  // namespace yard::inspect
