// SPDX-License-Identifier: Apache-2.0
// Calls as plain data: from the library's own form to that of yard/call_spec.h.
#pragma once

#include <yard/call_spec.h>

#include "op/call.h"

namespace yard::tune {

ParsedCall parsed_call(const op::Program& program, const op::Call& call);

}  // namespace yard::tune
