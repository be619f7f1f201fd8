// SPDX-License-Identifier: Apache-2.0
// yard plugin load, unload and replace: change the plugins of running processes.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "live/answers.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {

void print_changed(int64_t pid, const Json& result, const std::string& what) {
  print_out("{} in process {}\n{}", what, pid, undo_hint(pid, result));
}

void print_takeover(const Json& effect) {
  const Json& takeover = value_at(effect, "takes_over");
  if (takeover.is_null()) return;
  if (takeover.empty())
    print_out(
        "  no call that the process remembers, one of each shape class, gets another kernel\n");
  for (const Json& t : takeover) {
    const double from = number_at(t, "from_ns"), to = number_at(t, "to_ns");
    const bool timed = from > 0 && to > 0;
    const uint64_t calls = count_at(t, "calls");
    print_out("  {}: {} takes over from {} for {} of calls{}: {}\n", text_at(t, "op"),
              text_at(t, "to") + (text_at(t, "kind") == "reference" ? " (a reference kernel)" : ""),
              text_at(t, "from"), calls == 1 ? "one kind" : fmt::format("{} kinds", calls),
              timed && count_at(t, "timed") < calls
                  ? fmt::format(", {} of which are timed", count_at(t, "timed"))
                  : "",
              !timed ? paint(Paint::kWarning, "not timed yet, compare the times in yard top")
                     : paint(to > 1.1 * from ? Paint::kBad : Paint::kGood,
                             fmt::format("{} instead of {}, {} times as long ({})", duration(to),
                                         duration(from), factor_text(to / from),
                                         flag_at(t, "measured") ? "measured" : "estimated")));
  }
}

namespace {

struct LiveQuestion : ManyQuestion {
  std::string command, plugin, file;
  bool dry_run = false, allow_incompatible = false;
};

int change_plugin(const LiveQuestion& q) {
  // The process may have another working directory, so a path must be absolute. A name has no '/'.
  const auto absolute = [](const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
  };
  const bool is_file =
      q.command == "load" && (q.plugin.find('/') != std::string::npos || q.plugin.ends_with(".so"));
  const std::string plugin = is_file ? absolute(q.plugin) : q.plugin;
  Json args = arguments({{"plugin", plugin}, {"path", q.file.empty() ? "" : absolute(q.file)}});
  if (q.dry_run) args["dry_run"] = true;
  if (q.allow_incompatible) args["allow_incompatible"] = true;
  return ask_many(q, "plugin." + q.command, args, [&](int64_t pid, const Json& result) {
    const Json& effect = value_at(result, "effect");
    const Json& p = value_at(effect, "plugin");
    const std::string name = fmt::format("{} {}", text_at(p, "name"), text_at(p, "version"));
    if (q.dry_run)
      print_out("process {} would {} {}: it passes the checks before a load\n", pid, q.command,
                name);
    else
      print_changed(
          pid, result,
          fmt::format("{}ed plugin {}", q.command == "replace" ? "replac" : q.command, name));
    print_takeover(effect);
  });
}

void add_change(CLI::App& plugin, Action& action, const char* name, const char* text,
                const char* what) {
  const auto [c, q] = add_command<LiveQuestion>(plugin, action, name, text, change_plugin);
  q->command = name;
  c->add_option("PLUGIN", q->plugin, what)->required();
  if (q->command == "replace") {
    c->add_option("FILE", q->file, "The new file, if it has another path")->type_name("FILE");
    c->add_flag("--allow-incompatible", q->allow_incompatible,
                "Also if it lacks ops that the process has called, or has them with other schemas");
  }
  c->add_flag("--dry-run", q->dry_run, "Only check it and say what would take over");
  add_many_options(*c, *q);
}

}  // namespace

void add_plugin_live(CLI::App& plugin, Action& action) {
  add_change(plugin, action, "load", "Load a plugin into a running process",
             "The name of a plugin that the process has found, or a file");
  add_change(plugin, action, "unload", "Unload a plugin of a running process",
             "The name of a loaded plugin");
  add_change(plugin, action, "replace", "Replace a plugin of a running process without a gap",
             "The name of a loaded plugin");
}

}  // namespace yard::tool
