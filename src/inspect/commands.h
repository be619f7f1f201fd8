// SPDX-License-Identifier: Apache-2.0
// The commands of live control: a table of names, arguments and functions (queries.cc, changes.cc), and the list of changes
// that clients made. docs/reference/inspect.md describes each command. All of this runs on the server's thread, one command
// at a time.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "base/json.h"
#include "inspect/live_control.h"
#include "inspect/server.h"

namespace yard::inspect {

// An argument that a command takes.
struct Parameter {
  // kNeededText is not empty. So is kPath, which begins with '/', because the folders of client and process may differ.
  enum class Kind : uint8_t { kText, kNeededText, kPath, kNumber, kObject };
  const char* name = nullptr;
  Kind kind = Kind::kText;
};

// Takes a change back.
using Undo = std::function<Status(const Subject&)>;

struct Changed {
  std::string result = "{}";  // JSON
  Undo undo = {};             // null if it cannot be undone
  bool bare = false;          // the result is all of the answer
};

// Has one of the two functions. A query returns JSON. `args` fits the parameters.
struct Command {
  const char* name;
  Parameter parameters[4];
  Result<std::string> (*query)(const Subject&, const Json& args) = nullptr;
  Result<Changed> (*change)(const Subject&, const Json& args) = nullptr;
};
std::span<const Command> query_commands();
std::span<const Command> change_commands();

// Runs the command that a request names.
Result<std::string> handle_request(const Request& request, const Peer& who);

// The last change as JSON, or "null".
std::string last_change();

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
