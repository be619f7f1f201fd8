// SPDX-License-Identifier: Apache-2.0
#include "config/file.h"

#include <fmt/format.h>
#include <yard/log.h>
#include <CLI/CLI.hpp>

#include "arguments.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {

std::string shown(const ConfigProblem& p) {
  const std::string text = to_string(p);
  const std::string severity = to_string(p.severity);
  const size_t at = text.find(": " + severity + ": ");
  if (at == std::string::npos) return text;
  return text.substr(0, at + 2) +
         paint(p.severity == Severity::kError ? Paint::kBad : Paint::kWarning, severity) +
         text.substr(at + 2 + severity.size());
}

void add_config_option(CLI::App& command, std::string& to) {
  add_file(command, "--config", to, "Use this rule file instead of the one in force");
  add_mode_option(command);
}

namespace {

std::vector<std::string>& program_modes() {
  static std::vector<std::string> names;
  return names;
}

// Applies the rules to all calls at once, without a rollout and without watching the file.
Status put_in_force(Runtime& runtime, const std::string& path,
                    std::vector<ConfigProblem>& problems) {
  ConfigReading reading = read_config(path);
  if (!reading.ok()) {
    problems = runtime.rules().check(path);
    return Status(Code::kInvalidArgument, path + " is not a rule file");
  }
  reading.config.rollout.reset();
  Status s = runtime.rules().set(std::move(reading.config), &problems);
  problems.insert(problems.begin(), reading.problems.begin(), reading.problems.end());
  return s;
}

}  // namespace

void add_mode_option(CLI::App& command) {
  command
      .add_option("--program-mode", program_modes(),
                  "A mode that the program adds and the rules may name; repeatable")
      ->type_name("NAME")
      ->allow_extra_args(false);
}

int add_program_modes(Runtime& runtime) {
  ModeProvider silent;
  silent.reads.emplace();
  silent.plan = [](const ModeCall&) { return std::vector<std::string>(); };
  for (const std::string& m : program_modes()) need(runtime.rules().add_mode(m, silent), kUsage);
  return kOk;
}

int use_config(Runtime& runtime, const std::string& path) {
  if (const int code = add_program_modes(runtime); code != kOk) return code;
  if (path.empty()) return kOk;
  // The problems are printed below, so the log need not have them.
  const LogLevel before = log_level("policy");
  set_log_level("policy", LogLevel::kOff).ignore();
  std::vector<ConfigProblem> problems;
  const Status s = put_in_force(runtime, path, problems);
  // From here on the log has new problems, which are found when a plugin is opened.
  set_log_level("policy", before).ignore();
  if (!s.ok() && json_output()) {
    Status all(s.code(), fmt::format("{} is not a valid rule file", path));
    if (problems.empty()) all.note(std::string(s.message()));
    for (const ConfigProblem& p : problems) all.note(to_string(p));
    return fail(kUsage, all);
  }
  for (const ConfigProblem& p : problems) print_err("yard: {}\n", to_string(p));
  if (s.ok()) return kOk;
  return problems.empty() ? fail(kUsage, s) : kUsage;
}

std::unique_ptr<Runtime> runtime_under(const std::string& path) {
  auto runtime = std::make_unique<Runtime>();
  return use_config(*runtime, path) == kOk ? std::move(runtime) : nullptr;
}

}  // namespace yard::tool
