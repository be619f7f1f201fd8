// SPDX-License-Identifier: Apache-2.0
// The calls that kernels of the built-in ops are measured on.
#pragma once

#include <yard/call_spec.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Sizes by the names of a schema's dimensions.
using Shapes = std::map<std::string, std::vector<int64_t>, std::less<>>;

// The ops that are measured, in the order of the documentation; only those that the runtime has.
const std::vector<std::string>& measured_ops();
// The dimensions of the calls of an op that can be chosen.
std::vector<std::string> measured_dimensions(const std::string& op);
// Calls with every combination of sizes: those of `shapes`, else usual ones; of every dtype in `dtypes` and every usual
// dtype of weights.
std::vector<std::string> measured_calls(const std::string& op,
                                        const std::vector<std::string>& dtypes,
                                        const Shapes& shapes);

// Tensors of a call whose numbers stay in range however often it is repeated in place: tables of rotations are those of
// a rotation by nothing.
std::unique_ptr<CallTensors> measured_tensors(const ParsedCall& call);

}  // namespace yard::tool
