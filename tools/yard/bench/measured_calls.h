// SPDX-License-Identifier: Apache-2.0
// Makes calls for measuring the kernels of an op from the op's schema.
#pragma once

#include <yard/call_spec.h>
#include <yard/runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Lists of sizes, by the name of a dimension in the schema.
using Shapes = std::map<std::string, std::vector<int64_t>, std::less<>>;

std::vector<std::string> measured_dimensions(const OpInfo& op);
// Returns calls of an op with every combination of sizes and dtypes. Dimensions that are not in
// `shapes` get usual sizes. If a tensor may be block-quantised, one such dtype is measured as well.
// Fails if no valid call can be made.
Result<std::vector<std::string>> measured_calls(const OpInfo& op,
                                                const std::vector<std::string>& dtypes,
                                                const Shapes& shapes);

// Creates tensors whose numbers stay in range however often the call is repeated in place. Tables
// of cosines and sines hold the rotation by zero.
std::unique_ptr<CallTensors> measured_tensors(const ParsedCall& call);

}  // namespace yard::tool
