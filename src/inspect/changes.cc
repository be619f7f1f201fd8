// SPDX-License-Identifier: Apache-2.0
// Commands that change something. Each takes effect in one snapshot or is refused, and returns its
// undo.
#include <fmt/format.h>
#include <yard/trace.h>

#include <algorithm>
#include <filesystem>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "inspect/commands.h"
#include "policy/config_rows.h"
#include "policy/fields.h"
#include "rules/rules.h"

namespace yard::inspect {
namespace {

Result<Changed> put_policy(const Subject& s, Policy next) {
  Policy before = s.core.snapshot()->policy->set;
  YARD_RETURN_IF_ERROR(s.runtime.set_policy(std::move(next)));
  return Changed{
      [before = std::move(before)](const Subject& to) { return to.runtime.set_policy(before); },
      object("policy", yard::to_string(s.runtime.policy()))};
}

Result<Changed> policy_set(const Subject& s, const Value& args) {
  const Value* const fields = find(args, "fields");
  if (fields == nullptr || fields->members.empty())
    return invalid("fields", "an object with fields of a policy", fields);
  // Fields have the grammar of rule files, except that null removes a field.
  base::JsonObject given;
  std::vector<std::string> named, known;
  for (const Value& field : fields->members) {
    named.push_back(field.name);
    if (field.kind != Value::Kind::kNull) given.add_json(field.name, field.json);
  }
  ConfigReading reading =
      parse_config(fmt::format(R"({{"version": "1.0", "policy": {}}})", given.text()), "request");
  // Check the names, because a misspelled op or kernel would have no effect.
  const auto checked = s.rules.compile(reading);
  YARD_RETURN_IF_ERROR(rules::first_error(reading.problems));
  Policy next = s.core.snapshot()->policy->set;
  policy::visit_fields<Policy>([&](const auto& row) {
    if (row.section != nullptr) return;
    known.emplace_back(row.name);
    if (base::contains(named, known.back())) next.*row.member = checked->config.policy.*row.member;
  });
  for (const std::string& name : named)
    if (!base::contains(known, name))
      return invalid("field", base::one_of(known), base::excerpt(name));
  return put_policy(s, std::move(next));
}

Result<Changed> policy_reset(const Subject& s, const Value&) { return put_policy(s, {}); }

Undo restore_rules(const Subject& of) {
  return [before = of.rules.standing(), config = of.runtime.rules().config()](const Subject& s) {
    const std::string now = s.rules.standing().watched;
    // The watched file may have changed meanwhile.
    if (before.watched_for_file && !before.watched.empty() && now != before.watched)
      return s.runtime.rules().load(before.watched);
    if (!before.rules && before.watched.empty()) return s.runtime.rules().load("");
    if (before.watched.empty() && !now.empty()) s.runtime.rules().unwatch();
    return s.rules.change(config, fmt::format("undo, as version {}", before.version), nullptr);
  };
}

template <class F>
Result<Changed> change_rules(const Subject& s, const F& change) {
  Undo restore = restore_rules(s);
  std::vector<ConfigProblem> problems;
  YARD_RETURN_IF_ERROR(change(&problems));
  const rules::Rules::Standing now = s.rules.standing();
  const Json texts = each(problems, [](const auto& p) { return or_null(yard::to_string(p)); });
  return Changed{std::move(restore),
                 object("version", now.version, "source", now.source, "rollout",
                        s.core.snapshot()->policy->rollout != nullptr, "problems", texts)};
}

Result<Changed> config_load(const Subject& s, const Value& args) {
  return change_rules(
      s, [&](auto* problems) { return s.runtime.rules().load(text(args, "path"), problems); });
}

Result<Changed> config_rollback(const Subject& s, const Value& args) {
  const auto version = static_cast<uint64_t>(number(args, "version"));
  return change_rules(
      s, [&](auto* problems) { return s.runtime.rules().roll_back(version, problems); });
}

// Parses `hidden=5120,tenant=B`. A value with `|` is a list: `tenant=A|B`.
Result<std::vector<Condition>> parse_when(const std::string& when) {
  std::vector<Condition> to;
  if (base::trim(when).empty()) return to;
  for (const std::string_view part : base::split(when, ',')) {
    const size_t equals = part.find('=');
    const std::string_view key = base::trim(part.substr(0, equals));
    if (equals == part.npos || key.empty())
      return invalid("when", "FIELD=VALUE, separated by commas", base::excerpt(part));
    Condition& c = to.emplace_back();
    c.key = key;
    for (const std::string_view value : base::split(part.substr(equals + 1), '|')) {
      if (value.empty()) return invalid("when", "a value after '='", base::excerpt(part));
      c.values.push_back({std::string(value), false});
    }
    c.list = c.values.size() > 1;
  }
  return to;
}

// A rule that denies a kernel. A denial of all calls is an entry of kernel_denies instead.
struct Denial {
  std::string text;  // "'vendor.acme' of op 'softmax' when hidden=5120"
  DispatchRule rule;

