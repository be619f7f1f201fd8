// SPDX-License-Identifier: Apache-2.0
// What a breaker is kept under: a kernel, and the kind of call it failed on. Nothing in it depends on policy, rules
// or the registry's order, so no reload changes it. Made only when a call has failed.
#pragma once

#include <yard/tensor.h>

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace yard::health {

// The log2 bucket of each dimension: 0, 1, 2-3, 4-7 and so on. Dimensions beyond kMost do not tell calls apart.
class Buckets {
 public:
  static constexpr size_t kMost = 15;

  void add(uint64_t size) noexcept {
    if (count_ < kMost) buckets_[count_++] = static_cast<uint8_t>(std::bit_width(size));
  }
  std::span<const uint8_t> get() const noexcept { return {buckets_.data(), count_}; }
  // The sizes of a bucket.
  struct Range {
    uint64_t low, high;
  };
  static Range range(uint8_t bucket) noexcept {
    if (bucket == 0) return {0, 0};
    const uint64_t low = uint64_t{1} << (bucket - 1);
    return {low, low + (low - 1)};
  }
  bool operator==(const Buckets&) const = default;

 private:
  uint8_t count_ = 0;
  std::array<uint8_t, kMost> buckets_{};  // bit_width of the size
};

// One bit of 64 that stands for a kind of call; others may have the same.
uint64_t kind_bit(Device device, uint64_t dtypes, const Buckets& sizes) noexcept;

// One word for the dtypes of all tensors, in order; beyond ten a hash of them.
uint64_t pack_dtypes(std::span<const DType> dtypes) noexcept;

struct Key {
  std::string op, kernel, backend;
  Device device;
  uint64_t dtypes = 0;  // pack_dtypes()
  Buckets sizes;

  bool operator==(const Key&) const = default;
};
inline uint64_t kind_bit(const Key& key) noexcept {
  return kind_bit(key.device, key.dtypes, key.sizes);
}

// `f32 f32, sizes 8-15 4096-8191, cuda:0`: the kind of call.
std::string describe_call(Device device, uint64_t dtypes, const Buckets& sizes);
// `rms_norm default.simd (f32 f32, sizes 8-15 4096-8191, cuda:0)`.
std::string to_string(const Key& key);

struct KeyHash {
  size_t operator()(const Key& key) const noexcept;
};

}  // namespace yard::health
