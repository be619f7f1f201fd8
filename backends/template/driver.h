// SPDX-License-Identifier: Apache-2.0
// Stands for the vendor's own library: whether its unit is there, and what the unit can hold.
//
// In a copy this is the part that goes: call the vendor's library instead.
#pragma once

#include <cstdint>

namespace yard::vendor_template {

inline constexpr int64_t kOldestDriver = 3;

// The driver's version; 0 where there is none. Here the variable TEMPLATE_DRIVER sets it, so that tests can
// try every answer; without it there is a driver.
int64_t driver_version();

// Numbers that fit into the unit at once, inputs and outputs together.
inline constexpr int64_t kUnitHolds = 1 << 20;

}  // namespace yard::vendor_template
