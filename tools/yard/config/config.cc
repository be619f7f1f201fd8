// SPDX-License-Identifier: Apache-2.0
// yard config: checks of rule files before they are in force, and their schema.
#include <fmt/format.h>
#include <yard/config.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "json.h"
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

// Whether the file names kernels, ops or backends that may be registered later.
bool names_later(const Config& config) {
  return !config.kernel_locks.empty() || !config.kernel_denies.empty() || config.kernel_allows ||
         !config.policy.backends.empty() ||
         std::any_of(config.dispatch_rules.begin(), config.dispatch_rules.end(),
                     [](const DispatchRule& r) { return !r.deny.empty() || r.allow; });
}

// Whether conditions of the file refer to an op of that name.
bool asks_about(const Config& config, const std::string& op) {
  const auto asks = [&](const auto& rule) {
    return !rule.conditions.empty() && glob_matches(rule.operation, op);
  };
  return std::any_of(config.dispatch_rules.begin(), config.dispatch_rules.end(), asks) ||
         std::any_of(config.score.begin(), config.score.end(), asks);
}

// Conditions on ops of a plugin are checked when it is opened, and so are names that were unknown until then: it is opened
// here. Other errors stay as they were: a program reads the file before it opens the plugin.
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
    for (ConfigProblem& p : runtime.check_config(c.file)) {
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

// Rules that are optional because a plugin brings their op: without that plugin nothing about them is checked.
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
          std::any_of(ops.begin(), ops.end(), is_named))
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
  // Problems of the file that the environment names are not reported.
  set_log_level("policy", LogLevel::kOff).ignore();
  Runtime& runtime = Runtime::shared();
  if (const int code = add_program_modes(runtime); code != kOk) return code;
  std::vector<Checked> all;
  bool ok = true;
  for (const std::string& file : q.files) all.push_back({file, runtime.check_config(file)});
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

}  // namespace

void add_config_check(CLI::App& config, Action& action) {
  const auto [c, q] = add_command<CheckQuestion>(config, action, "check",
                                                 "Check whether rule files are valid", check_files);
  c->add_option("FILE", q->files, "Rule files")
      ->required()
      ->type_name("FILE")
      ->check(existing_file());
  add_mode_option(*c);
  c->add_flag("--strict", q->strict, "Warnings fail, too");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Prints all problems, each with file, line and column, what is wrong and what was expected.\n"
      "Ops and kernels are those of this machine, and ops of plugins that this environment names;\n"
      "in rules, chains and maps a plugin's kernel must be `optional: true`, as in a program.\n"
      "Plugins are opened to check conditions on their ops, and for names that are unknown\n"
      "otherwise. Exit code 1 when a file has errors; with --strict also for warnings, such as\n"
      "unknown names and statements that contradict each other.\n"
      "\n"
      "Examples:\n"
      "  yard config check rules.yaml\n"
      "  yard config check --strict rules/*.yaml\n"
      "  YARD_PLUGINS=./acme.so yard config check rules.yaml --json");
}

void add_config_schema(CLI::App& config, Action& action) {
  CLI::App* c = config.add_subcommand("schema", "JSON Schema of rule files, for editors");
  c->footer(
      "Generated from the tables that the parser uses. It does not contain names of ops and\n"
      "kernels; yard config check checks them.\n"
      "\n"
      "Examples:\n"
      "  yard config schema > rules.schema.json\n"
      "  # yaml-language-server: $schema=rules.schema.json       first line of a rule file");
  c->callback([&action] {
    action = [] {
      write_out(Json::parse(config_json_schema()).dump(2) + '\n');
      return kOk;
    };
  });
}

void add_config(CLI::App& app, Action& action) {
  CLI::App* config =
      app.add_subcommand("config", "Check rule files, and load them into running processes");
  config->require_subcommand(1);
  config->footer(
      "Only load and rollback put rules in force, in the process that --pid names.\n"
      "\n"
      "Examples:\n"
      "  yard config check rules.yaml                         whether it is valid\n"
      "  yard config diff old.yaml new.yaml                   which calls would change kernel\n"
      "  yard config simulate new.yaml --trace calls.txt      how many recorded calls would move\n"
      "  yard config schema > rules.schema.json               for editors\n"
      "  yard config load rules.yaml --pid 4242               into a running process\n"
      "  yard config history --pid 4242                       what was in force there\n"
      "  yard explain --config new.yaml 'softmax(f32[8,64])'  what one call would run, and why");
  add_config_check(*config, action);
  add_config_diff(*config, action);
  add_config_simulate(*config, action);
  add_config_schema(*config, action);
  add_config_load(*config, action);
  add_config_rollback(*config, action);
  add_config_history(*config, action);
}

}  // namespace yard::tool
