// SPDX-License-Identifier: Apache-2.0
// yard policy, deny, allow, breaker, undo and changes: control what a running process may use. The
// process applies each change at once and logs it. Each change can be undone.
#include <fmt/format.h>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct DenyQuestion : ManyQuestion {
  std::string kernel, op, when;
  bool dry_run = false;
};

Json deny_args(const DenyQuestion& q) {
  Json to = arguments({{"kernel", q.kernel}, {"op", q.op}, {"when", q.when}});
  if (q.dry_run) to["dry_run"] = true;
  return to;
}

std::string subject(const DenyQuestion& q) {
  std::string to = q.kernel;
  if (!q.op.empty()) to += " for " + q.op;
  if (!q.when.empty()) to += " when " + q.when;
  return to;
}

void print_denied(const DenyQuestion& q, const std::string& verb, int64_t pid, const Json& result) {
  const Json& effect = value_at(result, "effect");
  if (q.dry_run)
    print_out("would {} {} in process {}\n", verb, subject(q), pid);
  else
    print_changed(pid, result, (verb == "deny" ? "denied " : "allowed ") + subject(q));
  print_takeover(effect);
  for (const Json& p : list_at(value_at(effect, "rules"), "problems"))
    print_out("  {}\n", shown(p));
  const std::string statement = text_at(effect, "statement");
  if (statement.empty() || q.dry_run || verb == "allow") return;
  print_out("  to keep it, put this into the rule file:\n");
  for (const std::string& line : split(statement, "\n"))
    if (!line.empty()) print_out("    {}\n", line);
}

void add_deny_options(CLI::App& c, DenyQuestion& q) {
  c.add_option("KERNEL", q.kernel, "The kernel, or a glob over kernels: 'vendor.*'")->required();
  add_value(c, "--op", q.op, "OP", "Only for this op, or a glob over ops");
  add_value(c, "--when", q.when, "CONDITIONS",
            "Only for calls with these conditions of rule files");
  c.add_flag("--dry-run", q.dry_run, "Only say which kernels would take over");
  add_many_options(c, q);
}

struct PolicyQuestion : RemoteQuestion {
  std::vector<std::string> fields;
  bool reset = false;
};

// Parses a value as in a rule file: a switch, list or map, `null` to unset the field, or a text.
Json field_value(const std::string& text) {
  if (text == "on" || text == "yes") return true;
  if (text == "off" || text == "no") return false;
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() || value.is_number() ? Json(text) : value;
}

int change_policy(const PolicyQuestion& q) {
  if (q.reset && !q.fields.empty())
    return fail(kUsage, "--reset: expected no fields beside it, got '" + q.fields[0] + "'");
  if (q.reset)
    return ask(q, "policy.reset", Json::object(), [](int64_t pid, const Json& result) {
      print_changed(pid, result, "reset the policy");
    });
  if (q.fields.empty())
    return ask(q, "policy", Json::object(), [](int64_t, const Json& result) {
      const Json& policy = value_at(result, "policy");
      const Json& sources = value_at(result, "sources");
      if (!policy.is_object() || policy.empty()) {
        print_out("nothing set\n");
        return;
      }
      Table table("field|value|source");
      for (const auto& [field, value] : policy.items())
        table.add(
            {{field, Paint::kBold}, {shown(value)}, {shown(value_at(sources, field.c_str()))}});
      print_out("{}", table.text());
    });
  Json fields = Json::object();
  for (const std::string& f : q.fields) {
    const size_t eq = f.find('=');
    if (eq == std::string::npos || eq == 0)
      return fail(kUsage, fmt::format("invalid field: expected FIELD=VALUE, got '{}'", f));
    fields[f.substr(0, eq)] = field_value(f.substr(eq + 1));
  }
  return ask(q, "policy.set", {{"fields", fields}}, [&](int64_t pid, const Json& result) {
    print_changed(pid, result, "set " + shown(fields));
  });
}

struct BreakerQuestion : RemoteQuestion {
  std::string action, kernel, op, reason;
};

struct UndoQuestion : RemoteQuestion {
  int64_t change = 0;  // 0 selects the last change
};

int list_breakers(const BreakerQuestion& q) {
  return ask(q, "health", Json::object(), [](int64_t, const Json& health) {
    const Json& breakers = list_at(health, "breakers");
    if (breakers.empty()) {
      print_out("all closed\n");
      return;
    }
    Table table("op|kernel|state|opened>|for>|calls|reason");
    for (const Json& b : breakers) {
      const double until = number_at(b, "until_s");
      const std::string key = text_at(b, "key");
      table.add(
          {{text_at(b, "op"), Paint::kBold},
           {text_at(b, "kernel")},
           {text_at(b, "state"), text_at(b, "state") == "open" ? Paint::kBad : Paint::kWarning},
           {since_text(value_at(value_at(b, "opened"), "at"))},
           {until > 0 ? age_text(until) : "-"},
           {key.empty() ? "all" : key},
           {text_at(b, "reason")}});
    }
    print_out("{}", table.text());
  });
}

