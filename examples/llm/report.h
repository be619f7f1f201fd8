// SPDX-License-Identifier: Apache-2.0
// Prints text and reports of an answer, and checks that they were written.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "conversation.h"

namespace llm {

// Writes to stdout at once. Escapes control characters on a terminal. Throws std::runtime_error if
// stdout does not take the text.
void put(std::string_view text);

// Shows how much of a model is loaded, on stderr if it is a terminal, from the second second on.
// Erases the line at its end.
class LoadingLine {
 public:
  ~LoadingLine() { clear(); }
  void show(double done, double all);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_ = Clock::now() + std::chrono::seconds(1);
  bool is_shown_ = false;
};

std::string to_json(const Answer& a, const Sampling& sampling);
std::string error_json(std::string_view message, int exit_code);

// Returns the profile of an answer. Compares the kernels with the memory bandwidth of `threads`
// threads.
std::string profile_text(const Answer& a, int32_t threads);
// Returns tokens per second, or 0 without tokens.
double rate(size_t tokens, double ms);

}  // namespace llm
