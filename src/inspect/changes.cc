// SPDX-License-Identifier: Apache-2.0
// Commands that change something. Each takes effect in one snapshot, or is refused, and tells how to take it back.
#include <fmt/format.h>
#include <yard/trace.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "inspect/commands.h"
#include "policy/config_keys.h"
#include "policy/fields.h"
#include "rules/rules.h"

namespace yard::inspect {
namespace {

using base::JsonObject;

// ---- Policy ----

// What is set through the API changes to `next`; undone by what was set before.
Result<Changed> put_policy(const Subject& s, Policy next) {
  Policy before = s.core.snapshot()->policy->set;
  YARD_RETURN_IF_ERROR(s.runtime.set_policy(std::move(next)));
  return Changed{
      JsonObject().add("policy", yard::to_string(s.runtime.policy())).text(),
      [before = std::move(before)](const Subject& to) { return to.runtime.set_policy(before); }};
}

Result<Changed> policy_set(const Subject& s, const CommandArgs& args) {
  const Json* const fields = args.object("fields");
  if (fields == nullptr || fields->empty())
    return invalid("fields", "an object with fields of a policy", "none");
  // The grammar is that of rule files. Null removes what is set.
  Json given = Json::object();
  for (const auto& [key, value] : fields->items())
    if (!value.is_null()) given[key] = value;
  const ConfigReading reading =
      parse_config(fmt::format(R"({{"version": "1.0", "policy": {}}})", to_text(given)), "request");
  YARD_RETURN_IF_ERROR(rules::first_error(reading.problems));
  Policy next = s.core.snapshot()->policy->set;
  std::vector<std::string> known;
  policy::visit_fields<Policy>([&](const auto& row) {
    if (row.section != nullptr) return;
    known.emplace_back(row.name);
    if (fields->contains(row.name)) next.*row.member = reading.config.policy.*row.member;
  });
  for (const auto& [key, value] : fields->items())
    if (!base::contains(known, key))
      return invalid("field", base::one_of(known), base::excerpt(key));
  return put_policy(s, std::move(next));
}

Result<Changed> policy_reset(const Subject& s, const CommandArgs&) { return put_policy(s, {}); }

// ---- Rules ----

// Puts back what was in force, exactly: also that there were no rules at all.
class Restore {
 public:
  explicit Restore(const Subject& s)
      : before_(s.rules.standing()),
        config_(std::make_shared<const Config>(s.runtime.rules().config())) {}

  const Config& config() const noexcept { return *config_; }

  Status operator()(const Subject& s) const {
    const rules::Rules::Standing now = s.rules.standing();
    // The file that was watched is the truth of its rules.
    if (before_.watched_for_file && !before_.watched.empty() && now.watched != before_.watched)
      return s.runtime.rules().load(before_.watched);
    if (!before_.rules && before_.watched.empty()) return s.runtime.rules().load("");
    if (before_.watched.empty() && !now.watched.empty()) s.runtime.rules().unwatch();
    return s.rules.change(*config_, fmt::format("undo, as version {}", before_.version), nullptr);
  }

 private:
  rules::Rules::Standing before_;
  std::shared_ptr<const Config> config_;
};

std::string rules_effect(const Subject& s, const std::vector<ConfigProblem>& problems) {
  const rules::Rules::Standing now = s.rules.standing();
  JsonObject to;
  to.add("version", now.version).add("source", now.source);
  to.add("rollout", s.core.snapshot()->policy->rollout != nullptr);
  std::vector<std::string> texts;
  for (const ConfigProblem& p : problems) texts.push_back(yard::to_string(p));
  return to.add_json("problems", base::json_strings(texts)).text();
}

// `hidden=5120,tenant=B`. A value with `|` is a list: `tenant=A|B`.
Result<std::vector<Condition>> parse_when(const std::string& when) {
  std::vector<Condition> to;
  for (const std::string_view part : base::split(when, ',')) {
    const size_t equals = part.find('=');
    const std::string_view key = base::trim(part.substr(0, equals));
    if (equals == part.npos || key.empty())
      return invalid("when", "FIELD=VALUE, separated by commas", base::excerpt(part));
    Condition c;
    c.key = key;
    const auto values = base::split(part.substr(equals + 1), '|');
    c.list = values.size() > 1;
    for (const std::string_view value : values) {
      if (value.empty()) return invalid("when", "a value after '='", base::excerpt(part));
      c.values.push_back({std::string(value), false});
    }
    to.push_back(std::move(c));
  }
  return to;
}

// What `deny` and `allow` name.
struct Denial {
  std::string kernel, op;  // op: empty, all of them
  std::vector<Condition> conditions;

