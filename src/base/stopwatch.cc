// SPDX-License-Identifier: Apache-2.0
#include "base/stopwatch.h"

#include <atomic>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace yard::base {
namespace {

[[maybe_unused]] uint64_t steady_ns() noexcept {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

#if defined(__x86_64__)

// Both clocks at one moment, which is `width` ticks long.
struct Reading {
  uint64_t ticks = 0, width = 0, ns = 0;
};
Reading read_both() noexcept {
  Reading r;
  r.ticks = __rdtsc();
  r.ns = steady_ns();
  r.width = __rdtsc() - r.ticks;
  return r;
}

// How long a tick of the time stamp counter is. 0: it does not tick evenly, and the steady clock is read instead.
double measure_tick() noexcept {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr uint32_t kInvariant = 1u << 8;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & kInvariant) == 0) return 0;
  // Long beside the time that a reading takes.
  constexpr uint64_t kSpanNs = 50'000;
  for (int tries = 0; tries < 10; ++tries) {
    const Reading from = read_both();
    Reading to;
    do {
      to = read_both();
    } while (to.ns - from.ns < kSpanNs);
    // The thread may have been stopped within a reading: then its two clocks do not belong together.
    const uint64_t ticks = to.ticks - from.ticks;
    if (ticks > 0 && (from.width + to.width) < ticks / 100)
      return static_cast<double>(to.ns - from.ns) / static_cast<double>(ticks);
  }
  return 0;
}

// Several threads may measure at once; any result will do.
double tick_ns() noexcept {
  static std::atomic<double> known{-1};
  double ns = known.load(std::memory_order_relaxed);
  if (ns < 0) [[unlikely]]
    known.store(ns = measure_tick(), std::memory_order_relaxed);
  return ns;
}

#endif

}  // namespace

#if defined(__aarch64__)

uint64_t Stopwatch::ticks() noexcept {
  uint64_t t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
}
double Stopwatch::ns_per_tick() noexcept {
  uint64_t per_second;
  asm("mrs %0, cntfrq_el0" : "=r"(per_second));
  return per_second != 0 ? 1e9 / static_cast<double>(per_second) : 0;
}

#elif defined(__x86_64__)

uint64_t Stopwatch::ticks() noexcept { return tick_ns() > 0 ? __rdtsc() : steady_ns(); }
double Stopwatch::ns_per_tick() noexcept { return tick_ns() > 0 ? tick_ns() : 1; }

#else

uint64_t Stopwatch::ticks() noexcept { return steady_ns(); }
double Stopwatch::ns_per_tick() noexcept { return 1; }

#endif

}  // namespace yard::base
