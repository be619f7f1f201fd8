// SPDX-License-Identifier: Apache-2.0
// Checks of a kernel that need its op and its backend.
#pragma once

#include "registry/records.h"

namespace yard::registry {

// Sets `map`: how the op's parameters fill those that the kernel states.
Status resolve_params(Kernel& k, const op::Program& program);

// After resolve_params(): signature, and the fields that it names.
Status check_kernel(const Kernel& k, const Backend& backend, const op::Program& program);

}  // namespace yard::registry
