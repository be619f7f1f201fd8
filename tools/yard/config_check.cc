// SPDX-License-Identifier: Apache-2.0
// yard config check: whether rule files would be taken, with all that is wrong.
#include <fmt/format.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <nlohmann/json.hpp>

#include "config_commands.h"
#include "config_file.h"
#include "terminal.h"

namespace yard::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Question {
  std::vector<std::string> files;
  bool strict = false, json = false;
};

struct Checked {
  std::string file;
  std::vector<ConfigProblem> problems;
  size_t errors = 0, warnings = 0;
  bool ok(bool strict) const { return errors == 0 && (!strict || warnings == 0); }
};

Json to_json(const ConfigProblem& p) {
  return {{"severity", to_string(p.severity)},
          {"file", p.file},
          {"line", p.line},
          {"column", p.column},
          {"path", p.path},
          {"found", p.found},
          {"right", p.right.empty() ? Json() : Json(p.right)}};
}

Json to_json(const Checked& c, bool strict) {
  Json j = {{"file", c.file},
            {"ok", c.ok(strict)},
            {"errors", c.errors},
            {"warnings", c.warnings},
            {"problems", Json::array()}};
  for (const ConfigProblem& p : c.problems) j["problems"].push_back(to_json(p));
  return j;
}

std::string counted(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

void print(const Checked& c) {
  for (const ConfigProblem& p : c.problems) fmt::print("{}\n", shown(p));
  if (c.problems.empty())
    fmt::print("{}: {}\n", c.file, paint(Paint::kGood, "fine"));
  else
    fmt::print("{}: {}, {}\n", c.file, counted(c.errors, "error"), counted(c.warnings, "warning"));
}

int check(const Question& q) {
  // Problems of the file that the environment names are not asked for.
  set_log_level("policy", LogLevel::kOff).ignore();
  Runtime& runtime = Runtime::shared();
  if (const int code = add_program_modes(runtime); code != kOk) return code;
  std::vector<Checked> all;
  bool ok = true;
  for (const std::string& file : q.files) {
    Checked& c = all.emplace_back(Checked{file, runtime.check_config(file)});
    for (const ConfigProblem& p : c.problems)
      ++(p.severity == Severity::kError ? c.errors : c.warnings);
    ok = ok && c.ok(q.strict);
  }
  if (q.json) {
    Json j = {{"ok", ok}, {"files", Json::array()}};
    for (const Checked& c : all) j["files"].push_back(to_json(c, q.strict));
    fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const Checked& c : all) print(c);
  }
  return ok ? kOk : kFailed;
}

}  // namespace

void add_config_check(CLI::App& config, Action& action) {
  auto q = std::make_shared<Question>();
  CLI::App* c = config.add_subcommand("check", "Whether rule files would be taken");
  c->add_option("FILE", q->files, "Rule files")
      ->required()
      ->type_name("FILE ...")
      ->check(CLI::ExistingFile);
  add_mode_option(*c);
  c->add_flag("--strict", q->strict, "Warnings fail, too");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "All problems at once, each with file, line and column, what is wrong and what would be "
      "right.\n"
      "Ops and kernels are those of this machine, and ops of plugins that this environment names; "
      "a\n"
      "kernel that a plugin brings must be `optional: true`, as a program would have it.\n"
      "Exit code 1 when a file has errors.\n"
      "\n"
      "Examples:\n"
      "  yard config check rules.yaml\n"
      "  yard config check --strict rules/*.yaml\n"
      "  YARD_PLUGINS=./acme.so yard config check rules.yaml --json");
  c->callback([q, &action] { action = [q] { return check(*q); }; });
}

}  // namespace yard::tool
