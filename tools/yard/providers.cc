// SPDX-License-Identifier: Apache-2.0
// yard hooks and yard functions: what is declared and provided, what is engaged or on, and why the rest is not.
#include <fmt/format.h>
#include <yard/function.h>
#include <yard/hook.h>
#include <yard/runtime.h>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct HooksQuestion {
  std::vector<std::string> paths, activate;
  bool open = false, json = false;
};

Json hook_provider_json(const HookProvider& p) {
  Json devices = Json::array();
  for (const Device d : p.devices) devices.push_back(to_string(d));
  return {{"backend", p.backend},      {"priority", p.priority},     {"active", p.active},
          {"devices", devices},        {"takes_next", p.takes_next}, {"definition", p.definition},
          {"off", text_or_null(p.off)}};
}

Json hooks_json(const HookListing& list, const std::vector<Announced>& waiting) {
  Json to = {{"hooks", Json::array()},
             {"undeclared", list.undeclared()},
             {"unprovided", list.unprovided()},
             {"activations", Json::array()},
             {"announced", Json::array()}};
  for (const HookInfo& h : list.hooks) {
    Json providers = Json::array();
    for (const HookProvider& p : h.providers) providers.push_back(hook_provider_json(p));
    to["hooks"].push_back({{"name", h.name},
                           {"signature", h.signature},
                           {"declared", h.declared},
                           {"engaged", h.engaged},
                           {"providers", std::move(providers)},
                           {"problem", text_or_null(h.problem)}});
  }
  for (const HookActivation& a : list.activations)
    to["activations"].push_back({{"backend", a.backend},
                                 {"device", a.device ? Json(to_string(*a.device)) : Json()},
                                 {"waiting", a.waiting}});
  for (const Announced& a : waiting)
    to["announced"].push_back({{"hook", a.name}, {"plugin", a.plugin}, {"path", a.path}});
  return to;
}

std::string where(const HookProvider& p) {
  std::string text = p.active ? "process" : "";
  for (const Device d : p.devices) text += (text.empty() ? "" : ", ") + to_string(d);
  return text.empty() ? "-" : text;
}

Cell not_opened(const Announced& a) {
  return {fmt::format("plugin {}, not opened", a.plugin), Paint::kDim};
}

// Of a hook or function without a provider.
void add_row(Table& table, std::string name, std::string signature, Cell note) {
  table.add({{std::move(name), Paint::kBold},
             {"-"},
             {"-"},
             {"-"},
             {std::move(signature)},
             std::move(note)});
}

void print_hooks(const HookListing& list, const std::vector<Announced>& waiting) {
  if (list.hooks.empty() && waiting.empty()) {
    print_out("No hooks are declared or provided.\n");
    return;
  }
  Table table(
      {{"hook"}, {"backend"}, {"priority", Align::kRight}, {"active"}, {"signature"}, {""}});
  for (const HookInfo& h : list.hooks) {
    std::string name = h.name;
    const std::string note = !h.problem.empty()    ? h.problem
                             : !h.declared         ? "not declared"
                             : h.providers.empty() ? "not provided"
                                                   : "";
    const Paint paint = h.problem.empty() ? Paint::kDim : Paint::kBad;
    if (h.providers.empty()) add_row(table, name, h.signature, {note, paint});
    for (const HookProvider& p : h.providers)
      table.add({{std::exchange(name, ""), Paint::kBold},
                 {p.backend},
                 {std::to_string(p.priority)},
                 {where(p), p.active && p.off.empty() ? Paint::kGood : Paint::kPlain},
                 {h.signature},
                 {p.off.empty() ? note : "left out: " + p.off, paint}});
  }
  for (const Announced& a : waiting) add_row(table, a.name, "-", not_opened(a));
  print_out("{}", table.text());
}

int list_hooks(const HooksQuestion& q) {
  const RuntimeSettings settings = looks_also_at(q.paths);
  Runtime runtime(settings);
  if (const Status s = none_refused(runtime, settings.plugins.paths); !s.ok())
    return fail(kFailed, s.message());
  if (q.open || !q.activate.empty())
    if (const Status s = open_announced(runtime, &PluginInfo::hooks); !s.ok())
      return fail(kFailed, s.message());
  for (const std::string& backend : q.activate)
    if (Status s = runtime.hooks().activate(backend); !s.ok())
      return fail(kFailed, std::string(s.message()));
  const HookListing list = runtime.hooks().list();
  const std::vector<Announced> waiting = announced(runtime, &PluginInfo::hooks);
  if (q.json)
    print_json(hooks_json(list, waiting));
  else
    print_hooks(list, waiting);
  return kOk;
}

struct FunctionsQuestion {
  std::vector<std::string> paths;
  bool open = false, json = false;
};

Json function_provider_json(const FunctionProvider& p) {
  return {{"backend", p.backend},
          {"priority", p.priority},
          {"on", p.on},
          {"reason", text_or_null(p.reason)},
          {"detail", text_or_null(p.detail)},
          {"breaker", p.breaker},
          {"calls", p.calls},
          {"failures", p.failures}};
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
                               {"original_calls", f.original_calls},
                               {"providers", std::move(providers)}});
  }
  for (const Announced& a : waiting)
    to["announced"].push_back({{"group", a.name}, {"plugin", a.plugin}, {"path", a.path}});
  return to;
}

void print_functions(const std::vector<FunctionInfo>& list, const std::vector<Announced>& waiting) {
  if (list.empty() && waiting.empty()) {
    print_out("No dispatched functions are declared or provided.\n");
    return;
  }
  Table table(
      {{"function"}, {"backend"}, {"priority", Align::kRight}, {"on"}, {"signature"}, {""}});
  for (const FunctionInfo& f : list) {
    std::string name = f.group + "/" + f.name;
    const std::string note = f.declared ? "" : "not declared";
    if (f.providers.empty()) add_row(table, name, f.signature, {"not provided", Paint::kDim});
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
  for (const Announced& a : waiting) add_row(table, a.name + "/*", "-", not_opened(a));
  print_out("{}", table.text());
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
    print_json(functions_json(list, waiting));
  else
    print_functions(list, waiting);
  return kOk;
}

}  // namespace

void add_hooks(CLI::App& app, Action& action) {
  const auto [c, q] =
      add_command<HooksQuestion>(app, action, "hooks", "List the hooks of plugins", list_hooks);
  c->add_option("PATH", q->paths, "More plugins, or directories of them");
  c->add_flag("--open", q->open, "Open the plugins that serve hooks, to list their hooks");
  c->add_option("--activate", q->activate, "Open them, and activate this backend for the process")
      ->type_name("BACKEND")
      ->allow_extra_args(false);
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Hooks are declared by programs. This command declares none, so hooks of plugins are shown\n"
      "as not declared; a program lists its own with yard::Hooks::list().\n"
      "\n"
      "Examples:\n"
      "  yard hooks                       what the installed plugins announce\n"
      "  yard hooks --open ./acme.so      backends, signatures and priorities of one\n"
      "  yard hooks --activate acme       which hooks would be engaged\n"
      "  yard hooks --json                {\"hooks\": [...], \"undeclared\", \"unprovided\", "
      "\"announced\"}");
}

void add_functions(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<FunctionsQuestion>(
      app, action, "functions", "List the dispatched functions of plugins", list_functions);
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
}

}  // namespace yard::tool
