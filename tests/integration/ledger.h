// SPDX-License-Identifier: Apache-2.0
// Records what a stress test may observe: kernels with a version and a mark for destruction, and a
// ledger of changes for each op.
#pragma once

#include <yard/plugin.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace yard::testing {

inline constexpr int64_t kNone = -1;  // no kernel

// One writer, any number of readers. A call may run what any state between its start and its end
// says: from `done` as read before the call to `begun` as read after it.
class Ledger {
 public:
  void begin(int64_t outcome) {
    const uint64_t next = begun_.load() + 1;
    outcomes_[next % kRing].store(outcome);
    begun_.store(next);
  }
  void end() { done_.store(begun_.load()); }

  uint64_t before_call() const { return done_.load(); }
  bool allows(uint64_t from, int64_t result) const {
    const uint64_t to = begun_.load();
    // The call took so long that its first states are overwritten.
    if (to - from >= kRing) return true;
    for (uint64_t i = from; i <= to; ++i)
      if (outcomes_[i % kRing].load() == result) return true;
    return false;
  }
  uint64_t changes() const { return done_.load(); }

 private:
  static constexpr uint64_t kRing = 1 << 14;
  std::vector<std::atomic<int64_t>> outcomes_ = std::vector<std::atomic<int64_t>>(kRing);
  std::atomic<uint64_t> begun_{0}, done_{0};
};

// The `self` of a kernel, owned by its registration. The destructor marks the object as dead.
class Version {
 public:
  explicit Version(int64_t number) : number_(number) { ++g_living; }
  ~Version() {
    canary_.store(kDead);
    --g_living;
  }
  Version(const Version&) = delete;
  Version& operator=(const Version&) = delete;

  static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t) {
    const auto* self = static_cast<const Version*>(call->self);
    if (self->canary_.load() != kAlive) ++g_dead_touched;
    *static_cast<int64_t*>(args[0].u.tensor->data) = self->number_;
    if (self->canary_.load() != kAlive) ++g_dead_touched;
    return YARD_OK;
  }

  static inline std::atomic<int64_t> g_living{0};
  static inline std::atomic<uint64_t> g_dead_touched{0};

 private:
  static constexpr uint64_t kAlive = 0x600d600d600d600d, kDead = 0xdeaddeaddeaddead;
  const int64_t number_;
  std::atomic<uint64_t> canary_{kAlive};
};

}  // namespace yard::testing
