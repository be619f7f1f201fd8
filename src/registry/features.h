// SPDX-License-Identifier: Apache-2.0
// Features that kernels and plugins need. The program states the features of devices.
//
//   avx2            a feature of the processor, which is detected
//   cuda:sm_80      a feature of the device of a call: level 80 or higher
//   cuda:sm_80..89  a range of levels
//   cuda:sm_90a     an exact name, since no number is at its end
//   cuda:1:sm_90    a feature of one device
#pragma once

#include <yard/tensor.h>

#include <cstdint>
#include <string_view>

namespace yard::registry {

// The last part, like "sm_80", "sm_80..89" or "sm_90a". Points into the text that was read.
struct FeatureName {
  std::string_view name;  // without the level
  int64_t low = 0, high = 0;
  bool is_level = false, is_range = false;

  static FeatureName read(std::string_view text) noexcept;
  // Returns whether a device with this feature has `wanted`, which must have the same name.
  bool satisfies(const FeatureName& wanted) const noexcept {
    return !is_level || (wanted.low <= low && low <= wanted.high);
  }
  bool same_name(const FeatureName& other) const noexcept {
    return is_level == other.is_level && name == other.name;
  }
};

struct Feature {
  static constexpr int32_t kEvery = -1;  // stands for all devices of a type
  Device device{1, kEvery};
  std::string name;  // in the form that FeatureName reads
  std::string text;  // as written, with the device

  bool of_processor() const noexcept { return device.type == 1; }
};

Result<Feature> parse_feature(std::string_view text);
// Parses what a kernel or plugin needs. Fails for unknown features of the processor.
Result<Feature> parse_needed_feature(std::string_view text);

}  // namespace yard::registry
