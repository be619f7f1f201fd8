// SPDX-License-Identifier: Apache-2.0
// Builds a call of an op with given values of some fields, and defaults for everything else; and sample calls on which to
// try rules: sample_calls() of yard/verify.h.
#pragma once

#include <yard/config.h>
#include <yard/plugin.h>

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "op/call.h"
#include "op/program.h"
#include "policy/fields.h"
#include "tune/size_solver.h"

namespace yard::tune {

// The value of a field as rules see it. Integers also represent switches, dtypes, and indices into the field's list of
// words; strings also represent devices; monostate is an unset label.
using FieldValue = std::variant<std::monostate, int64_t, double, std::string>;
struct FieldConstraint {
  const policy::OpField* field = nullptr;
  FieldValue value;
};

// Values where no constraint applies.
struct CallDefaults {
  int64_t rows = 8, size = 128;  // of leading groups, of other dimensions
  size_t dtype = 0;              // index into the list of dtypes of each variable
  bool optionals = true;         // whether they are given
  int layout = 0;                // 0 contiguous, 1 padded rows, 2 strided elements
  uint32_t flags = 0;
};

class CallBuilder {
 public:
  // `program` and `op` must outlive it; `op` has the shape function, if the schema needs one.
  CallBuilder(const op::Program& program, const yard_op_t* op);

  // Empty if the constraints contradict each other or the schema.
  std::optional<op::Call> call(const CallDefaults& defaults,
                               std::span<const FieldConstraint> constraints) const;
  // The dtypes that a tensor argument can have.
  std::vector<DType> dtypes(size_t param) const;
  // The number of dtypes of the variable that has the most.
  size_t most_dtypes() const;

 private:
  struct Draft;
  bool apply(const FieldConstraint& constraint, Draft& to) const;
  bool apply_integer(const op::Field& field, const std::string& name, int64_t value,
                     Draft& to) const;
  bool apply_size(const op::Param& param, int64_t value, Draft& to) const;
  std::optional<op::SpecValue> tensors(size_t param, const Draft& from) const;
  std::optional<op::SpecValue> scalar(const op::Param& param, const Draft& from) const;

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  const SizeSolver solver_;
  std::map<std::string, std::vector<DType>> types_;  // by variable
};

// Default calls of every dtype and layout; then, for each rule and score entry of the configs that applies to the op, a
// call that matches it and others that just miss it. CallSpecs in canonical form, each once, at most `limit`.
std::vector<std::string> sample_calls(const op::Program& program, const yard_op_t* op,
                                      std::span<const Config> configs, size_t limit);

}  // namespace yard::tune
