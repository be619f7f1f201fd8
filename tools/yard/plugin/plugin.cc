// SPDX-License-Identifier: Apache-2.0
// yard plugin list and inspect: show plugins without running their code.
#include <fmt/format.h>
#include <yard/log.h>
#include <CLI/CLI.hpp>

#include <algorithm>

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
  // The table shows the refused plugins, so the log need not.
  set_log_level("plugin", LogLevel::kOff).ignore();
  need(check_features(), kUsage);
  const Runtime runtime(looks_also_at(q.paths));
  std::vector<PluginInfo> found = runtime.plugins().list();
  // Only loading checks the digest; would_load() checks it without loading.
  for (PluginInfo& p : found)
    if (p.state == PluginState::kFound) p = runtime.plugins().would_load(p.path);
  const auto refused = [](const PluginInfo& p) { return p.state == PluginState::kRefused; };
  const int code = std::ranges::any_of(found, refused) ? kFailed : kOk;
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
  Table table("name|version|state|ops|file|reason");
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

struct InspectQuestion {
  std::string file;
  bool json = false;
};

int inspect(const InspectQuestion& q) {
  set_log_level("plugin", LogLevel::kOff).ignore();  // other refused plugins do not matter here
  need(check_features(), kUsage);
  const Runtime runtime(as_the_environment_has_it());
  const PluginInfo info = runtime.plugins().would_load(absolute(q.file));
  if (info.reason == PluginReason::kNotFound)
    return fail(kUsage, fmt::format("{}: {}", q.file, info.detail));
  q.json ? print_json(to_json(info)) : print_plugin(info);
  return info.state == PluginState::kRefused ? kFailed : kOk;
}

}  // namespace

void add_plugin_list(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<PluginsQuestion>(
      plugin, action, "list", "List the plugins that are found, and those refused", list_plugins);
  c->add_option("PATH", q->paths, "Files and directories to search before all others")
      ->type_name("PATH");
  add_feature_option(*c);
}

void add_plugin_inspect(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<InspectQuestion>(
      plugin, action, "inspect", "Show the manifest of a file, without running it", inspect);
  c->add_option("FILE", q->file, "A plugin's shared library")->required();
  add_feature_option(*c);
}

void add_plugin(CLI::App& app, Action& action) {
  CLI::App* plugin =
      app.add_subcommand("plugin", "List, check, lock, upgrade, create and load plugins");
  plugin->require_subcommand(1);
  for (AddCommand* add : {add_plugin_list, add_plugin_inspect, add_plugin_lock, add_plugin_upgrade,
                          add_plugin_new, add_plugin_live})
    add(*plugin, action);
}

}  // namespace yard::tool
