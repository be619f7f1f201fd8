// SPDX-License-Identifier: Apache-2.0
// A plan: which kernel runs the calls of one shape class, and which after it. It holds no size of a call.
#pragma once

#include <yard/options.h>
#include <yard/plugin.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/log.h"
#include "registry/records.h"
#include "telemetry/counters.h"

namespace yard::exec {

// How often a kernel ran, and how often it failed; shared by all entries that list the kernel.
struct KernelStats {
  telemetry::Counter calls;
  telemetry::Counter failures;
  mutable base::LogLimit failed, fell_back;  // of what is logged about it
  // Kinds of calls that have failed of late, each by its bit (health::kind_bit): health wants to hear of those
  // that go well, too.
  mutable std::atomic<uint64_t> suspects{0};
};

// One kernel of a plan. Borrowed: the entry that the plan belongs to owns both.
struct Attempt {
  const registry::Kernel* kernel;
  const KernelStats* stats;
};

struct Plan {
  static constexpr size_t kMaxAttempts = 8;

  // What a hit reads.
  uint64_t hash = 0;
  int32_t (*run)(yard_call_t*, const yard_value_t*, uint32_t) = nullptr;
  void* self = nullptr;
  uint32_t counter = telemetry::kNoCounter;
  uint16_t key_words = 0;
  uint8_t attempt_count = 0;
  uint8_t tries = 0;  // how many of them one call may run
  // Nothing to do before and after but to run the kernel: no workspace, no state, nobody who watches. A plan
  // whose kernel has failed is not direct until calls of that kind have gone well.
  mutable std::atomic<bool> direct{false};
  bool simple = false;  // can be direct
  // Handles that keep using it: while there are any it is not evicted. Changed under the plan lock.
  mutable std::atomic<uint32_t> pins{0};
  Mode mode = Mode::kDynamic;  // what chose the first kernel
  Attempt attempts[kMaxAttempts] = {};

  // The key follows the plan in memory.
  const uint64_t* key() const noexcept { return reinterpret_cast<const uint64_t*>(this + 1); }

  struct Deleter {
    void operator()(Plan* p) const noexcept;
  };
  using Ptr = std::unique_ptr<Plan, Deleter>;
  // `attempts` best first, at least one; those beyond kMaxAttempts are left out.
  static Ptr make(uint64_t hash, std::span<const uint64_t> key, std::span<const Attempt> attempts);
};
static_assert(sizeof(Plan) <= 300 - 4 * sizeof(uint64_t), "a plan stays within 300 bytes");

}  // namespace yard::exec
