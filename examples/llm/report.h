// SPDX-License-Identifier: Apache-2.0
// Prints text and reports of an answer, and checks that they were written.
#pragma once

#include <string>
#include <string_view>

#include "conversation.h"

namespace llm {

// Writes to stdout at once. Escapes control characters on a terminal. Throws std::runtime_error if
// stdout does not take the text.
void put(std::string_view text);

std::string to_json(const Answer& a, const Sampling& sampling);
std::string error_json(std::string_view message, int exit_code);

// Returns the profile of an answer. Compares the kernels with the memory bandwidth of `threads`
// threads.
std::string profile_text(const Answer& a, int32_t threads);
// Returns tokens per second, or 0 without tokens.
double rate(size_t tokens, double ms);

}  // namespace llm
