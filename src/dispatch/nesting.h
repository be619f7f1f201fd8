// SPDX-License-Identifier: Apache-2.0
// Calls that nest too deep: kernels or functions that call themselves or each other without end.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/reclaimer.h"

namespace yard::dispatch {

using namespace detail;

// Returns the error of a call of an op that is nested too deep, or that has no memory for its slot. Returns null if the
// call may be made.
Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op);

// Returns the slot of a function that is called now. Throws yard::Error where refuse_if_too_deep() returns an error.
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, std::string_view group,
                        std::string_view name);

}  // namespace yard::dispatch
