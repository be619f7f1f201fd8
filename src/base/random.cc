// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <chrono>

#include "base/mutex.h"

namespace yard::base {
namespace {

uint64_t mixed(uint64_t v) noexcept {
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9u;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebu;
  return v ^ (v >> 31);
}

uint64_t make_seed() noexcept {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != ssize_t{sizeof seed})
    seed = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return seed;
}

}  // namespace

uint64_t thread_random() noexcept {
  thread_local uint64_t state = 0;
  thread_local uint64_t seeded = UINT64_MAX;  // the number of forks when `state` was seeded
  if (const uint64_t now = forks(); seeded != now) state = make_seed(), seeded = now;
  return mixed(state += 0x9e3779b97f4a7c15u);
}

}  // namespace yard::base
