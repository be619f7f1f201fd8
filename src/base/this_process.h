// SPDX-License-Identifier: Apache-2.0
// Identifies the process, so that a forked child does not use what belongs to its parent.
#pragma once

#include <unistd.h>

#include <cstdint>

namespace yard::base {

// The number of forks between this process and the one in which the library was loaded.
uint64_t forks() noexcept;

// From pid and forks: in another pid namespace a child may have its parent's pid, and a child that was made without
// fork handlers has its parent's forks. Never 0.
inline uint32_t this_process() noexcept {
  constexpr int kPidBits = 22;  // the kernel's limit
  return static_cast<uint32_t>(forks() << kPidBits) ^ static_cast<uint32_t>(::getpid());
}

}  // namespace yard::base
