// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <unistd.h>

#include <atomic>
#include <chrono>

#include "base/mutex.h"

namespace yard::base {
namespace {

uint64_t mixed(uint64_t v) noexcept {
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return v ^ (v >> 31);
}

// Distinct for the threads of a process; for those of several processes with high probability.
uint64_t make_seed() noexcept {
  static std::atomic<uint64_t> seeds{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return mixed(mixed(static_cast<uint64_t>(now)) + static_cast<uint64_t>(::getpid()) * 8191) +
         seeds.fetch_add(1, std::memory_order_relaxed) * 0xd1342543de82ef95u;
}

}  // namespace

uint64_t thread_random() noexcept {
  thread_local uint64_t state = 0;
  thread_local uint64_t seeded = UINT64_MAX;  // the number of forks when it was
  if (const uint64_t now = forks(); seeded != now) state = make_seed(), seeded = now;
  return mixed(state += 0x9e3779b97f4a7c15u);
}

}  // namespace yard::base
