// SPDX-License-Identifier: Apache-2.0
// yard plugin: list and inspect, which run no code of a plugin, and probe, which runs it in a separate process.
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
  for (const PluginLibrary& l : p.libraries) line("library", l.path + " " + l.sha256);
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
    print_json(to_json(info));
  else
    print_plugin(info);
  return info.state == PluginState::kRefused ? kFailed : kOk;
}

struct ProbeQuestion {
  std::string file;
  double seconds = PluginSettings().probe_seconds;
  double gib = 4;
  bool json = false;
};

// A probe that could not run any kernel has tested nothing.
bool nothing_ran(const ProbeReport& r) {
  return r.passed() && r.runs == 0 && !r.unavailable.empty();
}

Json probe_json(const ProbeReport& r) {
  const bool passed = r.passed() && !nothing_ran(r);
  Json j = {{"passed", passed},
            {"reason", text_or_null(passed           ? ""
                                    : nothing_ran(r) ? "unavailable"
                                                     : to_string(r.reason))},
            {"detail", text_or_null(passed           ? ""
                                    : nothing_ran(r) ? r.unavailable
                                                     : r.detail)},
            {"unavailable", text_or_null(r.unavailable)},
            {"kernels", r.kernels},
            {"runs", r.runs},
            {"seconds", r.seconds}};
  j["plugin"] = to_json(r.info);
  return j;
}

int probe(const ProbeQuestion& q) {
  if (const Status s = check_features(); !s.ok()) return fail(kUsage, s);
  RuntimeSettings settings = as_the_environment_has_it();
  settings.builtin_backends = false;
  settings.plugins.probe_seconds = q.seconds;
  settings.plugins.probe_memory = static_cast<uint64_t>(q.gib * (uint64_t{1} << 30));
  const Runtime runtime(settings);
  const ProbeReport r = runtime.plugins().probe(absolute(q.file));
  if (r.reason == PluginReason::kNotFound)
    return fail(kUsage, fmt::format("{}: {}", q.file, r.detail));
  if (q.json)
    print_json(probe_json(r));
  else if (nothing_ran(r))
    print_out("{}: no kernel was run: {}\n", paint(Paint::kBad, "unavailable"),
              printable(r.unavailable));
  else if (r.passed())
    print_out("{}: {} kernel{}, {} calls, {}{}\n", paint(Paint::kGood, "passed"), r.kernels,
              r.kernels == 1 ? "" : "s", r.runs, duration(r.seconds * 1e9),
              r.unavailable.empty() ? "" : "; not run: " + printable(r.unavailable));
  else
    print_out("{}: {}: {}{}\n", paint(Paint::kBad, "refused"), to_string(r.reason),
              r.reason == PluginReason::kProbeFailed ? "it " : "", printable(r.detail));
  return r.passed() && !nothing_ran(r) ? kOk : kFailed;
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
      "Shows the manifest, the digest, and recorded results of probes and of yard verify. Exit\n"
      "code 1 when a program in this environment would refuse the file, because of a lock file or\n"
      "`require_verified` for example. Another plugin of the same name does not count here.\n"
      "\n"
      "Examples:\n"
      "  yard plugin inspect ./acme.so\n"
      "  yard plugin inspect ./acme.so --json");
  c->callback([q, &action] { action = [q] { return inspect(q->paths[0], q->json); }; });
}

void add_plugin_probe(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<ProbeQuestion>(plugin, action, "probe",
                                                 "Probe a plugin in a separate process", probe);
  c->add_option("FILE", q->file, "A plugin's shared library")->required();
  add_feature_option(*c);
  c->add_option("--seconds", q->seconds, "How long it may take (10)")
      ->type_name("SECONDS")
      ->check(between(0.01, 86400.0));
  c->add_option("--memory", q->gib, "GiB of address space it may use (4)")
      ->type_name("GIB")
      ->check(between(0.1, 1048576.0));
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Opens the library in a child process, queries its descriptor, starts it, runs each of its\n"
      "kernels on a few small calls with guarded memory, stops and closes it. A library that\n"
      "crashes, hangs, ends the process or writes out of bounds is refused: exit code 1, with\n"
      "what happened and where. The result is recorded by digest, for YARD_PLUGIN_PROBE=changed.\n"
      "Exit code 1 also when no kernel could be run, with the reason: what the probe of its\n"
      "backend reported, for example. That is not recorded as a failure.\n"
      "A probe finds mistakes, not malice: it is not a sandbox.\n"
      "\n"
      "Examples:\n"
      "  yard plugin probe ./acme.so\n"
      "  yard plugin probe ./acme.so --seconds 60 --json");
}

void add_plugin(CLI::App& app, Action& action) {
  CLI::App* plugin = app.add_subcommand("plugin", "List, check, lock, upgrade and create plugins");
  plugin->require_subcommand(1);
  plugin->footer(
      "Examples:\n"
      "  yard plugin list                    found plugins, and refused ones with the reason\n"
      "  yard plugin inspect ./acme.so       the manifest of a file\n"
      "  yard plugin probe ./acme.so         run it in a separate process\n"
      "  yard verify ./acme.so               compare its kernels with the reference\n"
      "  yard plugin lock /opt/acme          load only these from now on\n"
      "  yard plugin upgrade ./acme.so       replace the installed version\n"
      "  yard plugin new acme                a new plugin project");
  add_plugin_list(*plugin, action);
  add_plugin_inspect(*plugin, action);
  add_plugin_lock(*plugin, action);
  add_plugin_probe(*plugin, action);
  add_plugin_upgrade(*plugin, action);
  add_plugin_new(*plugin, action);
}

}  // namespace yard::tool
