// SPDX-License-Identifier: Apache-2.0
// Keys of breakers, and what a Board publishes for the selector and for plans: all breakers that are not closed, and the
// kinds of calls that have failed. The breaker of a kernel as a whole decides about a call if it is not closed, else that of
// the key. The selector never excludes the last kernel that is able to run.
#pragma once

#include <array>
#include <bit>
#include <map>
#include <span>

#include "health/breaker.h"

namespace yard::health {

// The log2 bucket of each dimension: 0, 1, 2-3, 4-7 and so on. Dimensions beyond kMost do not tell calls apart.
class Buckets {
 public:
  static constexpr size_t kMost = 15;

  void add(uint64_t size) noexcept {
    if (count_ < kMost) buckets_[count_++] = static_cast<uint8_t>(std::bit_width(size));
  }
  std::span<const uint8_t> get() const noexcept { return {buckets_.data(), count_}; }
  // The smallest and the largest size in a bucket.
  static std::pair<uint64_t, uint64_t> range(uint8_t bucket) noexcept {
    const uint64_t low = bucket == 0 ? 0 : uint64_t{1} << (bucket - 1);
    return {low, bucket == 0 ? 0 : low + (low - 1)};
  }
  bool operator==(const Buckets&) const = default;

 private:
  uint8_t count_ = 0;
  std::array<uint8_t, kMost> buckets_{};  // bit_width of the size
};

// The kind of a call, by which breakers are kept.
struct CallKind {
  Device device;
  uint64_t dtypes = 0;  // pack_dtypes()
  Buckets sizes;

  uint64_t hash() const noexcept;
  bool operator==(const CallKind&) const = default;
};
// `f32 f32, sizes 8-15 4096-8191, cuda:0`.
std::string to_string(const CallKind& kind);

// One word for the dtypes of all tensors, in order; beyond ten a hash of them.
uint64_t pack_dtypes(std::span<const DType> dtypes) noexcept;

// A breaker is kept under a kernel and the kind of call that the kernel failed on. Neither depends on policy, rules or the
// registry's order, so no reload changes a key.
struct Key {
  std::string op, kernel, backend;
  CallKind kind;

  bool operator==(const Key&) const = default;
};

struct BreakerStatus {
  Key key;             // of a kernel as a whole: only op, kernel and backend
  BreakerState state;  // kOpen or kHalfOpen
  Time until;          // open: when it becomes half-open, or kManual; half-open: time_point{}
  std::shared_ptr<ProbeSlots> probes;  // half-open: enter before the kernel runs
  std::string failed_calls;            // CallSpecs, separated by commas; empty: unknown
  bool wrong_results = false;          // of those that have opened it, some were found by checks
  std::string why{};                   // it was opened manually
  bool operator==(const BreakerStatus&) const = default;
};

class HealthSnapshot {
 public:
  struct OfOp {
    std::vector<BreakerStatus> kernels;  // as a whole
    std::vector<BreakerStatus> keys;
    // Kinds of calls that a kernel has failed on, with closed breakers. They have plans of their own.
    struct Counting {
      std::string kernel;
      CallKind kind;
      bool operator==(const Counting&) const = default;
    };
    std::vector<Counting> counting;
    bool operator==(const OfOp&) const = default;
    // The breaker that decides about calls of the key; null if it is closed.
    const BreakerStatus* find(const Key& key) const noexcept;
  };

  // Null if all breakers of the op are closed and none of its kinds is counting.
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
