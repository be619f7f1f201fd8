// SPDX-License-Identifier: Apache-2.0
// Asking verifiers, and checking what they promise: to answer the same every time and on every thread, and to change
// nothing.
#pragma once

#include <string>
#include <vector>

#include "dispatch/core.h"
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
// Twice here, then on two other threads at once, with a look at arguments, environment and registry before and after.
// The registry is that of `core`, where there is one, and that of the shared runtime.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args, const detail::Core* core = nullptr);

}  // namespace yard::function
