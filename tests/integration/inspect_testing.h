// SPDX-License-Identifier: Apache-2.0
// Helpers for tests of live control: a runtime without configuration, and requests to its socket
// from the same process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <yard/yard.h>

#include <string>
#include <vector>

#include "testing.h"

namespace yard::testing {

// A runtime with an op that two kernels serve; vendor.acme is the first choice.
struct InspectWorld {
  Runtime runtime;
  std::vector<float> in = std::vector<float>(1 << 16, 1.0f), out = std::vector<float>(1 << 16);

  explicit InspectWorld(const RuntimeSettings& settings = {}) : runtime(settings) {
    static int32_t (*const ok)(yard_call_t*, const yard_value_t*, uint32_t) =
        [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
    yard_kernel_t a = kernel_of("norm", "vendor.acme", 0), b = kernel_of("norm", "default.b", 0);
    a.run = ok, a.priority = 20, b.run = ok, b.priority = 10;
    Changes c;
    c.add_backend(backend_of("test"))
        .add_op(op_of("norm(out!: f32[rows, hidden], x: f32[rows, hidden])"))
        .add_kernel(a)
        .add_kernel(b);
    runtime.apply(std::move(c)).or_throw();
  }
  // Makes a call and returns the id of the kernel that ran.
  std::string call(int64_t hidden = 64, const std::string& tenant = "") {
    Options o;
    ResultRecord record;
    o.result = &record;
    if (!tenant.empty()) o.labels["tenant"] = tenant;
    const Status s = runtime.call("norm",
                                  {TensorView(out.data(), DType::f32, {1, hidden}),
                                   TensorView(in.data(), DType::f32, {1, hidden})},
                                  o);
    return s.ok() ? std::string(record.kernel) : s.to_string();
  }
};

inline std::string ask(InspectClient& client, const std::string& command,
                       const std::string& args = "{}") {
  auto answer =
      client.request(R"({"v": 1, "id": 3, "command": ")" + command + R"(", "args": )" + args + "}");
  return answer.ok() ? *answer : answer.status().to_string();
}
inline std::string ask(const std::string& command, const std::string& args = "{}") {
  auto client = InspectClient::connect(::getpid());
  return client.ok() ? ask(*client, command, args) : client.status().to_string();
}

}  // namespace yard::testing
