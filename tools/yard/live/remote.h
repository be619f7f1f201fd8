// SPDX-License-Identifier: Apache-2.0
// Finds a running process, sends it requests and shows its answers. docs/reference/inspect.md
// describes the protocol.
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

class Remote {
 public:
  // Fails if there is no such process, if the process belongs to another user, or if it does not
  // answer. If `pid` is 0, connects to the only process of this user that answers.
  static Result<Remote> connect(int64_t pid,
                                std::chrono::nanoseconds timeout = std::chrono::seconds(10));

  Result<Json> request(const std::string& command, const Json& args = Json::object());

  int64_t pid() const { return pid_; }

 private:
  Remote(int64_t pid, InspectClient client) : pid_(pid), client_(std::move(client)) {}
  int64_t pid_;
  uint64_t last_id_ = 0;
  InspectClient client_;
};

struct RemoteQuestion {
  int64_t pid = 0;  // 0 selects the only process that answers
  bool json = false;
};
// Adds --pid and --json; `to` must outlive the parse.
void add_remote_options(CLI::App& command, RemoteQuestion& to);
// Adds only --pid, for commands that also work without a process.
CLI::Option* add_pid_option(CLI::App& command, int64_t& to, const std::string& help);

// Connects, sends one request, and shows the result as JSON or with `show`. Returns the exit code.
int ask(const RemoteQuestion& q, const std::string& command, const Json& args,
        const std::function<void(int64_t pid, const Json& result)>& show);

// The options of commands that can ask several processes at once.
struct ManyQuestion {
  std::vector<int64_t> pids;
  bool all = false, json = false;
};
void add_many_options(CLI::App& command, ManyQuestion& to);
// Like ask() for one process. For several, the JSON has a list `processes` with the result or the
// error of each. Returns the largest exit code.
int ask_many(const ManyQuestion& q, const std::string& command, const Json& args,
             const std::function<void(int64_t pid, const Json& result)>& show);

// Returns the arguments of a request, without those whose text is empty.
Json arguments(std::initializer_list<std::pair<const char*, std::string>> given);

// Prints what was changed and how to undo the change. Defined in plugins.cc.
void print_changed(int64_t pid, const Json& result, const std::string& what);
// Prints which kernels have taken over and how their times compare. Defined in plugins.cc.
void print_takeover(const Json& effect);

// Formats a value: "on", "7", "a=b, c=d". Null and empty values give "none".
std::string shown(const Json& value);
// Formats the age of a time in seconds since 1970: "12 s", "3 min". Returns "-" without a time.
std::string since_text(const Json& at);
// Formats an entry of `events`: "breaker_opened  softmax vendor.acme: bad firmware, by user 7".
std::string event_text(const Json& event);
// Formats an entry of `changes` ("deny kernel=vendor.acme when=hidden=5120"), and its origin.
std::string change_text(const Json& change);
std::string change_origin(const Json& change);
// Returns the line that says how to undo a change. `result` is the result of the change.
std::string undo_hint(int64_t pid, const Json& result);

}  // namespace yard::tool
