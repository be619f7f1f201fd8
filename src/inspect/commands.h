// SPDX-License-Identifier: Apache-2.0
// The commands of live control, which docs/reference/inspect.md describes. All of this runs on the server's thread, one
// command at a time.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/events.h"
#include "dispatch/policy_changes.h"
#include "inspect/live_control.h"
#include "inspect/protocol.h"
#include "inspect/socket.h"

namespace yard::inspect {

using Undo = std::function<Status(const Subject&)>;

struct Changed {
  Json effect = Json::object();
  Undo undo = {};         // null if the change cannot be undone
  std::string text = {};  // unless it is empty, the result is this JSON instead of the effect
  bool dry_run = false;   // nothing has been changed
};

// Has one of the two functions. `args` fits the parameters.
struct Command {
  const char* name;
  std::vector<Member> parameters;
  Result<Json> (*query)(const Subject&, const Json& args) = nullptr;
  Result<Changed> (*change)(const Subject&, const Json& args) = nullptr;
};
std::vector<Command> query_commands();   // queries.cc
std::vector<Command> change_commands();  // changes.cc
std::vector<Command> plugin_commands();  // plugins.cc

// Which kernel takes over from which, for how many kinds of calls, and the mean times of both where they are known.
// plugins.cc
Json takeover(const Subject& s, const std::vector<dispatch::MovedCall>& moved);

Result<std::string> handle_request(const Request& request, const Peer& who);

// The last change, or null.
Json last_change();
Json event_json(const base::Event& event);

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
