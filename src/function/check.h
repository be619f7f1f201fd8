// SPDX-License-Identifier: Apache-2.0
// Asking verifiers, and checking that they give the same answer every time and on every thread.
#pragma once

#include <string>
#include <vector>

#include "function/implementation.h"

namespace yard::function {

struct Answer {
  bool accepted = false;
  yard_verdict_t verdict{};
  std::string broken;  // what is wrong with the verifier; empty: nothing
};

// Of an implementation without a verifier: yes.
Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args);
// Twice on this thread, then on two other threads at once; different answers, and a reason without a text, make the
// verifier broken.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args);

}  // namespace yard::function
