// SPDX-License-Identifier: Apache-2.0
// Texts that observers print or count. The text of each form of call is made once.
#pragma once

#include <yard/trace.h>

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

uint64_t unique_number() noexcept;

// Texts by key. A text lives until clear(). A thread finds its recent texts without a lock.
class ObservedTexts {
 public:
  static constexpr size_t kMost = kMostRecorded;

  struct Text {
    explicit Text(std::string t) : text(std::move(t)) {}
    const std::string text;
    std::atomic<uint64_t> count{0};  // for the observer
  };

  // Stands for all texts beyond kMost.
  Text rest{"(one of too many different calls)"};

  // Returns the text of a call, made from its CallSpec. `more` tells several texts of it apart. May
  // throw std::bad_alloc.
  Text& find(const registry::ObservedCall& call, std::string_view more,
             const std::function<std::string(const op::CallSpec&)>& make);

  size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  // Calls f(text) for each text, under a lock.
  template <class F>
  void for_each(const F& f) {
    for (Shard& s : shards_) {
      const std::lock_guard lock(s.lock);
      for (const auto& [key, text] : s.texts) f(text);
    }
  }
  // Call this in a forked child only, because it takes no lock.
  void clear();

 private:
  // Shards keep threads that make different calls from sharing a lock.
  struct alignas(64) Shard {
    base::Mutex lock{base::Rank::kOutputShard};
    std::unordered_map<std::string, Text, op::CallKeyHash, std::equal_to<>> texts;
  };
  uint64_t id_ = unique_number();
  std::array<Shard, 16> shards_;
  std::atomic<size_t> size_{0};
};

}  // namespace yard::runtime
