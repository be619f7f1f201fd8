// SPDX-License-Identifier: Apache-2.0
// yard config load, rollback and history: the rules of a running process.
#include <CLI/CLI.hpp>

#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct LoadQuestion : RemoteQuestion {
  std::string file;
};
struct RollbackQuestion : RemoteQuestion {
  uint64_t version = 0;
};

void add_process(CLI::App& c, RemoteQuestion& q) {
  add_pid_option(c, q.pid, "The process")->required();
  c.add_flag("--json", q.json, "JSON for programs instead of text");
}

void print_history(int64_t, const Json& result) {
  const Json& versions = list_at(result, "versions");
  Table table({{"version", Align::kRight}, {"age", Align::kRight}, {"sha256"}, {"source"}, {""}});
  for (const Json& v : versions)
    table.add({{shown(value_at(v, "version"))},
               {since_text(value_at(v, "at"))},
               {text_at(v, "sha256").substr(0, 8)},
               {text_at(v, "source")},
               {flag_at(v, "in_force") ? "in force" : "", Paint::kGood}});
  print_out("{}", versions.empty() ? "no rules were loaded\n" : table.text());
}

}  // namespace

void add_config_load(CLI::App& config, Action& action) {
  const auto run = [](const LoadQuestion& q) {
    const std::string path = std::filesystem::absolute(q.file).lexically_normal().string();
    return ask(q, "config.load", {{"path", path}}, [&](int64_t pid, const Json& result) {
      for (const Json& p : list_at(value_at(result, "effect"), "problems"))
        print_out("{}\n", shown(p));
      print_out("loaded {} into process {}\n  to take it back: yard undo --pid {}\n", path, pid,
                pid);
    });
  };
  const auto [c, q] = add_command<LoadQuestion>(config, action, "load",
                                                "Load a rule file into a running process", run);
  c->add_option("FILE", q->file, "The rule file")
      ->required()
      ->type_name("FILE")
      ->check(existing_file());
  add_process(*c, *q);
  c->footer(
      "The process reads and checks the file itself. With an error, or if a known call would have "
      "no\n"
      "kernel, nothing changes: exit code 2 or 1, with all problems.\n"
      "\n"
      "Examples:\n"
      "  yard config load rules.yaml --pid 4242\n"
      "  yard config history --pid 4242");
}

void add_config_rollback(CLI::App& config, Action& action) {
  const auto run = [](const RollbackQuestion& q) {
    return ask(q, "config.rollback", {{"version", q.version}}, [&](int64_t pid, const Json&) {
      print_out(
          "version {} is in force again in process {}\n  to take it back: yard undo --pid {}\n",
          q.version, pid, pid);
    });
  };
  const auto [c, q] = add_command<RollbackQuestion>(
      config, action, "rollback", "Put earlier rules of a process in force again", run);
  c->add_option("VERSION", q->version, "Its number in yard config history")
      ->required()
      ->check(between<uint64_t>(1, UINT64_MAX));
  add_process(*c, *q);
  c->footer(
      "Examples:\n"
      "  yard config history --pid 4242\n"
      "  yard config rollback 3 --pid 4242");
}

void add_config_history(CLI::App& config, Action& action) {
  const auto run = [](const RemoteQuestion& q) {
    return ask(q, "config.history", Json::object(), print_history);
  };
  const auto [c, q] = add_command<RemoteQuestion>(
      config, action, "history", "List the rules that were in force in a process", run);
  add_process(*c, *q);
  c->footer(
      "The last 32, with their sources and digests.\n"
      "\n"
      "Examples:\n"
      "  yard config history --pid 4242\n"
      "  yard config history --pid 4242 --json");
}

}  // namespace yard::tool
