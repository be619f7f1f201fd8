// SPDX-License-Identifier: Apache-2.0
// A call as plain data (yard/call_spec.h).
#pragma once

#include <yard/call_spec.h>

#include <string>

#include "op/call.h"
#include "op/program.h"

namespace yard::verification {

ParsedCall parsed_call(const op::Program& program, const op::Call& call);

// The name of a tensor: "x", or "xs[1]" for a tensor of a list. `item` is -1 if there is no list.
std::string tensor_name(const std::string& param, int item);

}  // namespace yard::verification
