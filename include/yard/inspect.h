// SPDX-License-Identifier: Apache-2.0
// InspectClient inspects and steers a process with a Runtime through the socket of that process.
//
//   auto client = yard::InspectClient::connect(pid).value();
//   std::string answer = client.request(R"({"v": 1, "id": 1, "command": "status"})").value();
//
// See docs/reference/inspect.md. Only one thread at a time may use an InspectClient.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <string_view>
#include <vector>

namespace yard {

inline constexpr int kInspectVersion = 1;                        // `v` of requests and answers
inline constexpr size_t kInspectMostRequest = size_t{64} << 10;  // bytes, without the newline
inline constexpr size_t kInspectMostAnswer = size_t{64} << 20;

class YARD_API InspectClient {
 public:
  struct Target {
    int64_t pid = 0;
    std::string program, socket;  // paths
    std::chrono::system_clock::time_point started;
    std::string hello = {};    // the answer to `hello`; empty if none came in time
    std::string problem = {};  // why no answer came; empty if the process answers
  };

  // Connects to a process of this user; root may connect to any. `timeout` also limits each answer.
  // Fails with kNotFound without an answer, or kInvalidArgument if another user owns the socket.
  static Result<InspectClient> connect(int64_t pid,
                                       std::chrono::nanoseconds timeout = std::chrono::seconds(10));

  // Sends a line and returns the answer, whose `ok` may be false. Fails with kDeadline.
  Result<std::string> request(std::string_view json);

 private:
  InspectClient(int64_t pid, std::chrono::nanoseconds timeout) noexcept
      : pid_(pid), timeout_(timeout) {}
  int64_t pid_;
  std::chrono::nanoseconds timeout_;
};

// Lists the processes of this user, even if they do not answer. Removes sockets of ended processes.
YARD_API std::vector<InspectClient::Target> inspect_targets(
    std::chrono::nanoseconds timeout = std::chrono::seconds(1));

}  // namespace yard
