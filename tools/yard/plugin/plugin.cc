// SPDX-License-Identifier: Apache-2.0
// yard plugin list and inspect, which run no code of a plugin.
#include <fmt/format.h>
#include <yard/log.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct PluginsQuestion {
  std::vector<std::string> paths;
  bool json = false;
};

std::vector<Cell> plugin_row(const PluginInfo& p) {
  const Paint state = p.state == PluginState::kRefused ? Paint::kBad : Paint::kGood;
  return {{p.name.empty() ? "-" : p.name, Paint::kBold},
          {p.version.empty() ? "-" : p.version},
          {to_string(p.state), state},
          {joined(p.ops)},
          {p.path},
          {why_refused(p), Paint::kDim}};
}

int list_plugins(const PluginsQuestion& q) {
  // Refused plugins are in the table; those that the environment names are logged, too.
  set_log_level("plugin", LogLevel::kOff).ignore();
  if (const Status s = check_features(); !s.ok()) return fail(kUsage, s);
  const Runtime runtime(looks_also_at(q.paths));
  std::vector<PluginInfo> found = runtime.plugins().list();
  // A digest is checked when a plugin is loaded; would_load() tells the result without loading.
  for (PluginInfo& p : found)
    if (p.state == PluginState::kFound) p = runtime.plugins().would_load(p.path);
  const auto refused = [](const PluginInfo& p) { return p.state == PluginState::kRefused; };
  const int code = std::any_of(found.begin(), found.end(), refused) ? kFailed : kOk;
  if (q.json) {
    Json j = {{"plugins", Json::array()}};
    for (const PluginInfo& p : found) j["plugins"].push_back(to_json(p));
    print_json(j);
    return code;
  }
  if (found.empty()) {
    print_out("No plugins were found.\n");
    return kOk;
  }
  Table table({{"name"}, {"version"}, {"state"}, {"ops"}, {"file"}, {"reason"}});
  for (const PluginInfo& p : found) table.add(plugin_row(p));
  print_out("{}", table.text());
  return code;
}

Paint paint_of(const PluginInfo& p) {
  return p.state == PluginState::kRefused ? Paint::kBad : Paint::kGood;
}

void print_plugin(const PluginInfo& p) {
  const auto line = [](const char* what, const std::string& value) {
    if (!value.empty()) print_out("  {:<10} {}\n", what, value);
  };
  print_out("{} {}\n", paint(Paint::kBold, p.name.empty() ? p.path : p.name), p.version);
  const bool refused = p.state == PluginState::kRefused;
  line("state", paint(paint_of(p), refused ? "refused" : "could be loaded"));
  line("because", printable(why_refused(p)));
  line("file", p.path);
  line("sha256", p.sha256);
  if (!p.name.empty()) {
    line("made for", fmt::format("{}, ABI {}, sanitizer {}", p.arch, p.abi, p.sanitizer));
    line("build", p.build);
    line("devices", joined(p.devices));
    line("needs", joined(p.features));
    line("ops", joined(p.ops));
    if (!p.groups.empty()) line("groups", joined(p.groups));
  }
  line("verified", p.verified ? "yes" : "not yet: yard verify");
}

int inspect(const std::string& file, bool json) {
  set_log_level("plugin", LogLevel::kOff).ignore();  // other refused plugins do not matter here
  if (const Status s = check_features(); !s.ok()) return fail(kUsage, s);
  const Runtime runtime(as_the_environment_has_it());
  const PluginInfo info = runtime.plugins().would_load(absolute(file));
  if (info.reason == PluginReason::kNotFound)
    return fail(kUsage, fmt::format("{}: {}", file, info.detail));
  if (json)
    print_json(to_json(info));
  else
    print_plugin(info);
  return info.state == PluginState::kRefused ? kFailed : kOk;
}

}  // namespace

void add_plugin_list(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<PluginsQuestion>(
      plugin, action, "list", "List the plugins that are found, and those refused", list_plugins);
  c->add_option("PATH", q->paths, "Files and directories to search before all others")
      ->type_name("PATH");
  add_feature_option(*c);
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Searches where a program in this environment would: YARD_PLUGINS, YARD_PLUGIN_PATH and\n"
      "where plugins are installed. Opens none of them. Lock files and the rule file in force\n"
      "apply. Exit code 1 when one is refused.\n"
      "\n"
      "Examples:\n"
      "  yard plugin list\n"
      "  yard plugin list ./build /opt/acme/plugins\n"
      "  yard plugin list --json             {\"plugins\": [{\"path\", \"name\", \"state\", "
      "...}]}");
}

void add_plugin_inspect(CLI::App& plugin, Action& action) {
  auto q = std::make_shared<PluginsQuestion>();
  q->paths.resize(1);
  CLI::App* c = plugin.add_subcommand("inspect", "Show the manifest of a file, without running it");
  c->add_option("FILE", q->paths[0], "A plugin's shared library")->required();
  add_feature_option(*c);
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Shows the manifest, the digest, and whether yard verify has passed it. Exit code 1 when\n"
      " a program in this environment would refuse the file, because of a lock file or\n"
      "`require_verified` for example. Another plugin of the same name does not count here.\n"
      "\n"
      "Examples:\n"
      "  yard plugin inspect ./acme.so\n"
      "  yard plugin inspect ./acme.so --json");
  c->callback([q, &action] { action = [q] { return inspect(q->paths[0], q->json); }; });
}

void add_plugin(CLI::App& app, Action& action) {
  CLI::App* plugin = app.add_subcommand("plugin", "List, check, lock, upgrade and create plugins");
  plugin->require_subcommand(1);
  plugin->footer(
      "Examples:\n"
      "  yard plugin list                    found plugins, and refused ones with the reason\n"
      "  yard plugin inspect ./acme.so       the manifest of a file\n"
      "  yard verify --quick ./acme.so       run it in a separate process\n"
      "  yard verify ./acme.so               compare its kernels with the reference\n"
      "  yard plugin lock /opt/acme          load only these from now on\n"
      "  yard plugin upgrade ./acme.so       replace the installed version\n"
      "  yard plugin new acme                a new plugin project");
  add_plugin_list(*plugin, action);
  add_plugin_inspect(*plugin, action);
  add_plugin_lock(*plugin, action);
  add_plugin_upgrade(*plugin, action);
  add_plugin_new(*plugin, action);
}

}  // namespace yard::tool
