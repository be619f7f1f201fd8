// SPDX-License-Identifier: Apache-2.0
// The steps that a schema compiles to, and the code that runs them. Internal to src/op.
//
// The steps are the whole check of a call's arguments, in the order in which mistakes are reported. A
// call fits when all of them hold; explain_mismatch() describes the first that does not.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "op/overlap.h"
#include "op/program.h"

namespace yard::op {

// Registers hold named dimensions, leading groups, integer parameters and dtype variables. The first
// step that uses a register sets it, later ones compare. Steps skip absent optional arguments.
struct Step {
  enum class Op : uint8_t {
    kEnum,       // arg is in [0, value)
    kReadable,   // each tensor of arg has facts, and is on the device of all others
    kInt,        // reg is the integer arg
    kTensors,    // the next `value` steps hold for each tensor of arg
    kDTypeSet,   // reg is in mask; clause `value`
    kProduct,    // reg is the product of the group other
    kCompare,    // clause `value` holds for reg and other; arg is the parameter of its guard
    kIff,        // arg is given exactly when other is
    kIffDTypes,  // arg is given exactly when reg is in mask; clause `value`
    kOr,         // arg or other is given
    kSelf,       // no tensor of arg overlaps itself
    kPair,       // arg and other do not overlap; value: exactly the same memory is allowed
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

// Runs steps over the arguments of one call. No allocation.
class StepRunner {
 public:
  StepRunner(const Schema& schema, const yard_value_t* args) noexcept
      : schema_(schema), args_(args) {}

  // The first step that fails; null if all hold.
  const Step* run(const std::vector<Step>& steps) noexcept;
  // One step of a kTensors group.
  bool holds(const Step& s, const yard_tensor_t& t) noexcept;

  // YARD_CALL_ALIASED if an output is exactly an input.
  int32_t flags() const noexcept { return flags_; }
  bool has(uint8_t reg) const noexcept { return ((known_ >> reg) & 1) != 0; }
  int64_t value(uint8_t reg) const noexcept { return value_[reg]; }
  // A group's dimensions; value() is their number.
  const int64_t* group(uint8_t reg) const noexcept { return group_[reg]; }

  // Of the step that failed: its tensor, the registers that were set before the steps of that tensor,
  // and how the tensors of a pair overlap.
  const yard_tensor_t* tensor() const noexcept { return tensor_; }
  bool had(uint8_t reg) const noexcept { return ((known_before_ >> reg) & 1) != 0; }
  Overlap overlap_found() const noexcept { return overlap_; }

 private:
  static constexpr uint64_t kNoDevice = ~0ull;

  bool call_step(const Step& s) noexcept;
  bool tensor_step(const Step& s, const yard_tensor_t& t) noexcept;
  bool given(uint8_t arg) const noexcept { return args_[arg].tag != YARD_TAG_NONE; }
  bool set_or_equal(uint8_t reg, int64_t v) noexcept;
  bool readable(const Step& s) noexcept;
  bool type(const Step& s, const yard_tensor_t& t) noexcept;
  bool dim(const Step& s, int64_t size) noexcept;
  bool leading(const Step& s, const yard_tensor_t& t) noexcept;
  bool leading_broadcast(const Step& s, const yard_tensor_t& t) const noexcept;
  bool product(const Step& s) noexcept;
  bool compare(const Step& s) const noexcept;
  bool self(const Step& s) noexcept;
  bool pair(const Step& s) noexcept;
  [[gnu::noinline]] bool pairs(const Step& s) noexcept;

  const Schema& schema_;
  const yard_value_t* args_;
  uint64_t device_ = kNoDevice;  // of all tensors: the facts bits of the first one
  uint64_t known_ = 0;
  int32_t flags_ = 0;
  // Set by the step that fails.
  Overlap overlap_;
  uint64_t known_before_;
  const yard_tensor_t* tensor_;
  int64_t value_[kMaxNames];
  const int64_t* group_[kMaxNames];
};

}  // namespace yard::op
