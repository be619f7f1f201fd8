// SPDX-License-Identifier: Apache-2.0
// Prints text and checks that it was written, and prints reports of an answer.
#pragma once

#include <string>
#include <string_view>

#include "conversation.h"

namespace llm {

// Writes to stdout at once. Control characters are escaped if that is a terminal. Throws std::runtime_error if stdout does not
// take the text.
void put(std::string_view text);

// The answer as one JSON object.
std::string to_json(const Answer& a, const Sampling& sampling);
// An error as one JSON object.
std::string error_json(std::string_view message, int exit_code);

// The profile of an answer, with the memory bandwidth of `threads` threads for comparison.
std::string profile_text(const Answer& a, int32_t threads);
// Tokens a second; 0 if there were none.
double rate(size_t tokens, double ms);

}  // namespace llm
