// SPDX-License-Identifier: Apache-2.0
// A runtime's part in live control: the process answers on one socket for all of its runtimes (src/inspect), from the first
// call on. Commands are in queries.cc and changes.cc.
#pragma once

#include <yard/runtime.h>
#include <yard/status.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "base/json.h"
#include "dispatch/core.h"
#include "inspect/server.h"
#include "rules/rules.h"

namespace yard::inspect {

// What commands work on.
struct Subject {
  Runtime& runtime;
  detail::Core& core;
  rules::Rules& rules;
};

// Any thread may call anything. A forked child answers on a socket of its own from its first call on.
class LiveControl {
 public:
  // The process starts to answer with the next call, unless it is privileged or not `allowed`.
  LiveControl(Subject subject, bool allowed);
  ~LiveControl() { end(); }
  LiveControl(const LiveControl&) = delete;
  LiveControl& operator=(const LiveControl&) = delete;

  // No command runs when this returns, and none will. With the last runtime the socket ends. Before any other part does.
  void end();

  // Runtime::shared(). Before its first call.
  void is_shared() noexcept { shared_.store(true, std::memory_order_relaxed); }
  // What the settings and the environment say now.
  void allow(bool on);

  // What the process knows of a runtime that answers.
  struct Entry;

 private:
  void join();
  void leave();

  const Subject subject_;
  const uint64_t id_;
  std::atomic<bool> shared_{false}, allowed_;
  std::optional<base::FirstUse> first_use_;  // last: it uses the rest
};

// ---- Commands: a table of names, arguments and functions; and the list of changes ----
//
// docs/reference/inspect.md describes each. All of it runs on the server's thread, one command at a time.

// Takes a change back.
using Undo = std::function<Status(const Subject&)>;

struct Changed {
  std::string result = "{}";  // JSON
  Undo undo = {};             // null: it cannot be undone
  bool bare = false;          // the result is all of the answer
};

// A change that a client made.
struct Change {
  uint64_t id = 0;
  std::chrono::system_clock::time_point at;
  Peer who;
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
  explicit CommandArgs(const Json& args) : args_(args) {}

  // Each is an error if there is a value of another kind; `required`: also if there is none.
  Result<std::string> required(std::string_view name) const;
  Result<std::optional<std::string>> text(std::string_view name) const;
  Result<std::optional<int64_t>> number(std::string_view name) const;
  // A path that begins with '/': the directories of client and process may differ.
  Result<std::string> path(std::string_view name) const;
  // Returns null if there is none.
  Result<const Json*> object(std::string_view name) const;

 private:
  const Json& args_;
};

// Has one of the two functions. A query gives JSON.
struct Command {
  const char* name;
  std::array<const char*, 4> args;  // their names, the rest null; others are errors
  Result<std::string> (*query)(const Subject&, const CommandArgs&) = nullptr;
  Result<Changed> (*change)(const Subject&, const CommandArgs&) = nullptr;
};
std::span<const Command> query_commands();
std::span<const Command> change_commands();

// Runs the command that a request names.
Result<std::string> handle_request(const Request& request, const Peer& who);

// As JSON; "null": there was none.
std::string last_change();

double seconds_since_1970(std::chrono::system_clock::time_point t) noexcept;

}  // namespace yard::inspect
