// SPDX-License-Identifier: Apache-2.0
// The parts of a Program that a plain call does not touch, and the steps that check what lanes cannot:
// optional arguments, lists, broadcasting, where-clauses. Internal to src/op.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "op/program.h"

namespace yard::op {

// One check of run_steps(). Registers hold named dimensions, leading groups, integer parameters and
// dtype variables; the first step that meets a register sets it, later ones compare. A step about an
// absent optional does nothing; one about a list looks at every tensor in it.
struct Step {
  enum class Op : uint8_t {
    kEnum,           // arg is in [0, value)
    kFacts,          // facts of arg under mask are value; its device is that of all others
    kRank,           // arg has at least axis dimensions
    kDType,          // reg is the dtype of arg
    kDTypeSet,       // reg is in mask
    kInt,            // reg is the integer arg
    kDim,            // reg * value is the size of dimension axis (from the end)
    kDimSpread,      // the same, or the size is 1
    kConstant,       // dimension axis is value
    kLeading,        // reg is the leading group of arg, before its last axis dimensions
    kLeadingSpread,  // the leading group of arg broadcasts to reg
    kProduct,        // reg is the product of the group other
    kCompare,        // comparisons[value] holds
    kIff,            // arg is given exactly when other is
    kOr,             // arg or other is given
    kSelf,           // arg does not overlap itself
    kPair,           // arg and other do not overlap; value: exactly the same is allowed
  };
  Op op;
  uint8_t arg = 0;
  uint8_t axis = 0;
  uint8_t reg = 0;
  uint8_t other = 0;
  uint64_t mask = 0;
  uint64_t value = 0;
};

struct Comparison {
  Clause::Kind kind = Clause::Kind::kCompare;
  Compare compare = Compare::kEq;
  Clause::Guard guard = Clause::Guard::kNone;
  uint8_t guard_arg = 0;
  int16_t left_reg = -1, right_reg = -1;  // -1: the number itself
  int64_t left = 1, right = 1;
};

struct ProgramCold {
  Schema schema;
  std::string signature;
  std::vector<uint8_t> outputs;
  bool has_inout = false;
  bool needs_shape_function = false;
  std::vector<std::pair<uint8_t, uint8_t>> aliases;  // (output, input)
  std::vector<std::pair<std::string, Field>> fields;
  std::vector<Step> steps;
  std::vector<Comparison> comparisons;
};

// One meaning of comparisons for the compiled check and for the one that explains.
template <class Number>
bool holds(Number left, Compare c, Number right) noexcept {
  switch (c) {
    case Compare::kEq: return left == right;
    case Compare::kNe: return left != right;
    case Compare::kLt: return left < right;
    case Compare::kLe: return left <= right;
    case Compare::kGt: return left > right;
    case Compare::kGe: return left >= right;
  }
  return false;
}

// The tensors of an argument: none, one or many.
struct Tensors {
  const yard_tensor_t* const* list = nullptr;
  uint32_t count = 0;
  explicit Tensors(const yard_value_t& v) noexcept {
    if (v.tag == YARD_TAG_TENSOR) list = &v.u.tensor, count = 1;
    if (v.tag == YARD_TAG_LIST) list = v.u.list, count = v.count;
  }
  const yard_tensor_t* const* begin() const noexcept { return list; }
  const yard_tensor_t* const* end() const noexcept { return list + count; }
};

// Names to field descriptions, and the static answer whether outputs need a shape function.
std::vector<std::pair<std::string, Field>> make_fields(const Schema& schema);
bool needs_shape_function(const Schema& schema);

}  // namespace yard::op
