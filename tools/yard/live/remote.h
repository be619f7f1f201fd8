// SPDX-License-Identifier: Apache-2.0
// Commands for a running process: finding it, asking it, and its answers. docs/reference/inspect.md has the protocol.
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "json.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace yard::tool {

// A connection to a process.
class Remote {
 public:
  // Errors tell what is wrong: no such process, another user's, one that does not answer. `pid` 0: the only process of
  // this user that answers; an error names them if there are several.
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

// What every command for a running process is given.
struct RemoteQuestion {
  int64_t pid = 0;  // 0: the only process
  bool json = false;
};
// Adds --pid and --json; `to` must outlive the parse.
void add_remote_options(CLI::App& command, RemoteQuestion& to);
// --pid alone, for commands that also work without a process.
CLI::Option* add_pid_option(CLI::App& command, int64_t& to, const std::string& help);

// Connects, sends one request and shows its result: as JSON with the process's number, or as `show` prints it. The exit code.
int ask(const RemoteQuestion& q, const std::string& command, const Json& args,
        const std::function<void(int64_t pid, const Json& result)>& show);

// ---- Parts of answers as text ----

// "on", "7", "a=b, c=d"; "none" for null and what is empty.
std::string shown(const Json& value);
// "12 s", "3 min": the age of a time in seconds since 1970; "-" without one.
std::string since_text(const Json& at);
// "deny kernel=vendor.acme when=hidden=5120", of an entry of `changes`; and by whom and when.
std::string change_text(const Json& change);
std::string change_origin(const Json& change);

}  // namespace yard::tool
