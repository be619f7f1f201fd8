// SPDX-License-Identifier: Apache-2.0
// The commands of live control (docs/reference/inspect.md). They run on the server's thread, one at a time.
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
  Undo undo = {};  // null if the change cannot be undone
  Json effect = object();
  std::string result =
      {};  // JSON that is the answer's result instead of the effect, unless it is empty
};

// Has one of the two functions. `args` fits the parameters. A change does nothing if `dry_run` is among them and set.
struct Command {
  const char* name;
  std::vector<Member> parameters;
  Result<Json> (*query)(const Subject&, const Value& args) = nullptr;
  Result<Changed> (*change)(const Subject&, const Value& args) = nullptr;
};
std::vector<Command> query_commands();   // queries.cc
std::vector<Command> change_commands();  // changes.cc
std::vector<Command> plugin_commands();  // plugins.cc

// Which kernel takes over from which, for how many kinds of calls, and the mean time of a call with each where it is known.
// plugins.cc
Json takeover(const Subject& s, const std::vector<dispatch::MovedCall>& moved);

Result<std::string> handle_request(const Request& request, const Peer& who);

// The last change, or null.
Json last_change();
double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
