// SPDX-License-Identifier: Apache-2.0
// Seeing and steering a process from outside: the client of the socket that every process with a Runtime answers on.
//
//   auto client = yard::InspectClient::connect(pid).value();
//   std::string answer = client.request(R"({"v": 1, "id": 1, "command": "status"})").value();
//
// docs/reference/inspect.md has the commands and the protocol. Functions may be called from any thread; an InspectClient by
// one at a time.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <memory>
#include <vector>

namespace yard {

// The version of the protocol, `v` of requests and answers.
inline constexpr int kInspectVersion = 1;
// Bytes of a line without its newline.
inline constexpr size_t kInspectMostRequest = size_t{64} << 10,
                        kInspectMostAnswer = size_t{64} << 20;

// A process that answers.
struct InspectTarget {
  int64_t pid = 0;
  std::string program;  // path of its executable
  std::string socket;   // path
  std::chrono::system_clock::time_point started;
};

// The processes of this user that answer within a second, by number. Removes sockets of processes that are gone.
YARD_API std::vector<InspectTarget> inspect_targets();

class YARD_API InspectClient {
 public:
  // To a process of this user; root may name any. kNotFound if it does not answer on a socket, kInvalidArgument if the
  // socket is not that of its user. `timeout` is for connecting and for each answer.
  static Result<InspectClient> connect(int64_t pid,
                                       std::chrono::nanoseconds timeout = std::chrono::seconds(10));
  InspectClient(InspectClient&& other) noexcept;
  InspectClient& operator=(InspectClient&& other) noexcept;
  ~InspectClient();

  // Sends a request, which has no newline, and returns the answer, which may be an error of the command: its `ok` tells.
  // kDeadline if there is none in time. The next request opens the connection again if it has been closed.
  Result<std::string> request(std::string_view json);

 private:
  struct Parts;
  explicit InspectClient(std::unique_ptr<Parts> parts) noexcept;
  std::unique_ptr<Parts> parts_;
};

}  // namespace yard
