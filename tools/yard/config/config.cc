// SPDX-License-Identifier: Apache-2.0
// yard config: checks rule files, prints their schema, and changes the rules of running processes.
#include <fmt/format.h>
#include <yard/config.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <map>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "json.h"
#include "live/remote.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct CheckQuestion {
  std::vector<std::string> files;
  bool strict = false, json = false;
};

struct Checked {
  std::string file;
  std::vector<ConfigProblem> problems;
  size_t errors = 0, warnings = 0;
  bool ok(bool strict) const { return errors == 0 && (!strict || warnings == 0); }
};

Json problem_json(const ConfigProblem& p) {
  return {{"severity", to_string(p.severity)},
          {"file", p.file},
          {"line", p.line},
          {"column", p.column},
          {"path", p.path},
          {"found", p.found},
          {"right", text_or_null(p.right)}};
}

Json checked_json(const Checked& c, bool strict) {
  Json j = {{"file", c.file},
            {"ok", c.ok(strict)},
            {"errors", c.errors},
            {"warnings", c.warnings},
            {"problems", Json::array()}};
  for (const ConfigProblem& p : c.problems) j["problems"].push_back(problem_json(p));
  return j;
}

std::string counted(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

void print_checked(const Checked& c) {
  for (const ConfigProblem& p : c.problems) print_out("{}\n", shown(p));
  if (c.problems.empty())
    print_out("{}: {}\n", c.file, paint(Paint::kGood, "fine"));
  else
    print_out("{}: {}, {}\n", c.file, counted(c.errors, "error"), counted(c.warnings, "warning"));
}

// Returns whether the file names kernels, ops or backends that may be registered later.
bool names_later(const Config& config) {
  return !config.kernel_locks.empty() || !config.kernel_denies.empty() || config.kernel_allows ||
         !config.policy.backends.empty() ||
         std::ranges::any_of(config.dispatch_rules,
                             [](const DispatchRule& r) { return !r.deny.empty() || r.allow; });
}

// Returns whether conditions of the file refer to the op.
bool asks_about(const Config& config, const std::string& op) {
  const auto asks = [&](const auto& rule) {
    return !rule.conditions.empty() && glob_matches(rule.operation, op);
  };
  return std::ranges::any_of(config.dispatch_rules, asks) ||
         std::ranges::any_of(config.score, asks);
}

// Opens plugins to check conditions on their ops and names that are unknown without them. Keeps the
// errors that were found before, because a program reads the file before it opens the plugin.
void check_announced(Runtime& runtime, std::vector<Checked>& all) {
  std::map<std::string, Status> opened;  // by path
  for (Checked& c : all) {
    const Config config = read_config(c.file).config;
    for (const Announced& a : announced(runtime, &PluginInfo::ops))
      if ((names_later(config) || asks_about(config, a.name)) &&
          opened.find(a.path) == opened.end())
        opened.emplace(a.path, runtime.plugins().load(a.path));
  }
  for (Checked& c : all) {
    if (opened.empty()) return;
    std::erase_if(c.problems,
                  [](const ConfigProblem& p) { return p.severity == Severity::kWarning; });
    const size_t errors = c.problems.size();
    for (ConfigProblem& p : runtime.rules().check(c.file)) {
      const auto same = [&](const ConfigProblem& o) { return o.path == p.path; };
      const auto end = c.problems.begin() + static_cast<ptrdiff_t>(errors);
      if (std::none_of(c.problems.begin(), end, same)) c.problems.push_back(std::move(p));
    }
    for (const auto& [path, status] : opened)
      if (!status.ok())
        c.problems.push_back({Severity::kWarning, c.file, 0, 0, "",
                              fmt::format("plugin {} cannot be opened ({}), so conditions on its "
                                          "ops are not checked",
                                          path, status.message()),
                              ""});
  }
}

// Warns of optional rules for unknown ops, which cannot be checked without the plugin of the op.
void note_unchecked(const Runtime& runtime, Checked& c) {
  std::vector<std::string> ops;
  for (const OpInfo& op : runtime.list().ops) ops.push_back(op.name);
  for (const Announced& a : announced(runtime, &PluginInfo::ops)) ops.push_back(a.name);
  const Config config = read_config(c.file).config;
  const auto note = [&](const auto& rules, const char* section) {
    for (size_t i = 0; i < rules.size(); ++i) {
      const auto& r = rules[i];
      const auto is_named = [&](const std::string& op) { return glob_matches(r.operation, op); };
      if (!r.optional || r.operation.find_first_of("*?") != std::string::npos ||
          std::ranges::any_of(ops, is_named))
        continue;
      const auto& files = config.sources.files;
      c.problems.push_back(
          {Severity::kWarning, r.at.file < files.size() ? files[r.at.file] : c.file,
           r.operation_at.line, r.operation_at.column, fmt::format("{}[{}].operation", section, i),
           fmt::format("no op is called '{}' here", r.operation), "the rule is not checked"});
    }
  };
  note(config.dispatch_rules, "dispatch_rules");
  note(config.score, "score");
}

int check_files(const CheckQuestion& q) {
  // Keeps problems of the file that the environment names out of the log.
  set_log_level("policy", LogLevel::kOff).ignore();
  Runtime& runtime = Runtime::shared();
  if (const int code = add_program_modes(runtime); code != kOk) return code;
  std::vector<Checked> all;
  bool ok = true;
  for (const std::string& file : q.files) all.push_back({file, runtime.rules().check(file)});
  check_announced(runtime, all);
  for (Checked& c : all) {
    note_unchecked(runtime, c);
    for (const ConfigProblem& p : c.problems)
      ++(p.severity == Severity::kError ? c.errors : c.warnings);
    ok = ok && c.ok(q.strict);
  }
  if (q.json) {
    Json j = {{"ok", ok}, {"files", Json::array()}};
    for (const Checked& c : all) j["files"].push_back(checked_json(c, q.strict));
    print_json(j);
  } else {
    for (const Checked& c : all) print_checked(c);
  }
  return ok ? kOk : kFailed;
}

struct LoadQuestion : RemoteQuestion {
  std::string file;
};
struct RollbackQuestion : RemoteQuestion {
  uint64_t version = 0;
};

void print_history(int64_t, const Json& result) {
  const Json& versions = list_at(result, "versions");
  Table table("version>|age>|sha256|source|");
  for (const Json& v : versions)
    table.add({{shown(value_at(v, "version"))},
               {since_text(value_at(v, "at"))},
               {text_at(v, "sha256").substr(0, 8)},
               {text_at(v, "source")},
               {flag_at(v, "in_force") ? "in force" : "", Paint::kGood}});
  print_out("{}", versions.empty() ? "no rules were loaded\n" : table.text());
}

}  // namespace

