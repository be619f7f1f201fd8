// SPDX-License-Identifier: Apache-2.0
#include "health/health_snapshot.h"

#include <fmt/format.h>

namespace yard::health {
namespace {

constexpr size_t kPacked = 10;
constexpr unsigned kBits = 6;
constexpr uint64_t kHashed = uint64_t{1} << 63;

uint64_t mix(uint64_t seed, uint64_t value) {
  return (seed ^ value) * 0x9e3779b97f4a7c15u + (seed >> 29);
}

}  // namespace

uint64_t CallKind::hash() const noexcept {
  uint64_t h = mix(static_cast<uint64_t>(device.type), static_cast<uint32_t>(device.index));
  h = mix(h, dtypes);
  for (const uint8_t b : sizes.get()) h = mix(h, b + uint64_t{1});
  return h;
}

uint64_t pack_dtypes(std::span<const DType> dtypes) noexcept {
  uint64_t word = 0;
  if (dtypes.size() <= kPacked) {
    // Add one, so that an invalid dtype at the end still counts as a tensor.
    for (size_t i = 0; i < dtypes.size(); ++i)
      word |= (static_cast<uint64_t>(dtypes[i]) + 1) << (i * kBits);
    return word;
  }
  for (const DType t : dtypes) word = mix(word, static_cast<uint64_t>(t) + 1);
  return word | kHashed;
}

std::string to_string(const CallKind& kind) {
  if (kind == CallKind()) return "all calls";  // calls of functions have no other kind
  std::string dtypes, sizes;
  if ((kind.dtypes & kHashed) != 0)
    dtypes = fmt::format("dtypes {:016x}, ", kind.dtypes);
  else
    for (uint64_t rest = kind.dtypes; rest != 0; rest >>= kBits)
      dtypes += fmt::format("{}{}", yard::to_string(static_cast<DType>((rest & 63) - 1)),
                            rest >> kBits != 0 ? " " : ", ");
  for (const uint8_t b : kind.sizes.get()) {
    const auto [low, high] = Buckets::range(b);
    sizes += low == high ? fmt::format(" {}", low) : fmt::format(" {}-{}", low, high);
  }
  if (!sizes.empty()) sizes = "sizes" + sizes + ", ";
  return dtypes + sizes + yard::to_string(kind.device);
}

const BreakerStatus* HealthSnapshot::OfOp::find(const Key& key) const noexcept {
  for (const BreakerStatus& b : kernels)
    if (b.key.kernel == key.kernel) return &b;
  for (const BreakerStatus& b : keys)
    if (b.key.kernel == key.kernel && b.key.kind == key.kind) return &b;
  return nullptr;
}

}  // namespace yard::health
