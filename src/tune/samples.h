// SPDX-License-Identifier: Apache-2.0
// Calls of one op that show what rules do to it. The interface is yard/verify.h.
#pragma once

#include <yard/config.h>
#include <yard/plugin.h>

#include <span>
#include <string>
#include <vector>

#include "op/program.h"

namespace yard::tune {

// Plain calls of every dtype and layout; then, for each rule and score of the configs that is about the op, a
// call for which it holds, and others just beside it. Canonical texts, each once, at most `limit`.
std::vector<std::string> sample_calls(const op::Program& program, const yard_op_t* op,
                                      std::span<const Config> configs, size_t limit);

}  // namespace yard::tune
