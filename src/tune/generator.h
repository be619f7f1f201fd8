// SPDX-License-Identifier: Apache-2.0
// Test case generator: calls of an op from its schema alone. They cover every dtype, size, stride, optional, enumerator
// and flag that the schema allows, edge cases often. The same seed gives the same calls.
//
// Each choice has a shuffle bag of its own (random.h), so that a few calls cover all its values, combined with those of
// other choices at random.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "op/call.h"
#include "tune/random.h"
#include "tune/size_solver.h"

namespace yard::tune {

// A call and the contents of its tensors.
struct Case {
  op::Call call;
  Contents contents = Contents::kNormal;
  uint64_t seed = 0;  // of the contents
};

// Strides and alignment of a call's tensors.
class LayoutGenerator {
 public:
  LayoutGenerator();

  struct Item {
    op::TensorSpec* spec;
    bool written;
  };
  // For all tensors of one call. Many calls stay contiguous and aligned, so that kernels that require it are tested too.
  void assign(std::span<const Item> items, Random& random);

 private:
  // Which tensors of a call get an unusual layout.
  enum class Mode { kContiguous, kMisaligned, kOneTensor, kAllTensors };
  enum class Form { kRowPadded, kTransposed, kInnerStep, kBroadcast, kNegative, kMisaligned };

  void lay_out(const Item& item, Random& random);

  ShuffleBag<Mode> modes_;
  ShuffleBag<Form> forms_;
};

class Generator {
 public:
  // `program` and `op` must outlive it; `op` has the shape function, if the schema needs one.
  Generator(const op::Program& program, const yard_op_t* op, uint64_t seed, int64_t max_elements);

  // Empty when many attempts in a row gave no call that fits the schema.
  std::optional<Case> next();

 private:
  std::optional<op::Call> attempt();
  void choose_types();
  std::vector<int64_t> shape(const op::Param& param, const Assignment& assignment);
  // Empty where the tensor is inferred.
  std::optional<op::SpecValue> tensors(const op::Param& param, const Assignment& assignment);
  std::optional<op::SpecValue> scalar(const op::Param& param, const Assignment& assignment);
  // Adds the inferred outputs to the spec, so that they get layouts, too.
  void add_inferred_outputs(op::CallSpec& spec, const op::Call& call) const;
  void lay_out(op::CallSpec& spec);
  void alias(op::CallSpec& spec);

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  Random random_;
  SizeSolver solver_;
  LayoutGenerator layouts_;
  std::map<std::string, ShuffleBag<DType>> types_;
  std::map<std::string, DType> chosen_types_;
  std::map<std::string, ShuffleBag<int>> scalars_;  // by parameter
  std::map<const op::Clause*, ShuffleBag<char>> aliases_;
  ShuffleBag<uint32_t> flags_;
  ShuffleBag<Contents> contents_;
};

}  // namespace yard::tune
