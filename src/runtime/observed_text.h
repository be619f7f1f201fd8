// SPDX-License-Identifier: Apache-2.0
// What observers print of a call: made once for each form of call and kernel.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "op/call.h"
#include "registry/interfaces.h"

namespace yard::runtime {

// A key for the thread to fill in and use before it calls anything that does the same. It keeps its memory.
op::CallKey& scratch_key();

// Texts by key; each lives as long as this. Threads find what they looked up lately without a lock.
class ObservedTexts {
 public:
  static constexpr size_t kMost = 65536;  // about
  ObservedTexts();

  // The text of a key, made by `make` if it is new. Beyond kMost a text that says so. May throw std::bad_alloc.
  const std::string& find(std::string_view key, const std::function<std::string()>& make);
  // The text that `make` makes of the call's CallSpec, for one of the kernels that ran.
  template <class Make>
  const std::string& find(const registry::ObservedCall& call, std::string_view kernel,
                          const Make& make) {
    op::CallKey& key = scratch_key();
    key.set(call.program, call.args, call.flags);
    key.add(call.index), key.add(call.labels), key.add(kernel);
    return find(key.bytes(), [&] {
      const op::Call captured = op::Call::capture(call.program, call.args, call.flags, call.labels);
      return make(captured.to_spec(call.program));
    });
  }

 private:
  struct alignas(64) Shard {
    base::Mutex lock{base::Rank::kOutputShard};
    std::unordered_map<std::string, std::string, op::CallKeyHash, std::equal_to<>> texts;
  };
  const uint64_t id_;  // no other has or had it
  std::array<Shard, 16> shards_;
};

}  // namespace yard::runtime
