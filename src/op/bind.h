// SPDX-License-Identifier: Apache-2.0
// Binds positional and named arguments to the parameters of a program.
//
//   const Given given[] = {{"", out}, {"", x}, {"weight", w}};
//   Result<Arguments> a = op::bind(program, given);   // qualified, because of std::bind
#pragma once

#include <yard/call_spec.h>

#include "op/program.h"

namespace yard::op {

struct Given {
  std::string_view name;  // empty if it is given by position
  yard_value_t value;
};

// The parameters that positional arguments bind to.
enum class Positional : uint8_t {
  kAll,     // all, in schema order; outputs must be given
  kInputs,  // all but pure outputs, which may be missing, as in CallSpecs
};

// Borrows the given tensors and strings, and default strings from the program.
struct Arguments {
  yard_value_t values[YARD_MAX_ARGS]{};
  uint32_t count = 0;
  uint8_t index_of[YARD_MAX_ARGS]{};  // the parameter of each given argument
};

// Fills in defaults. Accepts integers for float parameters and strings for enums. Other types are
// not checked; see Program::explain_mismatch(). Failures are kInvalidArgument: unknown name, too
// many, missing, given twice, unknown enumerator.
Result<Arguments> bind(const Program& program, std::span<const Given> given,
                       Positional positional = Positional::kAll);

inline yard_value_t scalar(const Value& value) noexcept { return value.c(); }

// Returns the default of a scalar parameter, or NONE. Borrows a string from the parameter.
yard_value_t default_value(const Param& param) noexcept;

}  // namespace yard::op
