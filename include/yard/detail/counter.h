// SPDX-License-Identifier: Apache-2.0
// Counters of a thread, by number (src/base/counters.h). Not for direct use.
#pragma once

#include <yard/detail/guard.h>

namespace yard::detail {

inline constexpr uint32_t kPerChunk = 128;
YARD_API ThreadHead::Value& make_counter(ThreadHead& thread, uint32_t id) noexcept;
// This thread's part of a counter, for the life of the thread in this process.
[[gnu::always_inline]] inline ThreadHead::Value& counter(ThreadHead& thread, uint32_t id) noexcept {
  if (thread.counters != nullptr) [[likely]] {
    if (auto* chunk = thread.counters[id / kPerChunk].load(std::memory_order_relaxed)) [[likely]]
      return chunk[id % kPerChunk];
  }
  return make_counter(thread, id);
}
inline void count(ThreadHead& thread, uint32_t id) noexcept { count(counter(thread, id)); }

}  // namespace yard::detail
