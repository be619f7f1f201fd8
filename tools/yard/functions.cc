// SPDX-License-Identifier: Apache-2.0
// yard functions: dispatched functions, their providers, which are on, and the reasons of rejections.
#include <fmt/format.h>
#include <yard/function.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "announced.h"
#include "commands.h"
#include "json.h"
#include "plugin_show.h"
#include "table.h"

namespace yard::tool {
namespace {

struct FunctionsQuestion {
  std::vector<std::string> paths;
  bool open = false, json = false;
};

Json function_provider_json(const FunctionProvider& p) {
  Json refusals = Json::array();
  for (const FunctionRefusal& r : p.refusals)
    refusals.push_back({{"reason", r.reason}, {"text", r.text}, {"count", r.count}});
  return {{"backend", p.backend},
          {"priority", p.priority},
          {"on", p.on},
          {"reason", text_or_null(p.reason)},
          {"detail", text_or_null(p.detail)},
          {"breaker", p.breaker},
          {"calls", p.calls},
          {"failures", p.failures},
          {"refusals", std::move(refusals)}};
}

Json functions_json(const std::vector<FunctionInfo>& list, const std::vector<Announced>& waiting) {
  Json to = {{"functions", Json::array()}, {"announced", Json::array()}};
  for (const FunctionInfo& f : list) {
    Json providers = Json::array();
    for (const FunctionProvider& p : f.providers) providers.push_back(function_provider_json(p));
    to["functions"].push_back({{"group", f.group},
                               {"name", f.name},
                               {"signature", f.signature},
                               {"declared", f.declared},
                               {"choice", text_or_null(f.choice)},
                               {"original_calls", f.original_calls},
                               {"providers", std::move(providers)}});
  }
  for (const Announced& a : waiting)
    to["announced"].push_back({{"group", a.name}, {"plugin", a.plugin}, {"path", a.path}});
  return to;
}

void print_functions(const std::vector<FunctionInfo>& list, const std::vector<Announced>& waiting) {
  if (list.empty() && waiting.empty()) {
    fmt::print("No dispatched functions are declared or provided.\n");
    return;
  }
  Table table(
      {{"function"}, {"backend"}, {"priority", Align::kRight}, {"on"}, {"signature"}, {""}});
  for (const FunctionInfo& f : list) {
    std::string name = f.group + "/" + f.name;
    const std::string note = f.declared ? "" : "not declared";
    if (f.providers.empty())
      table.add({{name, Paint::kBold},
                 {"-"},
                 {"-"},
                 {"-"},
                 {f.signature},
                 {"not provided", Paint::kDim}});
    for (const FunctionProvider& p : f.providers) {
      std::string why = p.on ? note : p.detail.empty() ? p.reason : p.reason + ": " + p.detail;
      if (p.on && p.breaker != "closed") why = "its breaker is " + p.breaker;
      table.add({{std::exchange(name, ""), Paint::kBold},
                 {p.backend},
                 {std::to_string(p.priority)},
                 p.on ? Cell{"yes", Paint::kGood} : Cell{"no", Paint::kBad},
                 {f.signature},
                 {std::move(why), Paint::kDim}});
    }
  }
  for (const Announced& a : waiting)
    table.add({{a.name + "/*", Paint::kBold},
               {"-"},
               {"-"},
               {"-"},
               {"-"},
               {fmt::format("plugin {}, not opened", a.plugin), Paint::kDim}});
  fmt::print("{}", table.text());
}

int list_functions(const FunctionsQuestion& q) {
  const RuntimeSettings settings = looks_also_at(q.paths);
  Runtime runtime(settings);
  if (const Status s = none_refused(runtime, settings.plugins.paths); !s.ok())
    return fail(kFailed, s.message());
  if (q.open)
    if (const Status s = open_announced(runtime, &PluginInfo::groups); !s.ok())
      return fail(kFailed, s.message());
  const std::vector<FunctionInfo> list = runtime.functions().list();
  const std::vector<Announced> waiting = announced(runtime, &PluginInfo::groups);
  if (q.json)
    fmt::print("{}\n",
               functions_json(list, waiting).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_functions(list, waiting);
  return kOk;
}

}  // namespace

void add_functions(CLI::App& app, Action& action) {
  auto q = std::make_shared<FunctionsQuestion>();
  CLI::App* c = app.add_subcommand("functions", "List the dispatched functions of plugins");
  c->add_option("PATH", q->paths, "More plugins, or directories of them");
  c->add_flag("--open", q->open, "Open the plugins that serve groups, to list their functions");
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Functions are declared by programs. This command declares none, so functions of plugins "
      "are\n"
      "shown as not declared; a program lists its own with yard::Functions::list().\n"
      "\n"
      "Examples:\n"
      "  yard functions                     what the installed plugins announce\n"
      "  yard functions --open ./acme.so    backends, signatures and priorities of one\n"
      "  yard functions --json              {\"functions\": [...], \"announced\": [...]}");
  c->callback([q, &action] { action = [q] { return list_functions(*q); }; });
}

}  // namespace yard::tool
