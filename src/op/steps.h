// SPDX-License-Identifier: Apache-2.0
// The steps that a schema compiles to. They are the whole check of a call's arguments, in the order
// in which mistakes are reported. A call fits if all of them hold, and explain_mismatch() describes
// the first that does not. Internal to src/op.
#pragma once

#include "op/program.h"

namespace yard::op {

// Registers hold named dimensions, leading groups, integer parameters and dtype variables. The
// first step that uses a register sets it, and later ones compare. Steps skip absent optional
// arguments.
struct Step {
  enum class Op : uint8_t {
    kEnum,       // arg is in [0, value)
    kReadable,   // each tensor of arg has facts, and is on the device of all others
    kInt,        // reg is the integer arg
    kTensors,    // the next `value` steps hold for each tensor of arg
    kDTypeSet,   // reg is in mask; clause `value`
    kProduct,    // reg is the product of the group other
    kCompare,    // clause `value` holds for reg and other; arg is the parameter of its guard
    kFloat,      // the number arg fulfils clause `value`; other is the parameter of its guard
    kIff,        // arg is given exactly when other is
    kIffDTypes,  // arg is given exactly when reg is in mask; clause `value`
    kOr,         // arg or other is given
    kSelf,       // no tensor of arg overlaps itself
    kPair,       // arg and other do not overlap, or are the same memory if `value` is set
    // Steps of a kTensors group:
    kType,              // facts under mask are value; at least axis dimensions; reg is the dtype
    kDim,               // reg * value is the size of dimension axis (from the end)
    kConstant,          // dimension axis is value
    kLeading,           // reg is the leading group, before the last axis dimensions
    kBroadcast,         // as kDim, or the size is 1
    kLeadingBroadcast,  // the leading group broadcasts to reg
  };
  static constexpr uint8_t kNoReg = 255;

  Op op;
  uint8_t arg = 0;
  uint8_t axis = 0;
  uint8_t reg = kNoReg;
  uint8_t other = 0;
  uint64_t mask = 0;
  uint64_t value = 0;

  bool is_for_tensor() const noexcept { return op >= Op::kType; }
};

// The parts of a Program that its quick check does not read.
struct ProgramCold {
  Schema schema;
  std::string signature;
  std::vector<uint8_t> outputs;
  bool has_inout = false;
  std::vector<std::pair<uint8_t, uint8_t>> aliases;  // (output, input)
  Fields fields;
  std::vector<Step> steps;
  std::vector<std::string> names;  // of the registers; "*rows" for a leading group
};

}  // namespace yard::op
