// SPDX-License-Identifier: Apache-2.0
// Converts a call to plain data (yard/call_spec.h).
#pragma once

#include <yard/call_spec.h>

#include "op/call.h"

namespace yard::verification {

ParsedCall parsed_call(const op::Program& program, const op::Call& call);

// Returns the name of a tensor, such as "x" or "xs[1]". `item` is -1 outside of lists.
std::string tensor_name(const std::string& param, int item);

}  // namespace yard::verification
