// SPDX-License-Identifier: Apache-2.0
// Bytes that identify a call: two calls have the same if their CallSpecs are the same. Quicker to make than the text.
#pragma once

#include <yard/plugin.h>

#include <cstdint>
#include <string>

#include "op/call_spec.h"
#include "op/program.h"

namespace yard::op {

// Replaces `to`. `args` fit the program. Labels are not part of it.
void make_call_key(const Program& program, const yard_value_t* args, uint32_t flags,
                   std::string& to);
// Appends labels to a key.
void add_to_key(const Labels& labels, std::string& to);
void add_to_key(uint64_t word, std::string& to);

}  // namespace yard::op
