// SPDX-License-Identifier: Apache-2.0
// yard ps lists the processes that answer. yard status shows the rules and switches of one process.
#include <fmt/format.h>
#include <yard/inspect.h>

#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

double epoch_seconds(std::chrono::system_clock::time_point t) {
  return std::chrono::duration<double>(t.time_since_epoch()).count();
}

// All processes are asked at once. This is the time for an answer.
constexpr auto kPatience = std::chrono::milliseconds(200);

int list_processes(bool json) {
  struct Seen {
    InspectClient::Target target;
    Json hello;  // null without an answer
  };
  std::vector<Seen> all;
  for (InspectClient::Target& t : inspect_targets(kPatience)) {
    Json hello = value_at(parse_json(t.hello), "result");
    all.push_back({std::move(t), std::move(hello)});
  }
  if (json) {
    Json list = Json::array();
    for (const Seen& s : all)
      list.push_back({{"pid", s.target.pid},
                      {"program", s.target.program},
                      {"version", text_or_null(text_at(s.hello, "version"))},
                      {"started", epoch_seconds(s.target.started)},
                      {"user", value_at(s.hello, "user")},
                      {"runtimes", value_at(s.hello, "runtimes")},
                      {"socket", s.target.socket},
                      {"problem", text_or_null(s.target.problem)}});
    print_json({{"processes", std::move(list)}});
    return kOk;
  }
  Table table("pid>|program|version|up>|generation>|");
  for (const Seen& s : all) {
    const Json& runtimes = list_at(s.hello, "runtimes");
    table.add({{std::to_string(s.target.pid)},
               {std::filesystem::path(s.target.program).filename().string(), Paint::kBold},
               {s.hello.is_null() ? "-" : text_at(s.hello, "version")},
               {since_text(epoch_seconds(s.target.started))},
               {runtimes.empty() ? "-" : shown(value_at(runtimes[0], "generation"))},
               {s.target.problem, Paint::kBad}});
  }
  if (all.empty())
    print_out(
        "no process of yours answers\n"
        "  a process answers from its first call on, unless YARD_INSPECT=off or its settings say "
        "no\n");
  else
    print_out("{}", table.text());
  return kOk;
}

void print_status(int64_t pid, const Json& s) {
  const auto line = [](const char* name, const std::string& value, Paint p = Paint::kPlain) {
    print_out("{:<13}{}\n", name, paint(p, value));
  };
  line("process", std::to_string(pid));
  line("generation", shown(value_at(s, "generation")));
  line("policy", shown(value_at(s, "policy")));
  const Json& config = value_at(s, "config");
  const std::string path = text_at(config, "path");
  line("rules",
       path.empty() && count_at(config, "version") == 0
           ? "none"
           : fmt::format("version {} of {}, mode {}", shown(value_at(config, "version")),
                         path.empty() ? "the program" : path, shown(value_at(config, "mode"))));
  line("rollout", shown(value_at(s, "rollout")));
  std::string plugins;
  for (const Json& p : list_at(s, "loaded_plugins"))
    plugins += fmt::format("{}{} {}", plugins.empty() ? "" : ", ", text_at(p, "name"),
                           text_at(p, "version"));
  line("plugins", plugins.empty() ? "none" : plugins);
  const uint64_t open = count_at(s, "open_breakers");
  line("breakers", open == 0 ? "all closed" : fmt::format("{} not closed", open),
       open == 0 ? Paint::kGood : Paint::kBad);
  line("recording", shown(value_at(s, "recording")));
  line("verbose", shown(value_at(s, "verbose")));
  line("trace", shown(value_at(s, "trace")));
  const Json& change = value_at(s, "last_change");
  line("last change", change.is_object()
                          ? fmt::format("{}, {}{}", change_text(change), change_origin(change),
                                        flag_at(change, "undone") ? ", undone" : "")
                          : shown(change));
  const auto past = [](const Json& e, const std::string& text) {
    return fmt::format("{} ago: {}", since_text(value_at(e, "at")), text);
  };
  for (const Json& d : list_at(s, "drift"))
    line("drift", past(d, fmt::format("{}: {}", text_at(d, "what"), event_text(d))),
         Paint::kWarning);
  const Json& error = value_at(s, "last_error");
  line("last error", error.is_object()
                         ? past(error, text_at(error, "subject") + ": " + text_at(error, "reason"))
                         : "none");
}

}  // namespace

void add_ps(CLI::App& app, Action& action) {
  add_command<RemoteQuestion>(app, action, "ps", "List running processes that use Switchyard",
                              [](const RemoteQuestion& q) { return list_processes(q.json); });
}

void add_status(CLI::App& app, Action& action) {
  const auto run = [](const RemoteQuestion& q) {
    return ask(q, "status", Json::object(), print_status);
  };
  const auto [c, q] = add_command<RemoteQuestion>(
      app, action, "status", "Show what is in force in a running process", run);
  add_remote_options(*c, *q);
}

}  // namespace yard::tool
