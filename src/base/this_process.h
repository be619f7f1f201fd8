// SPDX-License-Identifier: Apache-2.0
// Which process this is, for what a forked child must not take for its own.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace yard::base {

// How many forks lie between this process and the one in which the library was loaded.
uint64_t forks() noexcept;

// By its number and by its forks: in a namespace of its own a child may have its parent's number, and a child that
// was made without the handlers of fork its forks. Never 0.
inline uint32_t this_process() noexcept {
  constexpr int kPidBits = 22;  // the kernel's limit
  return static_cast<uint32_t>(forks() << kPidBits) ^ static_cast<uint32_t>(::getpid());
}

}  // namespace yard::base
