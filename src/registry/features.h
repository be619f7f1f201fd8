// SPDX-License-Identifier: Apache-2.0
// Features of the processor and of devices, which kernels and plugins need and programs state.
//
//   avx2            of the processor, which is detected
//   cuda:sm_80      of the device of a call; the number is a level, and a higher one will do
//   cuda:sm_80..89  with a highest level
//   cuda:sm_90a     without a number at the end: that very name
//   cuda:1:sm_90    of one device
#pragma once

#include <yard/status.h>
#include <yard/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace yard::registry {

// The last part: "sm_80", "sm_80..89", "sm_90a". It points into the text that was read.
struct FeatureName {
  std::string_view name;  // "sm", or all of a name without a level
  int64_t low = 0, high = 0;
  bool is_level = false, is_range = false;

  static FeatureName read(std::string_view text) noexcept;
  // Whether a device with this level has the wanted one of the same name.
  bool satisfies(const FeatureName& wanted) const noexcept {
    return !is_level || (wanted.low <= low && low <= wanted.high);
  }
  bool same_name(const FeatureName& other) const noexcept {
    return is_level == other.is_level && name == other.name;
  }
};

struct Feature {
  static constexpr int32_t kEvery = -1;
  Device device{1, kEvery};  // kEvery: every device of the type
  std::string name;          // as FeatureName reads it
  std::string text;          // with the device, as it was written

  bool of_processor() const noexcept { return device.type == 1; }
};

Result<Feature> parse_feature(std::string_view text);
// Parses what a kernel or plugin needs. Features of the processor must be known.
Result<Feature> parse_needed_feature(std::string_view text);

}  // namespace yard::registry
