// SPDX-License-Identifier: Apache-2.0
// Asking a mode that the program has added.
#pragma once

#include <span>
#include <string>

#include "select/select.h"

namespace yard::select {

// The call as the selector has it.
struct Asked {
  const CandidateSet& candidates;  // its settings name the mode
  const yard_value_t* args;
  uint32_t count;
  uint32_t flags;
  Device device;
};

// Puts those that the mode names first, in its order, and returns how many these are: 0 where it has no answer, or
// only of kernels that cannot serve. `candidates` are those of `order`, which is not empty. `why`, unless it is
// null, gets the reason for having no answer.
size_t ask_mode(const Asked& asked, std::span<const ModeCandidate> candidates, Order& order,
                std::string* why);

}  // namespace yard::select
