// SPDX-License-Identifier: Apache-2.0
// The calls that a language model makes, from its file.
#pragma once

#include <yard/status.h>

#include <string>
#include <vector>

namespace yard::tool {

// CallSpecs of one pass over the layers of a Llama model in a GGUF file: with one token after
// several lengths of context, and with a prompt of 512 tokens. Each call is listed once.
Result<std::vector<std::string>> model_calls(const std::string& path);

}  // namespace yard::tool
