// SPDX-License-Identifier: Apache-2.0
// yard hooks: which hooks are declared, provided and engaged, and which do not match.
#include <fmt/format.h>
#include <yard/hook.h>
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

struct HooksQuestion {
  std::vector<std::string> paths, activate;
  bool open = false, strict = false, json = false;
};

Json hook_provider_json(const HookProvider& p) {
  Json devices = Json::array();
  for (const Device d : p.devices) devices.push_back(to_string(d));
  return {{"backend", p.backend},
          {"priority", p.priority},
          {"active", p.active},
          {"devices", devices},
          {"adds", p.adds},
          {"overrides", p.overrides},
          {"takes_next", p.takes_next},
          {"definition", p.definition},
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

void print_hooks(const HookListing& list, const std::vector<Announced>& waiting) {
  if (list.hooks.empty() && waiting.empty()) {
    fmt::print("No hooks are declared or provided.\n");
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
    if (h.providers.empty())
      table.add({{name, Paint::kBold}, {"-"}, {"-"}, {"-"}, {h.signature}, {note, paint}});
    for (const HookProvider& p : h.providers)
      table.add({{std::exchange(name, ""), Paint::kBold},
                 {p.backend},
                 {std::to_string(p.priority)},
                 {where(p), p.active && p.off.empty() ? Paint::kGood : Paint::kPlain},
                 {h.signature},
                 {p.off.empty() ? note : "left out: " + p.off, paint}});
  }
  for (const Announced& a : waiting)
    table.add({{a.name, Paint::kBold},
               {"-"},
               {"-"},
               {"-"},
               {"-"},
               {fmt::format("plugin {}, not opened", a.plugin), Paint::kDim}});
  fmt::print("{}", table.text());
}

int list_hooks(const HooksQuestion& q) {
  const RuntimeSettings settings = looks_also_at(q.paths);
  Runtime runtime(settings);
  if (const Status s = none_refused(runtime, settings.plugins.paths); !s.ok())
    return fail(kFailed, s.message());
  if (q.open || !q.activate.empty())
    if (const Status s = open_announced(runtime, &PluginInfo::hooks); !s.ok())
      return fail(kFailed, s.message());
  runtime.hooks().set_strict(q.strict);
  for (const std::string& backend : q.activate)
    if (Status s = runtime.hooks().activate(backend); !s.ok())
      return fail(kFailed, std::string(s.message()));
  const HookListing list = runtime.hooks().list();
  const std::vector<Announced> waiting = announced(runtime, &PluginInfo::hooks);
  if (q.json)
    fmt::print("{}\n",
               hooks_json(list, waiting).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_hooks(list, waiting);
  return kOk;
}

}  // namespace

void add_hooks(CLI::App& app, Action& action) {
  auto q = std::make_shared<HooksQuestion>();
  CLI::App* c = app.add_subcommand("hooks", "List the hooks of plugins");
  c->add_option("PATH", q->paths, "More plugins, or directories of them");
  c->add_flag("--open", q->open, "Open the plugins that serve hooks, to list their hooks");
  c->add_option("--activate", q->activate, "Open them, and activate this backend for the process")
      ->allow_extra_args(false);
  c->add_flag("--strict", q->strict, "Activating undeclared hooks fails");
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
  c->callback([q, &action] { action = [q] { return list_hooks(*q); }; });
}

}  // namespace yard::tool