  bool is_about_all_calls() const { return rule.operation == "*" && rule.conditions.empty(); }
  bool is_of(const DispatchRule& other) const {
    return other.operation == rule.operation && other.conditions == rule.conditions;
  }

  // Adds or removes the denial. Returns false if nothing had to be changed.
  bool set(Config& config, bool denied) const {
    const KernelRef& kernel = rule.deny[0];
    const auto is_kernel = [&](const KernelRef& k) { return k.id == kernel.id; };
    std::vector<std::vector<KernelRef>*> lists;
    if (is_about_all_calls())
      lists = {&config.kernel_denies};
    else
      for (DispatchRule& r : config.dispatch_rules)
        if (is_of(r)) lists.push_back(&r.deny);
    if (!denied) {
      size_t removed = 0;
      for (auto* list : lists) removed += std::erase_if(*list, is_kernel);
      std::erase_if(config.dispatch_rules, [&](const DispatchRule& r) {
        return is_of(r) && r.deny.empty() && r.kernel.empty() && !r.allow;
      });
      return removed > 0;
    }
    for (const auto* list : lists)
      if (std::ranges::any_of(*list, is_kernel)) return false;
    if (is_about_all_calls()) return config.kernel_denies.push_back(kernel), true;
    config.dispatch_rules.push_back(rule);
    std::vector<std::string>& labels = config.settings.labels;
    for (const Condition& c : rule.conditions)
      if (const std::string label(policy::own_label(c.key));
          !label.empty() && !base::contains(labels, label))
        labels.push_back(label);
    return true;
  }
};

std::vector<std::string> kernel_ids(const Subject& s, const std::string& op) {
  std::vector<std::string> to;
  for (const OpInfo& o : s.runtime.list().ops)
    if (op.empty() || glob_matches(op, o.name))
      for (const KernelInfo& k : o.kernels) to.push_back(k.id);
  return to;
}

// The undo restores the rules, or does the opposite if the rules have changed since.
template <bool kDeny>
Result<Changed> change_denial(const Subject& s, const Value& args) {
  const std::string kernel = text(args, "kernel"), op = text(args, "op"), when = text(args, "when");
  const std::string of_op = op.empty() ? "" : fmt::format(" of op '{}'", op);
  const auto known = kernel_ids(s, op);
  if (kDeny && std::ranges::none_of(known, [&](const auto& k) { return glob_matches(kernel, k); }))
    return base::failure(Code::kNotFound, "no kernel{} matches '{}'{}", of_op, kernel,
                         base::did_you_mean(kernel, known));
  Denial d{fmt::format("'{}'{}{}{}", kernel, of_op, when.empty() ? "" : " when ", when), {}};
  d.rule.name = "live deny of " + kernel;
  d.rule.operation = op.empty() ? "*" : op;
  d.rule.deny = {{kernel, false, {}}};
  YARD_ASSIGN_OR_RETURN(d.rule.conditions, parse_when(when));
  Config next = s.runtime.rules().config(), alone;
  if (!d.set(next, kDeny))
    return Status(Code::kConflict,
                  kDeny ? fmt::format("{} is denied already", d.text)
                        : fmt::format("the rules in force have no deny of {}", d.text));
  const std::string what = fmt::format("live {} of {}", kDeny ? "deny" : "allow", d.text);
  d.set(alone, true);
  YARD_ASSIGN_OR_RETURN(const auto moved, s.rules.dry_run(next));
  const Json takes_over = takeover(s, moved);
  const std::string statement = to_yaml(alone);
  if (is_set(args, "dry_run"))
    return Changed{.effect = object("takes_over", takes_over, "statement", statement)};
  YARD_ASSIGN_OR_RETURN(Changed changed, change_rules(s, [&](auto* problems) {
                          return s.rules.change(next, what, problems);
                        }));
  changed.effect =
      object("rules", changed.effect, "takes_over", takes_over, "statement", statement);
  changed.undo = [d, what, next, restore = std::move(changed.undo)](const Subject& to) {
    Config now = to.runtime.rules().config();
    if (now == next) return restore(to);
    if (!d.set(now, !kDeny)) return Status(Code::kConflict, "the rules have been replaced since");
    return to.rules.change(std::move(now), "undo of " + what, nullptr);
  };
  return changed;
}

Result<Changed> breaker(const Subject& s, const Value& args) {
  const std::vector<std::string> actions = {"open", "close", "reset"};
  const std::string action = text(args, "action"), kernel = text(args, "kernel");
  if (!base::contains(actions, action))
    return invalid("action", base::one_of(actions), base::excerpt(action));
  std::vector<std::string> ops;
  if (const std::string op = text(args, "op"); !op.empty())
    ops.push_back(op);
  else
    for (const KernelInfo& k : s.runtime.list().find_kernels(kernel)) ops.push_back(k.op);
  if (ops.empty())
    return base::failure(Code::kNotFound, "no op has a kernel '{}'{}", kernel,
                         base::did_you_mean(kernel, kernel_ids(s, "")));
  std::vector<std::string> open;  // ops with an open breaker for the kernel
  Health health = s.runtime.health();
  for (const KernelHealth& h : health.report().kernels)
    if (h.kernel == kernel && !h.open.empty()) open.push_back(h.op);
  const bool opens = action == "open";
  for (const std::string& op : ops)
    YARD_RETURN_IF_ERROR(opens               ? health.open(op, kernel, text(args, "reason"))
                         : action == "close" ? health.close(op, kernel)
                                             : health.reset(op, kernel));
  const auto undo = [=](const Subject& to) -> Status {
    Health h = to.runtime.health();
    for (const std::string& op : ops)
      if (base::contains(open, op) != opens)
        YARD_RETURN_IF_ERROR(opens ? h.close(op, kernel) : h.open(op, kernel, "open as before"));
    return {};
  };
  return Changed{undo, object("ops", Json{base::json_strings(ops)})};
}

Result<Changed> log_level(const Subject&, const Value& args) {
  const std::string word = text(args, "level"), logger = text(args, "logger");
  const auto level = parse_log_level(word);
  if (!level) return invalid("level", "debug, info, warn, error or off", base::excerpt(word));
  const base::LogLevels before = base::g_log_levels.load(std::memory_order_relaxed);
  if (!logger.empty())
    YARD_RETURN_IF_ERROR(set_log_level(logger, *level));
  else
    set_log_level(*level);
  return Changed{[before](const Subject&) {
    base::g_log_levels.store(before, std::memory_order_relaxed);
    return Status();
  }};
}

Result<Changed> record(const Subject& s, const Value& args) {
  if (const std::string now = s.runtime.recording().stats().path; !now.empty())
    return base::failure(Code::kConflict, "calls are recorded to {}: stop that first", now);
  YARD_RETURN_IF_ERROR(s.runtime.recording().to(text(args, "path")));
  return Changed{[](const Subject& to) { return to.runtime.recording().stop(); },
                 object("path", s.runtime.recording().stats().path)};
}

Result<Changed> record_stop(const Subject& s, const Value&) {
  const Recording::Stats before = s.runtime.recording().stats();
  if (before.path.empty()) return Status(Code::kConflict, "no calls are recorded");
  YARD_RETURN_IF_ERROR(s.runtime.recording().stop());
  // A new recording with the old name would replace the old file.
  const auto undo = [path = before.path](const Subject& to) {
    int part = 2;
    std::error_code unknown;
    while (std::filesystem::exists(fmt::format("{}.{}", path, part), unknown)) ++part;
    return to.runtime.recording().to(fmt::format("{}.{}", path, part));
  };
  return Changed{undo,
                 object("path", before.path, "calls", before.calls, "distinct", before.distinct)};
}

Result<Changed> verbose(const Subject& s, const Value& args) {
  const int before = s.runtime.recording().verbose();
  YARD_RETURN_IF_ERROR(s.runtime.recording().set_verbose(static_cast<int>(number(args, "level"))));
  return Changed{[=](const Subject& to) { return to.runtime.recording().set_verbose(before); }};
}

constexpr int64_t kMostEvents = 100'000;  // this many fit into one answer

Result<Changed> trace_start(const Subject& s, const Value& args) {
  const int64_t events = number(args, "max_events", kMostEvents);
  YARD_RETURN_IF_ERROR(s.runtime.recording().start_trace(static_cast<size_t>(events)));
  return Changed();
}

Result<Changed> trace_stop(const Subject& s, const Value&) {
  YARD_ASSIGN_OR_RETURN(auto trace, s.runtime.recording().stop_trace());
  return Changed{.result = std::move(trace)};
}

Result<Changed> stats_reset(const Subject& s, const Value&) {
  s.runtime.reset_stats();
  return Changed();
}

}  // namespace

std::vector<Command> change_commands() {
  using enum Member::Kind;
  const std::vector<Member> denial = {
      {"kernel", kNeededText}, {"op"}, {"when"}, {"dry_run", kSwitch}};
  const std::vector<Member> of_breaker = {
      {"action", kNeededText}, {"op"}, {"kernel", kNeededText}, {"reason"}};
  return {{"policy.set", {{"fields", kObject}}, nullptr, policy_set},
          {"policy.reset", {}, nullptr, policy_reset},
          {"deny", denial, nullptr, change_denial<true>},
          {"allow", denial, nullptr, change_denial<false>},
          {"breaker", of_breaker, nullptr, breaker},
          {"config.load", {{"path", kPath}}, nullptr, config_load},
          {"config.rollback", {{"version", kNeededNumber, 1}}, nullptr, config_rollback},
          {"log", {{"level", kNeededText}, {"logger"}}, nullptr, log_level},
          {"verbose", {{"level", kNeededNumber, 0, 2}}, nullptr, verbose},
          {"trace.start", {{"max_events", kNumber, 1, kMostEvents}}, nullptr, trace_start},
          {"trace.stop", {}, nullptr, trace_stop},
          {"record", {{"path", kPath}}, nullptr, record},
          {"record.stop", {}, nullptr, record_stop},
          {"stats.reset", {}, nullptr, stats_reset}};
}

}  // namespace yard::inspect
