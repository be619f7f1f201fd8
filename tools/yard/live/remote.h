// SPDX-License-Identifier: Apache-2.0
// Finding a running process, asking it, and its answers. docs/reference/inspect.md has the
// protocol.
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace yard::tool {

// A connection to a process.
class Remote {
 public:
  // Errors say what is wrong: there is no such process, it is another user's, or it does not
  // answer. If `pid` is 0, connects to the only process of this user that answers.
  static Result<Remote> connect(int64_t pid,
                                std::chrono::nanoseconds timeout = std::chrono::seconds(10));

  // The result of a command, or its error.
  Result<Json> request(const std::string& command, const Json& args = Json::object());

  int64_t pid() const { return pid_; }

 private:
  Remote(int64_t pid, InspectClient client) : pid_(pid), client_(std::move(client)) {}
  int64_t pid_;
  uint64_t last_id_ = 0;
  InspectClient client_;
};

// The options of every command for a running process.
struct RemoteQuestion {
  int64_t pid = 0;  // 0 for the only process
  bool json = false;
};
// Adds --pid and --json; `to` must outlive the parse.
void add_remote_options(CLI::App& command, RemoteQuestion& to);
// --pid alone, for commands that also work without a process.
CLI::Option* add_pid_option(CLI::App& command, int64_t& to, const std::string& help);

// Connects, sends one request and shows its result as JSON or with `show`. Returns the exit code.
int ask(const RemoteQuestion& q, const std::string& command, const Json& args,
        const std::function<void(int64_t pid, const Json& result)>& show);

// The same for commands that can ask several processes at once.
struct ManyQuestion {
  std::vector<int64_t> pids;
  bool all = false, json = false;
};
void add_many_options(CLI::App& command, ManyQuestion& to);
// With one process this is ask(). The JSON of several is a list `processes`, each with its result or
// its error. Returns the largest exit code.
int ask_many(const ManyQuestion& q, const std::string& command, const Json& args,
             const std::function<void(int64_t pid, const Json& result)>& show);

// The arguments of a request. Empty texts are left out.
Json arguments(std::initializer_list<std::pair<const char*, std::string>> given);

// ---- Parts of answers as text ----

// Says what was changed, and how to take it back. plugins.cc
void print_changed(int64_t pid, const Json& result, const std::string& what);
// Says which kernels have taken over, and at what cost. plugins.cc
void print_takeover(const Json& effect);

// "on", "7", "a=b, c=d", and "none" for null and for empty values.
std::string shown(const Json& value);
// The age of a time in seconds since 1970: "12 s", "3 min", and "-" without a time.
std::string since_text(const Json& at);
// An entry of `events` as "breaker_opened  softmax vendor.acme: bad firmware, by user 7".
std::string event_text(const Json& event);
// An entry of `changes` as "deny kernel=vendor.acme when=hidden=5120", and by whom and when.
std::string change_text(const Json& change);
std::string change_origin(const Json& change);
// The line that says how a change is undone, from the result of the change.
std::string undo_hint(int64_t pid, const Json& result);

}  // namespace yard::tool
