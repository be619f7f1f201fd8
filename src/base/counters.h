// SPDX-License-Identifier: Apache-2.0
// Counters to which each thread adds in its own cache line.
//
//   base::Counter ran;              // outlives its users
//   base::count(thread, ran.id());  // on the hot path: three instructions and a store
//   uint64_t n = ran.total();
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "base/thread_record.h"

namespace yard::base {

using detail::count;
using detail::kPerChunk;
inline constexpr uint32_t kMaxChunks = 512;
// The id of counters beyond kPerChunk * kMaxChunks, which stay 0.
inline constexpr uint32_t kNoCounter = 0;

// Destroy a counter after its last count(), because its id is then reused.
class Counter {
 public:
  Counter();
  ~Counter();
  Counter& operator=(Counter&&) = delete;

  uint32_t id() const noexcept { return id_; }
  // Returns the sum over all threads, past and present, since construction.
  uint64_t total() const noexcept;

 private:
  uint32_t id_;
  uint64_t base_;                     // the count that earlier counters with this id left
  const uint64_t process_ = forks();  // a forked child counts from 0
};

void restart_counters() noexcept;

}  // namespace yard::base
