// SPDX-License-Identifier: Apache-2.0
// Calls that have what somebody wishes: a plain call of the op, with the values of some fields given.
#pragma once

#include <yard/plugin.h>

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "op/call.h"
#include "policy/fields.h"
#include "tune/sizes.h"

namespace yard::tune {

// The value of a field as rules see it. Numbers also stand for switches, dtypes, and places in the field's
// list of words; texts also for devices; nothing: a label that is not set.
using WishValue = std::variant<std::monostate, int64_t, double, std::string>;
struct Wish {
  const policy::OpField* field = nullptr;
  WishValue value;
};

// What a call is like where no wish says otherwise.
struct Plain {
  int64_t rows = 8, size = 128;  // of leading groups, of other dimensions
  size_t dtype = 0;              // place in the list of dtypes of each variable
  bool optionals = true;         // whether they are given
  int layout = 0;  // 0 contiguous, 1 rows with a gap between them, 2 elements with one
  uint32_t flags = 0;
};

class Sketcher {
 public:
  // `program` and `op` must outlive it; `op` brings the shape function where one is needed.
  Sketcher(const op::Program& program, const yard_op_t* op);

  // Nothing where the wishes contradict each other or the schema.
  std::optional<op::Call> call(const Plain& plain, std::span<const Wish> wishes) const;
  // The dtypes a tensor argument can have.
  std::vector<DType> dtypes(size_t param) const;
  // As many as the variable with the most of them has.
  size_t most_dtypes() const;

 private:
  struct Sketch;
  bool grant(const Wish& wish, Sketch& to) const;
  bool grant_integer(const op::Field& field, const std::string& name, int64_t value,
                     Sketch& to) const;
  bool grant_size(const op::Param& param, int64_t value, Sketch& to) const;
  std::optional<op::SpecValue> tensors(size_t param, const Sketch& from) const;
  std::optional<op::SpecValue> scalar(const op::Param& param, const Sketch& from) const;

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  const Sizes sizes_;
  std::map<std::string, std::vector<DType>> types_;  // by variable
};

}  // namespace yard::tune
