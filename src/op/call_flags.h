// SPDX-License-Identifier: Apache-2.0
// Names of the flags a caller may set. YARD_CALL_ALIASED has none: it follows from the arguments.
#pragma once

#include <yard/plugin.h>

#include <string_view>
#include <utility>

namespace yard::op {

inline constexpr std::pair<std::string_view, uint32_t> kCallFlags[] = {
    {"deterministic", YARD_CALL_DETERMINISTIC},
    {"capturing", YARD_CALL_CAPTURING},
    {"inference", YARD_CALL_INFERENCE},
    {"tracing", YARD_CALL_TRACING},
};

}  // namespace yard::op
