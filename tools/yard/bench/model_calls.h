// SPDX-License-Identifier: Apache-2.0
// Lists the calls that a language model makes, from the model's file.
#pragma once

#include <yard/status.h>

#include <string>
#include <vector>

namespace yard::tool {

// Returns CallSpecs for one pass over the layers of a Llama model in a GGUF file: for one token
// after several lengths of context, and for a prompt of 512 tokens. Lists equal calls once.
Result<std::vector<std::string>> model_calls(const std::string& path);

}  // namespace yard::tool
