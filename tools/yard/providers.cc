// SPDX-License-Identifier: Apache-2.0
// yard functions: shows declared and provided functions, and which backends are on or active.
#include <fmt/format.h>
#include <yard/function.h>
#include <yard/runtime.h>

#include <algorithm>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

Cell not_opened(const Announced& a) {
  return {fmt::format("plugin {}, not opened", a.plugin), Paint::kDim};
}

// Adds a row for a function without a provider.
void add_row(Table& table, std::string name, std::string signature, Cell note) {
  table.add({{std::move(name), Paint::kBold},
             {"-"},
             {"-"},
             {"-"},
             {std::move(signature)},
             std::move(note)});
}

struct FunctionsQuestion {
  std::vector<std::string> paths, activate;
  bool open = false, active = false, json = false;
};

Json function_provider_json(const FunctionProvider& p) {
  Json devices = Json::array();
  for (const Device d : p.devices) devices.push_back(to_string(d));
  return {{"backend", p.backend},
          {"priority", p.priority},
          {"on", p.on},
          {"reason", text_or_null(p.reason)},
          {"detail", text_or_null(p.detail)},
          {"breaker", p.breaker},
          {"calls", p.calls},
          {"failures", p.failures},
          {"takes_next", p.takes_next},
          {"active", p.active},
          {"devices", devices}};
}

Json functions_json(const Functions& functions, const std::vector<Announced>& waiting) {
  Json to = {
      {"functions", Json::array()}, {"activations", Json::array()}, {"announced", Json::array()}};
  for (const FunctionInfo& f : functions.list()) {
    Json providers = Json::array();
    for (const FunctionProvider& p : f.providers) providers.push_back(function_provider_json(p));
    to["functions"].push_back({{"group", f.group},
                               {"name", f.name},
                               {"signature", f.signature},
                               {"declared", f.declared},
                               {"original_calls", f.original_calls},
                               {"providers", std::move(providers)}});
  }
  for (const FunctionActivation& a : functions.activations())
    to["activations"].push_back({{"backend", a.backend},
                                 {"device", a.device ? Json(to_string(*a.device)) : Json()},
                                 {"waiting", a.waiting}});
  for (const Announced& a : waiting)
    to["announced"].push_back({{"group", a.name}, {"plugin", a.plugin}, {"path", a.path}});
  return to;
}

Cell where(const FunctionProvider& p) {
  std::string text = p.active ? "process" : "";
  for (const Device d : p.devices) text += (text.empty() ? "" : ", ") + to_string(d);
  return text.empty() ? Cell{"-"} : Cell{std::move(text), Paint::kGood};
}

void print_functions(const std::vector<FunctionInfo>& list, const std::vector<Announced>& waiting,
                     bool active) {
  if (list.empty() && waiting.empty()) {
    print_out("No functions are declared or provided.\n");
    return;
  }
  Table table(fmt::format("function|backend|priority>|{}|signature|", active ? "active" : "on"));
  for (const FunctionInfo& f : list) {
    std::string name = f.group + "/" + f.name;
    const auto is_other = [&](const FunctionInfo& o) {
      return o.group == f.group && o.name == f.name && o.signature != f.signature;
    };
    const std::string note = f.declared ? ""
                             : std::ranges::none_of(list, is_other)
                                 ? "not declared"
                                 : "not declared; backends disagree about the signature";
    if (f.providers.empty()) add_row(table, name, f.signature, {"not provided", Paint::kDim});
    for (const FunctionProvider& p : f.providers) {
      std::string why = p.on || active     ? note
                        : p.detail.empty() ? p.reason
                                           : p.reason + ": " + p.detail;
      if (p.on && p.breaker != "closed") why = "its breaker is " + p.breaker;
      table.add({{std::exchange(name, ""), Paint::kBold},
                 {p.backend},
                 {std::to_string(p.priority)},
                 active ? where(p)
                 : p.on ? Cell{"yes", Paint::kGood}
                        : Cell{"no", Paint::kBad},
                 {f.signature},
                 {std::move(why), Paint::kDim}});
    }
  }
  for (const Announced& a : waiting) add_row(table, a.name + "/*", "-", not_opened(a));
  print_out("{}", table.text());
}

int list_functions(const FunctionsQuestion& q) {
  const RuntimeSettings settings = looks_also_at(q.paths);
  Runtime runtime(settings);
  need(none_refused(runtime, settings.plugins.paths), kFailed);
  if (q.open || !q.activate.empty()) need(open_announced(runtime, &PluginInfo::groups), kFailed);
  Functions functions = runtime.functions();
  for (const std::string& backend : q.activate) need(functions.activate(backend), kFailed);
  const std::vector<Announced> waiting = announced(runtime, &PluginInfo::groups);
  q.json ? print_json(functions_json(functions, waiting))
         : print_functions(functions.list(), waiting, q.active);
  return kOk;
}

}  // namespace

void add_functions(CLI::App& app, Action& action) {
  // `yard hooks` is another name of `yard functions --active`.
  for (const bool active : {false, true}) {
    const auto [c, q] = add_command<FunctionsQuestion>(
        app, action, active ? "hooks" : "functions",
        active ? "List the functions of plugins and where backends are active"
               : "List the functions of plugins",
        list_functions);
    q->active = active;
    c->add_option("PATH", q->paths, "More plugins, or directories of them");
    c->add_flag("--open", q->open, "Open the plugins that serve groups, to list their functions");
    add_value(*c, "--activate", q->activate, "BACKEND",
              "Open them, and activate this backend for the process");
    if (!active) c->add_flag("--active", q->active, "Show where backends are active");
  }
}

}  // namespace yard::tool
