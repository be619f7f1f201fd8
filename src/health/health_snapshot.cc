// SPDX-License-Identifier: Apache-2.0
#include "health/health_snapshot.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::health {
namespace {

constexpr size_t kPacked = 10;
constexpr unsigned kBits = 6;
constexpr uint64_t kHashed = uint64_t{1} << 63;

uint64_t mix(uint64_t seed, uint64_t value) {
  return (seed ^ value) * 0x9e3779b97f4a7c15u + (seed >> 29);
}

std::string size_range(uint8_t bucket) {
  const auto [low, high] = Buckets::range(bucket);
  return low == high ? fmt::format("{}", low) : fmt::format("{}-{}", low, high);
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
    // One more than the number, so that two tensors are not three of which the last has no dtype.
    for (size_t i = 0; i < dtypes.size(); ++i)
      word |= (static_cast<uint64_t>(dtypes[i]) + 1) << (i * kBits);
    return word;
  }
  for (const DType t : dtypes) word = mix(word, static_cast<uint64_t>(t) + 1);
  return word | kHashed;
}

std::string to_string(const CallKind& kind) {
  if (kind == CallKind()) return "all calls";  // those of functions are not told apart
  const auto& [device, dtypes, sizes] = kind;
  std::string text;
  const auto part = [&](const std::string& p) { text += (text.empty() ? "" : " ") + p; };
  if ((dtypes & kHashed) != 0)
    part(fmt::format("dtypes {:016x}", dtypes));
  else
    for (uint64_t rest = dtypes; rest != 0; rest >>= kBits)
      part(yard::to_string(static_cast<DType>((rest & ((1u << kBits) - 1)) - 1)));
  if (!text.empty()) text += ',';
  if (!sizes.get().empty()) {
    part("sizes");
    for (const uint8_t b : sizes.get()) part(size_range(b));
    text += ',';
  }
  part(yard::to_string(device));
  return text;
}

bool HealthSnapshot::empty() const noexcept {
  return lost_.empty() && std::all_of(ops_.begin(), ops_.end(), [](const auto& op) {
           return op.second.kernels.empty() && op.second.keys.empty();
         });
}

std::string to_string(const Key& key) {
  return fmt::format("{} {} ({})", key.op, key.kernel, to_string(key.kind));
}

}  // namespace yard::health
