// SPDX-License-Identifier: Apache-2.0
// The commands of live control: a table of names, arguments and functions; and the list of changes.
// docs/reference/inspect.md describes each. All of it runs on the server's thread, one command at a time.
#pragma once

#include <yard/result.h>

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "inspect/server.h"
#include "runtime/inspect.h"

namespace yard::runtime {

// Takes a change back.
using Undo = std::function<Status(const Inspected&)>;

struct Changed {
  std::string result = "{}";  // JSON
  Undo undo = {};             // null: it cannot be taken back
  bool bare = false;          // the result is all of the answer
};

// A change that a client made.
struct Change {
  uint64_t id = 0;
  std::chrono::system_clock::time_point at;
  inspect::Peer who;
  std::string program;  // of the client
  std::string command, args;
  uint64_t runtime = 0;
  Undo undo;
  bool undone = false;
};
// The last ones, oldest first.
inline constexpr size_t kMostChanges = 256;

std::string to_json(const Change& change);

// The arguments of a request, by name.
class CommandArgs {
 public:
  explicit CommandArgs(const base::YamlNode& args) : args_(args) {}

  // Each is an error if there is a value of another kind; `required`: also if there is none.
  Result<std::string> required(std::string_view name) const;
  Result<std::optional<std::string>> text(std::string_view name) const;
  Result<std::optional<int64_t>> number(std::string_view name) const;
  // A path that begins with '/': the directories of client and process may differ.
  Result<std::string> path(std::string_view name) const;
  // Null: none.
  Result<const base::YamlNode*> object(std::string_view name) const;

 private:
  const base::YamlNode* find(std::string_view name) const noexcept {
    const base::YamlNode* node = args_.find(name);
    return node != nullptr && node->kind != base::YamlNode::Kind::kNull ? node : nullptr;
  }
  const base::YamlNode& args_;
};

// Has one of the two functions. A query gives JSON.
struct Command {
  const char* name;
  std::vector<std::string> args;  // their names; others are errors
  Result<std::string> (*query)(const Inspected&, const CommandArgs&) = nullptr;
  Result<Changed> (*change)(const Inspected&, const CommandArgs&) = nullptr;
};
std::span<const Command> query_commands();
std::span<const Command> change_commands();

// Runs the command that a request names.
Result<std::string> handle_request(const inspect::Request& request, const inspect::Peer& who);

// For `status`: what is not of one runtime is added by the caller.
base::JsonObject status_of(const Inspected& subject);

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::runtime
