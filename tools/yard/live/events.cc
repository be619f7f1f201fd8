// SPDX-License-Identifier: Apache-2.0
// yard events: shows events in a running process.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <thread>

#include "arguments.h"
#include "commands.h"
#include "live/remote.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr auto kPause = std::chrono::milliseconds(500);

struct EventsQuestion : RemoteQuestion {
  bool follow = false;
};

void print_event(const Json& e, bool json) {
  if (json)
    write_out(e.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
  else
    print_out("{:>4}  {}  {}\n", shown(value_at(e, "id")), text_at(e, "time"), event_text(e));
}

int follow_events(const EventsQuestion& q) {
  auto remote = need(Remote::connect(q.pid));
  for (uint64_t last = 0;; std::this_thread::sleep_for(kPause)) {
    const auto result = remote.request("events", {{"after", last}});
    if (!result.ok())
      return fail(kFailed, Status(result.status())
                               .note(fmt::format("process {} has ended, or does "
                                                 "not answer",
                                                 remote.pid())));
    for (const Json& e : list_at(*result, "events")) {
      print_event(e, q.json);
      last = count_at(e, "id");
    }
    flush_output();
  }
}

int show_events(const EventsQuestion& q) {
  if (q.follow) return follow_events(q);
  return ask(q, "events", Json::object(), [](int64_t, const Json& result) {
    for (const Json& e : list_at(result, "events")) print_event(e, false);
    if (list_at(result, "events").empty()) print_out("no events\n");
  });
}

}  // namespace

void add_events(CLI::App& app, Action& action) {
  const auto [c, q] = add_command<EventsQuestion>(
      app, action, "events", "List what happened in a running process", show_events);
  c->add_flag("-f,--follow", q->follow, "Go on with new events, until the process ends");
  add_remote_options(*c, *q);
}

}  // namespace yard::tool
