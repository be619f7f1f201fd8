// SPDX-License-Identifier: Apache-2.0
// Cost estimates of kernels from a measurement of the machine that is made once in a process.
//
//   double measure() {                                  // nanoseconds for each byte
//     static char from[1 << 18], to[1 << 18];
//     return yard::plugin::best_ns([] { std::memcpy(to, from, sizeof to); }) / sizeof to;
//   }
//   double cost(void*, const int64_t* fields, uint32_t) {
//     return fields[0] * yard::plugin::measured_once<measure>();
//   }
//
// Any thread may call these; they allocate nothing.
#pragma once

#include <yard/plugin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <thread>

namespace yard::plugin {

// Nanoseconds of the fastest of a few runs of f: what disturbs a run only makes it longer. At least 1.
template <class F>
double best_ns(const F& f, int runs = 3) {
  using Clock = std::chrono::steady_clock;
  double best = 1e12;
  for (int run = 0; run < runs; ++run) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return std::max(best, 1.0);
}

// The result of kMeasure(), which runs at the first call in the process. It is not a function-local static, for which a
// forked child may wait for ever: std::call_once starts again there.
template <auto kMeasure>
const decltype(kMeasure())& measured_once() {
  static constinit decltype(kMeasure()) measured{};
  static constinit std::once_flag once;
  std::call_once(once, [] { measured = kMeasure(); });
  return measured;
}

// yard_host_t::concurrency of the host, which estimates are for; a plugin sets it when it is queried. Hosts may end before the
// plugin does, this function does not.
inline constinit std::atomic<int32_t (*)(void*)> cost_threads{nullptr};
inline void set_cost_host(const yard_host_t* host) noexcept {
  cost_threads = host != nullptr ? host->concurrency : nullptr;
}

// Threads that a loop may use now: as many as the host says, else one on each processor.
inline double threads_now() noexcept {
  const auto host_threads = cost_threads.load(std::memory_order_relaxed);
  if (host_threads == nullptr) return std::max(1u, std::thread::hardware_concurrency());
  return std::max(host_threads(nullptr), 1);
}

// How many times as fast as one thread those are that share work of so many pieces, as many as there are at most. Each
// further one is worth less than the first, because they share memory and wait for the last.
inline double speed_of_threads(double pieces) {
  return 1 + 0.85 * (std::clamp(pieces, 1.0, threads_now()) - 1);
}

// How long one thread takes for a product of matrices [rows, k] * [k, n], by its rows: nanoseconds for each element of the
// second matrix. Libraries copy that matrix first, which pays for many rows only, so that few take much more than their share.
struct ProductTimes {
  static constexpr int kRows[] = {1, 8, 64};
  double ns[std::size(kRows)] = {};

  // In proportion beyond the measured ones, and on straight lines between them.
  double at(double rows) const {
    constexpr size_t kLast = std::size(kRows) - 1;
    if (rows <= kRows[0]) return ns[0];
    if (rows >= kRows[kLast]) return ns[kLast] * rows / kRows[kLast];
    size_t i = 1;
    while (rows > kRows[i]) ++i;
    const double part = (rows - kRows[i - 1]) / (kRows[i] - kRows[i - 1]);
    return ns[i - 1] + part * (ns[i] - ns[i - 1]);
  }
};

}  // namespace yard::plugin
