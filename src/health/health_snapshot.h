// SPDX-License-Identifier: Apache-2.0
// A Board publishes a snapshot for the selector and for plans: breakers that are not closed, and
// kinds of calls that have failed. If the breaker of a kernel as a whole is not closed, it decides
// about a call, else the breaker of the key does. The selector never excludes the last kernel that
// can run.
#pragma once

#include <map>

#include "health/breaker.h"

namespace yard::health {

// The log2 buckets (0, 1, 2-3, 4-7 and so on) of the first kMost dimensions of a call.
class Buckets {
 public:
  static constexpr size_t kMost = 15;

  void add(uint64_t size) noexcept {
    if (count_ < kMost) buckets_[count_++] = static_cast<uint8_t>(std::bit_width(size));
  }
  std::span<const uint8_t> get() const noexcept { return {buckets_.data(), count_}; }
  static std::pair<uint64_t, uint64_t> range(uint8_t bucket) noexcept {
    const uint64_t low = bucket == 0 ? 0 : uint64_t{1} << (bucket - 1);
    return {low, bucket == 0 ? 0 : low + (low - 1)};
  }
  bool operator==(const Buckets&) const = default;

 private:
  uint8_t count_ = 0;
  std::array<uint8_t, kMost> buckets_{};  // bit_width of the size
};

// A kernel has one breaker for each kind of call.
struct CallKind {
  Device device;
  uint64_t dtypes = 0;  // pack_dtypes()
  Buckets sizes;

  uint64_t hash() const noexcept;
  bool operator==(const CallKind&) const = default;
};
// Returns text like `f32 f32, sizes 8-15 4096-8191, cuda:0`.
std::string to_string(const CallKind& kind);

// Packs the dtypes of up to ten tensors into one word, and hashes more of them.
uint64_t pack_dtypes(std::span<const DType> dtypes) noexcept;

// Names a breaker. Policy, rules and the registry's order do not change it, so reloads do not
// either.
struct Key {
  std::string op, kernel, backend;
  CallKind kind;

  bool operator==(const Key&) const = default;
};

struct BreakerStatus {
  Key key;             // without `kind` if it is for a kernel as a whole
  BreakerState state;  // kOpen or kHalfOpen
  Time until;          // when an open breaker becomes half-open, or kManual; else Time{}
  std::shared_ptr<ProbeSlots> probes;  // if half-open; enter a slot before the kernel runs
  std::string failed_calls;            // CallSpecs, separated by commas; empty if unknown
  bool wrong_results = false;          // a check has found wrong results
  std::string why{};                   // reason of a manual opening
  bool operator==(const BreakerStatus&) const = default;
};

class HealthSnapshot {
 public:
  struct OfOp {
    std::vector<BreakerStatus> kernels;  // breakers of kernels as a whole
    std::vector<BreakerStatus> keys;
    // A kind of call that a kernel has failed on while its breaker is closed. It has separate
    // plans.
    struct Counting {
      std::string kernel;
      CallKind kind;
      bool operator==(const Counting&) const = default;
    };
    std::vector<Counting> counting;
    bool operator==(const OfOp&) const = default;
    // Returns the breaker that decides about calls of the key, or null if it is closed.
    const BreakerStatus* find(const Key& key) const noexcept;
  };

  // Returns null if all breakers of the op are closed and none of its kinds is counting.
  const OfOp* of_op(std::string_view op) const noexcept {
    const auto at = ops_.find(op);
    return at == ops_.end() ? nullptr : &at->second;
  }
  const std::vector<Device>& devices_lost() const noexcept { return lost_; }
  bool is_lost(Device device) const noexcept {
    return std::ranges::find(lost_, device) != lost_.end();
  }

 private:
  friend class BoardState;
  std::map<std::string, OfOp, std::less<>> ops_;
  std::vector<Device> lost_;
};

}  // namespace yard::health