int move_breaker(const BreakerQuestion& q) {
  const Json args =
      arguments({{"action", q.action}, {"kernel", q.kernel}, {"op", q.op}, {"reason", q.reason}});
  return ask(q, "breaker", args, [&](int64_t pid, const Json& result) {
    print_changed(
        pid, result,
        fmt::format("breaker of {}{}: {}", q.kernel, q.op.empty() ? "" : " for " + q.op, q.action));
  });
}

void add_breaker_action(CLI::App& breaker, Action& action, const char* name, const char* text) {
  const auto [c, q] = add_command<BreakerQuestion>(breaker, action, name, text, move_breaker);
  q->action = name;
  c->add_option("KERNEL", q->kernel, "The kernel")->required();
  add_value(*c, "--op", q->op, "OP", "Only for this op");
  if (q->action == "open") add_value(*c, "--reason", q->reason, "WHY", "Why, for logs and reports");
  add_remote_options(*c, *q);
}

}  // namespace

void add_deny(CLI::App& app, Action& action) {
  const auto run = [](const DenyQuestion& q) {
    return ask_many(q, "deny", deny_args(q),
                    [&](int64_t pid, const Json& result) { print_denied(q, "deny", pid, result); });
  };
  const auto [c, q] = add_command<DenyQuestion>(app, action, "deny",
                                                "Stop a running process from using a kernel", run);
  add_deny_options(*c, *q);
}

void add_allow(CLI::App& app, Action& action) {
  const auto run = [](const DenyQuestion& q) {
    return ask_many(q, "allow", deny_args(q), [&](int64_t pid, const Json& result) {
      print_denied(q, "allow", pid, result);
    });
  };
  const auto [c, q] =
      add_command<DenyQuestion>(app, action, "allow", "Take back what yard deny has denied", run);
  add_deny_options(*c, *q);
}

void add_policy(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<PolicyQuestion>(
      app, action, "policy", "Show or change the policy of a running process", change_policy);
  c->add_option("FIELDS", q->fields, "FIELD=VALUE ... to set; otherwise show the policy in force");
  c->add_flag("--reset", q->reset, "Unset what was set for the process, by it or by commands");
  add_remote_options(*c, *q);
}

void add_breaker(CLI::App& app, Action& action) {
  CLI::App* breaker = app.add_subcommand("breaker", "Circuit breakers of a running process");
  breaker->require_subcommand(1);
  const auto [list, q] = add_command<BreakerQuestion>(
      *breaker, action, "list", "List the breakers that are not closed", list_breakers);
  add_remote_options(*list, *q);
  add_breaker_action(*breaker, action, "open", "Open the breaker of a kernel until it is closed");
  add_breaker_action(*breaker, action, "close", "Close the breakers of a kernel");
  add_breaker_action(*breaker, action, "reset",
                     "Close the breakers of a kernel and forget failures");
}

void add_undo(CLI::App& app, Action& action) {
  const auto run = [](const UndoQuestion& q) {
    const Json args = q.change > 0 ? Json{{"change", q.change}} : Json::object();
    return ask(q, "undo", args, [](int64_t pid, const Json& change) {
      print_out("took back in process {}: {}\n", pid, change_text(change));
    });
  };
  const auto [c, q] = add_command<UndoQuestion>(app, action, "undo",
                                                "Take back a change to a running process", run);
  c->add_option("ID", q->change, "Its number in yard changes; otherwise the last one")
      ->check(between<int64_t>(1, INT64_MAX));
  add_remote_options(*c, *q);
}

void add_changes(CLI::App& app, Action& action) {
  const auto run = [](const RemoteQuestion& q) {
    return ask(q, "changes", Json::object(), [](int64_t, const Json& result) {
      const Json& changes = list_at(result, "changes");
      Table table("id>|change|made|");
      for (auto at = changes.rbegin(); at != changes.rend(); ++at)
        table.add({{shown(value_at(*at, "id"))},
                   {change_text(*at), flag_at(*at, "undone") ? Paint::kDim : Paint::kPlain},
                   {change_origin(*at)},
                   {flag_at(*at, "undone") ? "undone" : "", Paint::kWarning}});
      print_out("{}", changes.empty() ? "no changes\n" : table.text());
    });
  };
  const auto [c, q] = add_command<RemoteQuestion>(
      app, action, "changes", "List changes that commands made to a process", run);
  add_remote_options(*c, *q);
}

}  // namespace yard::tool
