// SPDX-License-Identifier: Apache-2.0
// The socket that a process answers on, and the thread that reads requests and writes answers.
//
// A client cannot hold up the thread: nothing blocks, and slow connections are closed. A running
// command delays the other clients only.
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/tasks.h"
#include "inspect/protocol.h"
#include "inspect/socket.h"

namespace yard::inspect {

struct Limits {
  size_t request = kInspectMostRequest, answer = kInspectMostAnswer;  // bytes
  size_t connections = 16;
  // The time to send a request after its first byte, the time to take an answer, and the time that
  // a connection may be idle.
  std::chrono::nanoseconds request_time = std::chrono::seconds(5),
                           answer_time = std::chrono::seconds(30),
                           idle_time = std::chrono::seconds(60);
};

// The server calls the handler on its thread, one request at a time. The result must be JSON.
using Handler = std::function<Result<std::string>(const Request&, const Peer&)>;

// The destructor removes the socket and waits for the thread.
class Server {
 public:
  // Creates the directory if it is missing. A forked child inherits neither socket nor thread.
  static Result<std::unique_ptr<Server>> start(const std::string& directory, Handler handler,
                                               const Limits& limits = {});

 private:
  explicit Server(std::function<void()> interrupt)
      : thread_("yard-inspect", {.interrupt = std::move(interrupt)}) {}
  base::TaskThread thread_;
};

}  // namespace yard::inspect
