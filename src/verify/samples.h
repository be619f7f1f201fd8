// SPDX-License-Identifier: Apache-2.0
// Calls on which to try rules: sample_calls() of yard/verify.h.
#pragma once

#include <yard/config.h>
#include <yard/plugin.h>

#include <span>
#include <string>
#include <vector>

#include "op/program.h"

namespace yard::verification {

// Default calls of every dtype and layout; then, for each rule and score entry of the configs that applies to the op, a
// call that matches it and others that just miss it. CallSpecs in canonical form, each once, at most `limit`.
std::vector<std::string> sample_calls(const op::Program& program, const yard_op_t* op,
                                      std::span<const Config> configs, size_t limit);

}  // namespace yard::verification
