// SPDX-License-Identifier: Apache-2.0
// Asking verifiers, and checking what they promise: to answer the same every time and on every thread, and to change
// nothing.
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
// Twice here, once on another thread, with a look at arguments, environment and registry before and after.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args);

// How many changes of the registry there were, for ask_checked(). Set once.
void set_registry_generation(uint64_t (*generation)());

}  // namespace yard::function
