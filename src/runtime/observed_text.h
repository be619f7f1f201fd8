// SPDX-License-Identifier: Apache-2.0
// Texts that observers print or count. The text of a form of call is made once.
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

// A number that was not returned before.
uint64_t unique_number() noexcept;

// Texts by key; each lives until clear(). Threads find what they looked up lately without a lock.
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

  // The text of a key, made by `make` if it is new. May throw std::bad_alloc.
  Text& find(std::string_view key, const std::function<std::string()>& make);
  // The text that `make` makes of the CallSpec. `more` distinguishes several texts of one call.
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
  // For a forked child, which has no other threads.
  void clear();

 private:
  // Threads that make different calls seldom share a lock.
  struct alignas(64) Shard {
    base::Mutex lock{base::Rank::kOutputShard};
    std::unordered_map<std::string, Text, op::CallKeyHash, std::equal_to<>> texts;
  };
  uint64_t id_ = unique_number();
  std::array<Shard, 16> shards_;
  std::atomic<size_t> size_{0};
};

}  // namespace yard::runtime
