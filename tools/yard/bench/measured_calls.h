// SPDX-License-Identifier: Apache-2.0
// The calls on which the kernels of an op are measured, made from its schema.
#pragma once

#include <yard/call_spec.h>
#include <yard/runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Sizes by the names of a schema's dimensions.
using Shapes = std::map<std::string, std::vector<int64_t>, std::less<>>;

// The dimensions of an op that can be chosen.
std::vector<std::string> measured_dimensions(const OpInfo& op);
// Calls of an op with every combination of sizes and dtypes. Dimensions that `shapes` does not name
// get usual sizes. Where a tensor may be block-quantised, one such dtype is measured as well. An
// error if no valid call can be made.
Result<std::vector<std::string>> measured_calls(const OpInfo& op,
                                                const std::vector<std::string>& dtypes,
                                                const Shapes& shapes);

// Tensors of a call whose numbers stay in range however often it is repeated in place. Tables of
// cosines and sines rotate by nothing.
std::unique_ptr<CallTensors> measured_tensors(const ParsedCall& call);

}  // namespace yard::tool
