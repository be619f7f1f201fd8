// SPDX-License-Identifier: Apache-2.0
// The socket that a process answers on, and the thread that reads requests and writes answers.
//
// No client can hold the thread up: nothing blocks, and connections that take too long are closed. A command holds up other
// clients only.
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
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
  // From the first byte of a request to its last, for taking an answer, and without a request.
  std::chrono::nanoseconds request_time = std::chrono::seconds(5),
                           answer_time = std::chrono::seconds(30),
                           idle_time = std::chrono::seconds(60);
};

// Called on the server's thread, one request at a time. The result is JSON.
using Handler = std::function<Result<std::string>(const Request&, const Peer&)>;

// Its end removes the socket and waits for the thread.
class Server {
 public:
  // Makes the directory if there is none. A forked child has neither socket nor thread of its parent.
  static Result<std::unique_ptr<Server>> start(const std::string& directory, Handler handler,
                                               const Limits& limits = {});

 private:
  explicit Server(std::function<void()> interrupt)
      : thread_("yard-inspect", {.interrupt = std::move(interrupt)}) {}
  base::TaskThread thread_;
};

}  // namespace yard::inspect
