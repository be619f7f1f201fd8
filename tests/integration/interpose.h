// SPDX-License-Identifier: Apache-2.0
// Counts a program's uses of the C library: memory, locks, system calls, clocks, the environment.
// The test program defines the functions itself, so the library finds these first. This does not
// work with a sanitizer, which defines them itself.
#pragma once

#include <cstdint>
#include <ostream>

namespace yard::testing {

struct Counts {
  uint64_t allocations = 0;  // malloc and its kin, operator new
  uint64_t frees = 0;
  uint64_t locks = 0;     // mutexes, read-write locks, spin locks, condition variables
  uint64_t syscalls = 0;  // syscall(): futex, membarrier
  uint64_t clocks = 0;
  uint64_t environment = 0;  // getenv
  bool operator==(const Counts&) const = default;
};

inline void PrintTo(const Counts& c, std::ostream* to) {
  *to << c.allocations << " allocations, " << c.frees << " frees, " << c.locks << " locks, "
      << c.syscalls << " system calls, " << c.clocks << " clocks, " << c.environment
      << " variables";
}

// Only uses by this thread are counted.
void begin_counting() noexcept;
Counts end_counting() noexcept;

template <class F>
Counts count(const F& f) {
  begin_counting();
  f();
  return end_counting();
}

}  // namespace yard::testing
