// SPDX-License-Identifier: Apache-2.0
// yard hooks: what is declared, who provides it, what is engaged, and what does not fit together.
#include <fmt/format.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "plugin_show.h"
#include "table.h"

namespace yard::tool {
namespace {

using Json = nlohmann::ordered_json;

struct Question {
  std::vector<std::string> paths, activate;
  bool open = false, strict = false, json = false;
};

// A hook that a plugin announces which has not been opened.
struct Announced {
  std::string hook, plugin, path;
};

std::vector<Announced> announced(const Runtime& runtime) {
  std::vector<Announced> to;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kFound)
      for (const std::string& h : p.hooks) to.push_back({h, p.name, p.path});
  return to;
}

Json to_json(const HookProvider& p) {
  Json devices = Json::array();
  for (const Device d : p.devices) devices.push_back(to_string(d));
  return {{"backend", p.backend},
          {"priority", p.priority},
          {"active", p.active},
          {"devices", devices},
          {"adds", p.adds},
          {"overrides", p.overrides},
          {"takes_next", p.takes_next},
          {"definition", p.definition}};
}

Json to_json(const HookListing& list, const std::vector<Announced>& waiting) {
  Json to = {{"hooks", Json::array()},
             {"undeclared", list.undeclared()},
             {"unprovided", list.unprovided()},
             {"announced", Json::array()}};
  for (const HookInfo& h : list.hooks) {
    Json providers = Json::array();
    for (const HookProvider& p : h.providers) providers.push_back(to_json(p));
    to["hooks"].push_back({{"name", h.name},
                           {"signature", h.signature},
                           {"declared", h.declared},
                           {"engaged", h.engaged},
                           {"providers", std::move(providers)},
                           {"problem", h.problem.empty() ? Json() : Json(h.problem)}});
  }
  for (const Announced& a : waiting)
    to["announced"].push_back({{"hook", a.hook}, {"plugin", a.plugin}, {"path", a.path}});
  return to;
}

std::string where(const HookProvider& p) {
  std::string text = p.active ? "process" : "";
  for (const Device d : p.devices) text += (text.empty() ? "" : ", ") + to_string(d);
  return text.empty() ? "-" : text;
}

void print(const HookListing& list, const std::vector<Announced>& waiting) {
  if (list.hooks.empty() && waiting.empty()) {
    fmt::print("No hooks are declared or provided.\n");
    return;
  }
  Table table(
      {{"hook"}, {"backend"}, {"priority", Align::kRight}, {"active"}, {"signature"}, {""}});
  for (const HookInfo& h : list.hooks) {
    std::string name = h.name;
    const std::string note = !h.problem.empty()    ? h.problem
                             : !h.declared         ? "nobody declares it"
                             : h.providers.empty() ? "nobody provides it"
                                                   : "";
    const Paint paint = h.problem.empty() ? Paint::kDim : Paint::kBad;
    if (h.providers.empty())
      table.add({{name, Paint::kBold}, {"-"}, {"-"}, {"-"}, {h.signature}, {note, paint}});
    for (const HookProvider& p : h.providers)
      table.add({{std::exchange(name, ""), Paint::kBold},
                 {p.backend},
                 {std::to_string(p.priority)},
                 {where(p), p.active ? Paint::kGood : Paint::kPlain},
                 {h.signature},
                 {note, paint}});
  }
  for (const Announced& a : waiting)
    table.add({{a.hook, Paint::kBold},
               {"-"},
               {"-"},
               {"-"},
               {"-"},
               {fmt::format("plugin {}, not opened", a.plugin), Paint::kDim}});
  fmt::print("{}", table.text());
}

int hooks(const Question& q) {
  RuntimeSettings settings;
  for (const std::string& p : q.paths) settings.plugins.paths.push_back(absolute(p));
  Runtime runtime(settings);
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kRefused &&
        std::find(settings.plugins.paths.begin(), settings.plugins.paths.end(), p.path) !=
            settings.plugins.paths.end())
      return fail(kFailed,
                  fmt::format("{} is refused: {}: {}", p.path, to_string(p.reason), p.detail));
  if (q.open || !q.activate.empty())
    for (const Announced& a : announced(runtime))
      if (Status s = runtime.plugins().load(a.path); !s.ok())
        return fail(kFailed, std::string(s.message()));
  runtime.hooks().set_strict(q.strict);
  for (const std::string& backend : q.activate)
    if (Status s = runtime.hooks().activate(backend); !s.ok())
      return fail(kFailed, std::string(s.message()));
  const HookListing list = runtime.hooks().list();
  const std::vector<Announced> waiting = announced(runtime);
  if (q.json)
    fmt::print("{}\n", to_json(list, waiting).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print(list, waiting);
  return kOk;
}

}  // namespace

void add_hooks(CLI::App& app, Action& action) {
  auto q = std::make_shared<Question>();
  CLI::App* c =
      app.add_subcommand("hooks", "The hooks that plugins bring, and how they fit together");
  c->add_option("PATH", q->paths, "Plugins, or directories of them, to look at as well");
  c->add_flag("--open", q->open, "Open the plugins that serve hooks, to see what they bring");
  c->add_option("--activate", q->activate, "Open them, and activate this backend for the process")
      ->allow_extra_args(false);
  c->add_flag("--strict", q->strict, "Activating hooks that nobody declares fails");
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Hooks are declared by programs, so that this command, which declares none, finds what "
      "plugins bring\n"
      "undeclared; a program lists its own by yard::Hooks::list().\n"
      "\n"
      "Examples:\n"
      "  yard hooks                       what the installed plugins announce\n"
      "  yard hooks --open ./acme.so      what this one brings: backends, signatures, priorities\n"
      "  yard hooks --activate acme       who would be asked first\n"
      "  yard hooks --json                {\"hooks\": [...], \"undeclared\", \"unprovided\", "
      "\"announced\"}");
  c->callback([q, &action] { action = [q] { return hooks(*q); }; });
}

}  // namespace yard::tool
