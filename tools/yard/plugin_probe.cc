// SPDX-License-Identifier: Apache-2.0
// yard plugin probe: probes a library in a separate process.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "json.h"
#include "plugin_commands.h"
#include "plugin_show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct ProbeQuestion {
  std::string file;
  double seconds = PluginSettings().probe_seconds;
  double gib = 4;
  bool json = false;
};

Json probe_json(const ProbeReport& r) {
  Json j = {{"passed", r.passed()},
            {"reason", r.passed() ? Json() : Json(to_string(r.reason))},
            {"detail", r.passed() ? Json() : Json(r.detail)},
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
    fmt::print("{}\n", probe_json(r).dump(2, ' ', false, Json::error_handler_t::replace));
  else if (r.passed())
    fmt::print("{}: {} kernel{}, {} calls, {}\n", paint(Paint::kGood, "passed"), r.kernels,
               r.kernels == 1 ? "" : "s", r.runs, duration(r.seconds * 1e9));
  else
    fmt::print("{}: {}: {}{}\n", paint(Paint::kBad, "refused"), to_string(r.reason),
               r.reason == PluginReason::kProbeFailed ? "it " : "", r.detail);
  return r.passed() ? kOk : kFailed;
}

}  // namespace

void add_plugin_probe(CLI::App& plugin, Action& action) {
  auto q = std::make_shared<ProbeQuestion>();
  CLI::App* c = plugin.add_subcommand("probe", "Probe a plugin in a separate process");
  c->add_option("FILE", q->file, "A plugin's shared library")->required();
  add_feature_option(*c);
  c->add_option("--seconds", q->seconds, "How long it may take (10)")
      ->type_name("S")
      ->check(CLI::Range(0.01, 86400.0));
  c->add_option("--memory", q->gib, "GiB of address space it may use (4)")
      ->type_name("GIB")
      ->check(CLI::Range(0.1, 1048576.0));
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Opens the library in a child process, queries its descriptor, starts it, runs each of its\n"
      "kernels on a few small calls with guarded memory, stops and closes it. A library that\n"
      "crashes, hangs, ends the process or writes out of bounds is refused: exit code 1, with\n"
      "what happened and where. The result is recorded by digest, for YARD_PLUGIN_PROBE=changed.\n"
      "A probe finds mistakes, not malice: it is not a sandbox.\n"
      "\n"
      "Examples:\n"
      "  yard plugin probe ./acme.so\n"
      "  yard plugin probe ./acme.so --seconds 60 --json");
  c->callback([q, &action] { action = [q] { return probe(*q); }; });
}

}  // namespace yard::tool
