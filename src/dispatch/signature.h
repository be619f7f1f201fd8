// SPDX-License-Identifier: Apache-2.0
// Comparing the C++ signature of a typed op with the op's schema.
#pragma once

#include <yard/status.h>

#include <string_view>

#include "op/program.h"

namespace yard::dispatch {

// `letters` as params.h makes them. The error names the parameter and what was expected.
Status check_signature(const op::Program& program, std::string_view letters);

}  // namespace yard::dispatch
