// SPDX-License-Identifier: Apache-2.0
// The commands of live control, and the list of changes that clients made. docs/reference/inspect.md describes each
// command. All of this runs on the server's thread, one command at a time.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "inspect/live_control.h"
#include "inspect/server.h"

namespace yard::inspect {

using Undo = std::function<Status(const Subject&)>;

struct Changed {
  std::string result = "{}";  // JSON
  Undo undo = {};             // null if the change cannot be undone
  bool bare = false;          // the result is all of the answer
};

// Has one of the two functions. A query returns JSON. `args` fits the parameters.
struct Command {
  const char* name;
  std::vector<Member> parameters;
  Result<std::string> (*query)(const Subject&, const Json& args) = nullptr;
  Result<Changed> (*change)(const Subject&, const Json& args) = nullptr;
};
std::vector<Command> query_commands();   // queries.cc
std::vector<Command> change_commands();  // changes.cc

Result<std::string> handle_request(const Request& request, const Peer& who);

// The last change as JSON, or "null".
std::string last_change();

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
