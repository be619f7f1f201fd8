// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_timing.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "bench/timing.h"
#include "host_access.h"

namespace yard::tool {
namespace {

constexpr double kBatchNs = 2e6, kSlowNs = 1e8;
constexpr size_t kSlowRounds = 3;
// Idle workers of this library sleep after less than this time.
constexpr auto kPause = std::chrono::milliseconds(3);

// Lets the threads of the previous path go to sleep. Threads of OpenMP spin for tens of
// milliseconds after a loop and make the next path up to twice as slow, so they are ended. The
// process may contain two copies of the OpenMP library.
void rest() {
  constexpr int kSoft = 1;  // omp_pause_soft
  using Pause = int (*)(int);
  static const auto find = [](void* library) {
    return reinterpret_cast<Pause>(::dlsym(library, "omp_pause_resource_all"));
  };
  static const Pause first = find(RTLD_DEFAULT);
  void* const system = ::dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
  const Pause second = system != nullptr ? find(system) : nullptr;
  if (first != nullptr) first(kSoft);
  if (second != nullptr && second != first) second(kSoft);
  if (system != nullptr) ::dlclose(system);
  std::this_thread::sleep_for(kPause);
}

template <class Body>
Timed timed(Body body) {
  return [body](int64_t n) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < n; ++i) body();
    return seconds_since(start) * 1e9 / static_cast<double>(n);
  };
}

}  // namespace

std::vector<double> time_in_turn(const std::vector<Timed>& paths, double seconds) {
  std::vector<std::vector<double>> rounds(paths.size());
  std::vector<int64_t> batch;
  for (const Timed& p : paths) {
    p(1);  // warms up
    const double once = std::max(p(1), 1.0);
    batch.push_back(std::clamp<int64_t>(static_cast<int64_t>(kBatchNs / once), 1, 1000000));
  }
  const auto start = Clock::now();
  for (size_t round = 0; round < 5 || seconds_since(start) < seconds; ++round)
    for (size_t i = 0; i < paths.size(); ++i)
      if (rounds[i].size() < kSlowRounds || rounds[i].back() < kSlowNs) {
        rest();
        if (rounds[i].empty() || rounds[i].back() < kSlowNs / 5) paths[i](1);  // wakes the threads
        rounds[i].push_back(paths[i](batch[i]));
      }
  std::vector<double> out;
  for (auto& r : rounds) out.push_back(median(std::move(r)));
  return out;
}

Copy::Copy(uint64_t bytes)
    : half_(static_cast<size_t>(bytes / 2)), from_(new char[half_ + 1]), to_(new char[half_ + 1]) {
  // Write all pages first: unwritten pages share one zero page, and copying from it would be too
  // fast.
  std::memset(from_.get(), 1, half_ + 1);
  std::memset(to_.get(), 2, half_ + 1);
}

Timed Copy::one_thread() const {
  return timed([from = from_, to = to_, n = half_] { std::memcpy(to.get(), from.get(), n); });
}

Timed Copy::all_threads() const {
  const auto total = static_cast<int64_t>(half_);
  const int64_t piece = std::max<int64_t>(total / host_threads(), 1);
  return timed([from = from_, to = to_, total, piece] {
    host_parallel_for(total, piece, [&](int64_t begin, int64_t end) {
      std::memcpy(to.get() + begin, from.get() + begin, static_cast<size_t>(end - begin));
    });
  });
}

}  // namespace yard::tool
