// SPDX-License-Identifier: Apache-2.0
// yard plugin list and inspect: found and refused plugins, and the manifest of one. No code of a plugin is run.
#include <fmt/format.h>
#include <yard/log.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "json.h"
#include "plugin_commands.h"
#include "plugin_show.h"
#include "table.h"

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
  if (q.json) {
    Json j = {{"plugins", Json::array()}};
    for (const PluginInfo& p : found) j["plugins"].push_back(to_json(p));
    fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace));
    return kOk;
  }
  if (found.empty()) {
    fmt::print("No plugins were found.\n");
    return kOk;
  }
  Table table({{"name"}, {"version"}, {"state"}, {"ops"}, {"file"}, {""}});
  for (const PluginInfo& p : found) table.add(plugin_row(p));
  fmt::print("{}", table.text());
  return kOk;
}

Paint paint_of(const PluginInfo& p) {
  return p.state == PluginState::kRefused ? Paint::kBad : Paint::kGood;
}

void print_plugin(const PluginInfo& p) {
  const auto line = [](const char* what, const std::string& value) {
    if (!value.empty()) fmt::print("  {:<10} {}\n", what, value);
  };
  fmt::print("{} {}\n", paint(Paint::kBold, p.name.empty() ? p.path : p.name), p.version);
  const bool refused = p.state == PluginState::kRefused;
  line("state", paint(paint_of(p), refused ? "refused" : "could be loaded"));
  line("because", why_refused(p));
  line("file", p.path);
  line("sha256", p.sha256);
  if (!p.name.empty()) {
    line("made for", fmt::format("{}, ABI {}, sanitizer {}", p.arch, p.abi, p.sanitizer));
    line("build", p.build);
    line("devices", joined(p.devices));
    line("needs", joined(p.features));
    line("ops", joined(p.ops));
    if (!p.groups.empty()) line("groups", joined(p.groups));
    if (!p.hooks.empty()) line("hooks", joined(p.hooks));
  }
  line("probed", !p.probed ? "not yet: yard plugin probe" : *p.probed ? "passed" : "failed");
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
    fmt::print("{}\n", to_json(info).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_plugin(info);
  return info.state == PluginState::kRefused ? kFailed : kOk;
}

}  // namespace

void add_plugin_list(CLI::App& plugin, Action& action) {
  auto q = std::make_shared<PluginsQuestion>();
  CLI::App* c = plugin.add_subcommand("list", "List the plugins that are found, and those refused");
  c->add_option("PATH", q->paths, "Files and directories to search before all others")
      ->type_name("PATH");
  add_feature_option(*c);
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Searches where a program in this environment would: YARD_PLUGINS, YARD_PLUGIN_PATH and\n"
      "where plugins are installed. Opens none of them. Lock files and the rule file in force\n"
      "apply.\n"
      "\n"
      "Examples:\n"
      "  yard plugin list\n"
      "  yard plugin list ./build /opt/acme/plugins\n"
      "  yard plugin list --json             {\"plugins\": [{\"path\", \"name\", \"state\", "
      "...}]}");
  c->callback([q, &action] { action = [q] { return list_plugins(*q); }; });
}

void add_plugin_inspect(CLI::App& plugin, Action& action) {
  auto q = std::make_shared<PluginsQuestion>();
  q->paths.resize(1);
  CLI::App* c = plugin.add_subcommand("inspect", "Show the manifest of a file, without running it");
  c->add_option("FILE", q->paths[0], "A plugin's shared library")->required();
  add_feature_option(*c);
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Shows the manifest, the digest, and recorded results of probes and of yard verify. Exit\n"
      "code 1 when a program in this environment would refuse the file, because of a lock file or\n"
      "`require_verified` for example. Another plugin of the same name does not count here.\n"
      "\n"
      "Examples:\n"
      "  yard plugin inspect ./acme.so\n"
      "  yard plugin inspect ./acme.so --json");
  c->callback([q, &action] { action = [q] { return inspect(q->paths[0], q->json); }; });
}

}  // namespace yard::tool
