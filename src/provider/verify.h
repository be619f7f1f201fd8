// SPDX-License-Identifier: Apache-2.0
// Asking verifiers, and checking that they give the same answer every time and on every thread.
#pragma once

#include <string>

#include "provider/implementation.h"

namespace yard::provider {

struct Answer {
  bool accepted = false;
  yard_verdict_t verdict{};
  std::string broken;  // what is wrong with the verifier; empty: nothing
};

// An implementation without a verifier accepts.
Answer ask_once(const Implementation& i, const detail::ThreadHead& thread,
                const detail::FunctionArgs& args);
// Twice on this thread, then on two other threads at once. Different answers, and a reason without a text, make the
// verifier broken.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args);

}  // namespace yard::provider
