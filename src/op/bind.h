// SPDX-License-Identifier: Apache-2.0
// From arguments by position and by name to the flat array a program checks.
//
//   const Given given[] = {{"", out}, {"", x}, {"weight", w}};
//   Result<Arguments> a = op::bind(program, given);   // qualified: std::bind is near
#pragma once

#include <yard/plugin.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "op/program.h"

namespace yard::op {

struct Given {
  std::string_view name;  // empty: by position
  yard_value_t value;
};

// Which parameters the positional arguments stand for.
enum class Positional : uint8_t {
  kAll,     // every one, in schema order: calls with tensors; outputs must be given
  kInputs,  // all but pure outputs: CallSpecs; outputs may be left out
};

// Borrows the tensors and strings it was given, and default strings from the program.
struct Arguments {
  yard_value_t values[YARD_MAX_ARGS]{};
  uint32_t count = 0;
  uint8_t index_of[YARD_MAX_ARGS]{};  // the parameter of each given argument
};

// Fills scalar defaults and absent optionals. Integers are taken for float parameters, strings for
// enums. Whether the result fits the schema is for Program::explain_mismatch() to say. Failures are
// kInvalidArgument: unknown name, too many, missing, given twice, no such enumerator.
Result<Arguments> bind(const Program& program, std::span<const Given> given,
                       Positional positional = Positional::kAll);

// The default of a scalar parameter; strings are borrowed from it. NONE if it has none.
yard_value_t default_value(const Param& param) noexcept;

}  // namespace yard::op