void add_config_check(CLI::App& config, Action& action) {
  const auto [c, q] = add_command<CheckQuestion>(config, action, "check",
                                                 "Check whether rule files are valid", check_files);
  add_file(*c, "FILE", q->files, "Rule files")->required();
  add_mode_option(*c);
  c->add_flag("--strict", q->strict, "Warnings fail, too");
}

void add_config_schema(CLI::App& config, Action& action) {
  CLI::App* c = config.add_subcommand("schema", "JSON Schema of rule files, for editors");
  c->callback([&action] {
    action = [] {
      write_out(Json::parse(config_json_schema()).dump(2) + '\n');
      return kOk;
    };
  });
}

void add_config_load(CLI::App& config, Action& action) {
  const auto run = [](const LoadQuestion& q) {
    const std::string path = std::filesystem::absolute(q.file).lexically_normal().string();
    return ask(q, "config.load", {{"path", path}}, [&](int64_t pid, const Json& result) {
      for (const Json& p : list_at(value_at(result, "effect"), "problems"))
        print_out("{}\n", shown(p));
      print_out("loaded {} into process {}\n{}", path, pid, undo_hint(pid, result));
    });
  };
  const auto [c, q] = add_command<LoadQuestion>(config, action, "load",
                                                "Load a rule file into a running process", run);
  add_file(*c, "FILE", q->file, "The rule file")->required();
  add_pid_option(*c, q->pid, "The process")->required();
}

void add_config_rollback(CLI::App& config, Action& action) {
  const auto run = [](const RollbackQuestion& q) {
    return ask(q, "config.rollback", {{"version", q.version}}, [&](int64_t pid, const Json& r) {
      print_out("version {} is in force again in process {}\n{}", q.version, pid,
                undo_hint(pid, r));
    });
  };
  const auto [c, q] = add_command<RollbackQuestion>(
      config, action, "rollback", "Put earlier rules of a process in force again", run);
  c->add_option("VERSION", q->version, "Its number in yard config history")
      ->required()
      ->check(between<uint64_t>(1, UINT64_MAX));
  add_pid_option(*c, q->pid, "The process")->required();
}

void add_config_history(CLI::App& config, Action& action) {
  const auto run = [](const RemoteQuestion& q) {
    return ask(q, "config.history", Json::object(), print_history);
  };
  const auto [c, q] = add_command<RemoteQuestion>(
      config, action, "history", "List the rules that were in force in a process", run);
  add_pid_option(*c, q->pid, "The process")->required();
}

void add_config(CLI::App& app, Action& action) {
  CLI::App* config =
      app.add_subcommand("config", "Check rule files, and load them into running processes");
  config->require_subcommand(1);
  for (AddCommand* add : {add_config_check, add_config_diff, add_config_simulate, add_config_schema,
                          add_config_load, add_config_rollback, add_config_history})
    add(*config, action);
}

}  // namespace yard::tool
