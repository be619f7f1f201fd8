// SPDX-License-Identifier: Apache-2.0
// The socket that a process answers on, and the thread that reads requests and writes answers, with limits and deadlines.
// What a command means is up to the handler.
//
// The thread sleeps without a timeout unless a client is connected. It takes no lock while it talks to a client, and no
// client can hold it up: nothing blocks, and what takes too long is closed. A handler holds up other clients only.
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
  // From the first byte of a request to its last; for taking an answer; without a request.
  std::chrono::nanoseconds request_time = std::chrono::seconds(5);
  std::chrono::nanoseconds answer_time = std::chrono::seconds(30);
  std::chrono::nanoseconds idle_time = std::chrono::seconds(60);
};

// Called on the server's thread, one request at a time. The result is JSON.
using Handler = std::function<Result<std::string>(const Request&, const Peer&)>;

class Server {
 public:
  // In a directory of make_directory(). A forked child has neither socket nor thread of its parent.
  static Result<std::unique_ptr<Server>> start(const std::string& directory, Handler handler,
                                               const Limits& limits = {});
  // Removes the socket and waits for the thread.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& path() const noexcept;

 private:
  class Loop;
  explicit Server(std::shared_ptr<Loop> loop);
  const std::shared_ptr<Loop> loop_;
  base::TaskThread thread_;
};

}  // namespace yard::inspect