  // Stands in kernel_denies, not in a rule.
  bool is_plain() const noexcept { return op.empty() && conditions.empty(); }
  std::string operation() const { return op.empty() ? "*" : op; }
  bool is_of(const DispatchRule& rule) const {
    return rule.operation == operation() && rule.conditions == conditions;
  }
  std::string text() const {
    std::string to = fmt::format("'{}'", kernel);
    if (!op.empty()) to += fmt::format(" of op '{}'", op);
    for (const Condition& c : conditions) {
      to += &c == conditions.data() ? " when " : ", ";
      to += c.key + "=";
      for (const ConfigValue& v : c.values) to += (&v == c.values.data() ? "" : "|") + v.text;
    }
    return to;
  }
};

Result<Denial> read_denial(const CommandArgs& args) {
  Denial to{args.text("kernel"), args.text("op"), {}};
  const std::string when = args.text("when");
  if (base::trim(when).empty()) return to;
  YARD_ASSIGN_OR_RETURN(to.conditions, parse_when(when));
  return to;
}

// A mistyped kernel would deny nothing.
Status check_kernel(const Subject& s, const Denial& d) {
  std::vector<std::string> known;
  const Listing listing = s.runtime.list();
  for (const OpInfo& op : listing.ops) {
    if (!d.op.empty() && !glob_matches(d.op, op.name)) continue;
    for (const KernelInfo& k : op.kernels) {
      if (glob_matches(d.kernel, k.id)) return {};
      known.push_back(k.id);
    }
  }
  return Status(Code::kNotFound, fmt::format("no kernel{} matches '{}'{}",
                                             d.op.empty() ? "" : fmt::format(" of op '{}'", d.op),
                                             d.kernel, base::did_you_mean(d.kernel, known)));
}

bool has(const std::vector<KernelRef>& list, const std::string& id) {
  return std::any_of(list.begin(), list.end(), [&](const KernelRef& k) { return k.id == id; });
}

// False: it is denied already.
bool add_denial(Config& config, const Denial& d) {
  if (d.is_plain()) {
    if (has(config.kernel_denies, d.kernel)) return false;
    config.kernel_denies.push_back({d.kernel, false, {}});
    return true;
  }
  for (const DispatchRule& r : config.dispatch_rules)
    if (d.is_of(r) && has(r.deny, d.kernel)) return false;
  DispatchRule rule;
  rule.name = "live deny of " + d.kernel;
  rule.operation = d.operation(), rule.conditions = d.conditions;
  rule.deny = {{d.kernel, false, {}}};
  config.dispatch_rules.push_back(std::move(rule));
  for (const Condition& c : d.conditions)
    if (const std::string label(policy::own_label(c.key)); !label.empty()) {
      std::vector<std::string>& labels = config.settings.labels;
      if (!base::contains(labels, label)) labels.push_back(label);
    }
  return true;
}

// False: there is none.
bool remove_denial(Config& config, const Denial& d) {
  const auto remove_from = [&](std::vector<KernelRef>& list) {
    return std::erase_if(list, [&](const KernelRef& k) { return k.id == d.kernel; }) > 0;
  };
  if (d.is_plain()) return remove_from(config.kernel_denies);
  bool found = false;
  for (DispatchRule& r : config.dispatch_rules)
    if (d.is_of(r)) found |= remove_from(r.deny);
  std::erase_if(config.dispatch_rules, [&](const DispatchRule& r) {
    return d.is_of(r) && r.deny.empty() && r.kernel.empty() && !r.allow;
  });
  return found;
}

// The same statement for a rule file.
std::string statement(const Denial& d) {
  Config alone;
  add_denial(alone, d);
  return to_yaml(alone);
}

// Adds or removes it, at once. Undone exactly, or by the opposite where the rules have changed since.
Result<Changed> change_denial(const Subject& s, const Denial& d, bool deny) {
  const Restore restore(s);
  Config next = restore.config();
  if (!(deny ? add_denial(next, d) : remove_denial(next, d)))
    return Status(deny ? Code::kConflict : Code::kNotFound,
                  deny ? fmt::format("{} is denied already", d.text())
                       : fmt::format("the rules in force have no deny of {}", d.text()));
  std::vector<ConfigProblem> problems;
  YARD_RETURN_IF_ERROR(s.rules.change(
      next, fmt::format("live {} of {}", deny ? "deny" : "allow", d.text()), &problems));
  JsonObject effect;
  effect.add_json("rules", rules_effect(s, problems)).add("statement", statement(d));
  const auto after = std::make_shared<const Config>(std::move(next));
  return Changed{effect.text(), [restore, d, deny, after](const Subject& to) {
                   if (to.runtime.rules().config() == *after) return restore(to);
                   Config now = to.runtime.rules().config();
                   if (!(deny ? remove_denial(now, d) : add_denial(now, d)))
                     return Status(Code::kConflict, "the rules have been replaced since");
                   return to.rules.change(
                       std::move(now),
                       fmt::format("undo of live {} of {}", deny ? "deny" : "allow", d.text()),
                       nullptr);
                 }};
}

Result<Changed> deny(const Subject& s, const CommandArgs& args) {
  YARD_ASSIGN_OR_RETURN(const auto d, read_denial(args));
  YARD_RETURN_IF_ERROR(check_kernel(s, d));
  return change_denial(s, d, true);
}

Result<Changed> allow(const Subject& s, const CommandArgs& args) {
  YARD_ASSIGN_OR_RETURN(const auto d, read_denial(args));
  return change_denial(s, d, false);
}

Result<Changed> config_load(const Subject& s, const CommandArgs& args) {
  const Restore restore(s);
  std::vector<ConfigProblem> problems;
  YARD_RETURN_IF_ERROR(s.runtime.rules().load(args.text("path"), &problems));
  return Changed{rules_effect(s, problems), restore};
}

Result<Changed> config_rollback(const Subject& s, const CommandArgs& args) {
  const auto version = args.number("version");
  if (!version || *version <= 0)
    return invalid("version", "a number above 0", version ? std::to_string(*version) : "none");
  const Restore restore(s);
  std::vector<ConfigProblem> problems;
  YARD_RETURN_IF_ERROR(s.runtime.rules().roll_back(static_cast<uint64_t>(*version), &problems));
  return Changed{rules_effect(s, problems), restore};
}

// ---- Breakers ----

struct BreakerTarget {
  std::string op, kernel;
  bool open = false;  // before
};

Result<std::vector<BreakerTarget>> breaker_targets(const Subject& s, const CommandArgs& args) {
  const std::string kernel = args.text("kernel"), op = args.text("op");
  std::vector<BreakerTarget> to;
  if (!op.empty())
    to.push_back({op, kernel});
  else
    for (const KernelInfo& k : s.runtime.list().find_kernels(kernel)) to.push_back({k.op, k.id});
  if (to.empty()) {
    std::vector<std::string> known;
    for (const OpInfo& o : s.runtime.list().ops)
      for (const KernelInfo& k : o.kernels) known.push_back(k.id);
    return Status(Code::kNotFound, fmt::format("no op has a kernel '{}'{}", kernel,
                                               base::did_you_mean(kernel, known)));
  }
  for (const KernelHealth& h : s.runtime.health().report().kernels)
    for (BreakerTarget& t : to)
      if (h.op == t.op && h.kernel == t.kernel) t.open = !h.open.empty();
  return to;
}

Result<Changed> breaker(const Subject& s, const CommandArgs& args) {
  const std::string action = args.text("action");
  const std::vector<std::string> actions = {"open", "close", "reset"};
  if (!base::contains(actions, action))
    return invalid("action", base::one_of(actions), base::excerpt(action));
  YARD_ASSIGN_OR_RETURN(const auto targets, breaker_targets(s, args));
  const bool opens = action == "open";
  Health health = s.runtime.health();
  for (const BreakerTarget& t : targets)
    YARD_RETURN_IF_ERROR(opens               ? health.open(t.op, t.kernel, args.text("reason"))
                         : action == "close" ? health.close(t.op, t.kernel)
                                             : health.reset(t.op, t.kernel));
  std::vector<std::string> ops;
  for (const BreakerTarget& t : targets) ops.push_back(t.op);
  return Changed{JsonObject().add_json("ops", base::json_strings(ops)).text(),
                 [all = targets, opens](const Subject& to) -> Status {
                   Health h = to.runtime.health();
                   for (const BreakerTarget& t : all) {
                     if (t.open == opens) continue;  // it was as it is
                     YARD_RETURN_IF_ERROR(opens ? h.close(t.op, t.kernel)
                                                : h.open(t.op, t.kernel, "open as before"));
                   }
                   return {};
                 }};
}

// ---- Logs, recordings, counters ----

Result<Changed> log_level(const Subject&, const CommandArgs& args) {
  const std::string word = args.text("level"), logger = args.text("logger");
  const auto level = parse_log_level(word);
  if (!level) return invalid("level", "debug, info, warn, error or off", base::excerpt(word));
  const base::LogLevels before = base::g_log_levels.load(std::memory_order_relaxed);
  if (!logger.empty())
    YARD_RETURN_IF_ERROR(set_log_level(logger, *level));
  else
    set_log_level(*level);
  return Changed{"{}", [before](const Subject&) {
                   base::g_log_levels.store(before, std::memory_order_relaxed);
                   return Status();
                 }};
}

Result<Changed> record(const Subject& s, const CommandArgs& args) {
  if (const std::string now = s.runtime.recording().stats().path; !now.empty())
    return Status(Code::kConflict, fmt::format("calls are recorded to {}: stop that first", now));
  YARD_RETURN_IF_ERROR(s.runtime.recording().to(args.text("path")));
  return Changed{JsonObject().add("path", s.runtime.recording().stats().path).text(),
                 [](const Subject& to) { return to.runtime.recording().stop(); }};
}

Result<Changed> record_stop(const Subject& s, const CommandArgs&) {
  const RecordingStats before = s.runtime.recording().stats();
  if (before.path.empty()) return Status(Code::kNotFound, "no calls are recorded");
  YARD_RETURN_IF_ERROR(s.runtime.recording().stop());
  JsonObject effect;
  effect.add("path", before.path).add("calls", before.calls).add("distinct", before.distinct);
  // Beside the first part, which a recording of that name would replace.
  return Changed{effect.text(), [path = before.path](const Subject& to) -> Status {
                   for (int part = 2; part <= 1000; ++part) {
                     const std::string next = fmt::format("{}.{}", path, part);
                     std::error_code ignored;
                     if (!std::filesystem::exists(next, ignored))
                       return to.runtime.recording().to(next);
                   }
                   return Status(Code::kConflict, "too many parts of a recording");
                 }};
}

Result<Changed> verbose(const Subject& s, const CommandArgs& args) {
  const auto level = args.number("level");
  if (!level || *level < 0 || *level > 2)
    return invalid("level", "0, 1 or 2", level ? std::to_string(*level) : "none");
  const int before = s.runtime.recording().verbose();
  YARD_RETURN_IF_ERROR(s.runtime.recording().set_verbose(static_cast<int>(*level)));
  return Changed{"{}", [=](const auto& to) { return to.runtime.recording().set_verbose(before); }};
}

// An answer must hold all of them.
constexpr int64_t kMostEvents = 100'000;

Result<Changed> trace_start(const Subject& s, const CommandArgs& args) {
  const auto most = args.number("max_events");
  if (most && (*most < 1 || *most > kMostEvents))
    return invalid("max_events", fmt::format("1 to {}", kMostEvents), std::to_string(*most));
  const auto events = static_cast<size_t>(most.value_or(kMostEvents));
  YARD_RETURN_IF_ERROR(s.runtime.recording().start_trace(events));
  return Changed();
}

Result<Changed> trace_stop(const Subject& s, const CommandArgs&) {
  YARD_ASSIGN_OR_RETURN(auto trace, s.runtime.recording().stop_trace());
  return Changed{std::move(trace), {}, true};
}

Result<Changed> stats_reset(const Subject& s, const CommandArgs&) {
  s.runtime.reset_stats();
  return Changed();
}

using enum Parameter::Kind;
constexpr Command kChanges[] = {
    {"policy.set", {{"fields", kObject}}, nullptr, policy_set},
    {"policy.reset", {}, nullptr, policy_reset},
    {"deny", {{"kernel", kNeededText}, {"op"}, {"when"}}, nullptr, deny},
    {"allow", {{"kernel", kNeededText}, {"op"}, {"when"}}, nullptr, allow},
    {"breaker",
     {{"action", kNeededText}, {"op"}, {"kernel", kNeededText}, {"reason"}},
     nullptr,
     breaker},
    {"config.load", {{"path", kPath}}, nullptr, config_load},
    {"config.rollback", {{"version", kNumber}}, nullptr, config_rollback},
    {"log", {{"level", kNeededText}, {"logger"}}, nullptr, log_level},
    {"verbose", {{"level", kNumber}}, nullptr, verbose},
    {"trace.start", {{"max_events", kNumber}}, nullptr, trace_start},
    {"trace.stop", {}, nullptr, trace_stop},
    {"record", {{"path", kPath}}, nullptr, record},
    {"record.stop", {}, nullptr, record_stop},
    {"stats.reset", {}, nullptr, stats_reset},
};

}  // namespace

std::span<const Command> change_commands() { return kChanges; }

}  // namespace yard::inspect
