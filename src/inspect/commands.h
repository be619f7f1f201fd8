// SPDX-License-Identifier: Apache-2.0
// The commands of live control (docs/reference/inspect.md), which run on the server's thread.
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
  std::string result = {};  // unless empty, the JSON to answer instead of the effect
};

// A command has either a query or a change. `args` has been checked against the parameters. If the
// argument `dry_run` is set, a change has no effect.
struct Command {
  const char* name;
  std::vector<Member> parameters;
  Result<Json> (*query)(const Subject&, const Value& args) = nullptr;
  Result<Changed> (*change)(const Subject&, const Value& args) = nullptr;
};
std::vector<Command> query_commands();   // queries.cc
std::vector<Command> change_commands();  // changes.cc
std::vector<Command> plugin_commands();  // plugins.cc

// Returns, for each kernel that takes over from another, how many kinds of calls move and the known
// mean times of a call with both kernels. Defined in plugins.cc.
Json takeover(const Subject& s, const std::vector<dispatch::MovedCall>& moved);

Result<std::string> handle_request(const Request& request, const Peer& who);

Json last_change();
double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
