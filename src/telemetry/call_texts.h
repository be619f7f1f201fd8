// SPDX-License-Identifier: Apache-2.0
// Texts of calls, made once for each form of call: what observers of every call print.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "op/call.h"

namespace yard::telemetry {

// Texts by key; each lives as long as this. Threads find what they looked up lately without a lock. Not for use in a
// forked child of the process that made it.
class CallTexts {
 public:
  static constexpr size_t kMost = 65536;
  CallTexts();
  CallTexts(const CallTexts&) = delete;
  CallTexts& operator=(const CallTexts&) = delete;

  // The text of a key, made by `make` if it is new. Beyond kMost: a text that says so. May throw std::bad_alloc.
  const std::string& find(std::string_view key, const std::function<std::string()>& make);

 private:
  struct alignas(64) Shard {
    std::mutex lock;
    std::unordered_map<std::string, std::string, op::CallKeyHash, std::equal_to<>> texts;
  };
  const uint64_t id_;  // no other has or had it
  std::array<Shard, 16> shards_;
  std::atomic<size_t> count_{0};
};

}  // namespace yard::telemetry
