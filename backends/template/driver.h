// SPDX-License-Identifier: Apache-2.0
// Stands for the vendor's library: says whether the vendor's unit is present and how much the unit
// can hold.
//
// In a copy of this backend, replace these functions by calls of the vendor's library.
#pragma once

#include <cstdint>

namespace yard::vendor_template {

inline constexpr int64_t kOldestDriver = 3;

// Returns the driver's version, or 0 without a driver. The variable TEMPLATE_DRIVER sets the
// version, so that tests can try every answer. If the variable is not set, there is a driver.
int64_t driver_version();

// How many numbers, inputs and outputs together, fit into the unit at once.
inline constexpr int64_t kUnitHolds = 1 << 20;

}  // namespace yard::vendor_template
