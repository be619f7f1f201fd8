// SPDX-License-Identifier: Apache-2.0
// Generates test calls of an op from its schema and from a kernel's limits, if any. Equal seeds
// give equal calls. Each choice has a separate shuffle bag, so few calls cover all values.
#pragma once

#include <yard/call_spec.h>
#include <yard/config.h>

#include "op/call.h"
#include "verify/size_solver.h"

namespace yard::verification {

struct Case {
  op::Call call;
  Contents contents = Contents::kNormal;
  uint64_t seed = 0;  // of the contents
};

// The requirements that a kernel's limits make of a call.
struct CallLimits {
  SizeLimits sizes;
  std::map<std::string, uint64_t> dtypes;                       // masks by variable
  std::map<std::string, std::vector<op::IntegerTest>> scalars;  // by bool or enum argument
  struct Layout {
    bool compact = false, inner_dense = false, plain = false;
    uint32_t align = 1;
  };
  std::map<std::string, Layout> layouts;  // by tensor argument
  uint32_t flags = 0;                     // of every call

  // `flags` are bits YARD_KERNEL_*.
  static CallLimits of(const op::Program& program, std::span<const op::Predicate> limits,
                       uint32_t flags);
};

// Implements sample_calls() of yard/verify.h. `op` has the shape function, if one is needed.
std::vector<std::string> sample_calls(const op::Program& program, const yard_op_t* op,
                                      std::span<const Config> configs, size_t limit);

// Returns the dtypes that the schema allows for each variable, or `usual` if it leaves them open.
std::map<std::string, std::vector<DType>> types_by_variable(const op::Schema& schema,
                                                            std::span<const DType> usual);
// Whether the inputs or the shape function of `op` determine this output.
bool is_inferred(const op::Program& program, const yard_op_t* op, const op::Param& param);
// Returns the name of a field in rules, or an empty text.
std::string field_name(const op::Program& program, const op::Field& field);
// Returns the shape of a tensor with these sizes. vary(d, sizes) may change the sizes of a
// dimension or leading group, and chooses the sizes of unnamed dimensions.
template <class F>
std::vector<int64_t> shape_of(const op::Param& param, const Assignment& assignment, const F& vary) {
  std::vector<int64_t> to;
  for (const op::Dim& d : param.dims) {
    std::vector<int64_t> sizes{d.number};
    if (d.kind == op::Dim::Kind::kNamed) sizes[0] *= assignment.numbers.at(d.name);
    if (d.kind == op::Dim::Kind::kLeading) sizes = assignment.groups.at(d.name);
    vary(d, sizes);
    to.insert(to.end(), sizes.begin(), sizes.end());
  }
  return to;
}
// Returns strides with `step` for the innermost dimension, and with `gap` elements between rows.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape, int64_t step, int64_t gap);

class Generator {
 public:
  // Generates calls for a kernel with these limits, or from the schema alone. Borrows its
  // arguments.
  Generator(const op::Program& program, const yard_op_t* op, uint64_t seed, int64_t max_elements,
            const CallLimits* limits = nullptr);

  // Returns nullopt if none of many attempts gives a call that fits the schema.
  std::optional<Case> next();

 private:
  // Without `varied`, tensors are contiguous and apart.
  std::optional<op::Call> attempt(Assignment assignment, bool varied);
  // Makes the last dimensions of block-quantised tensors multiples of their blocks.
  void fit_blocks(Assignment& assignment);
  void broadcast(std::vector<int64_t>& sizes, bool group);
  // Returns nullopt if the tensors are inferred.
  std::optional<op::SpecValue> tensors(const op::Param& param, const Assignment& assignment);
  std::optional<op::SpecValue> scalar(const op::Param& param, const Assignment& assignment);
  // Many calls stay contiguous and aligned, so that kernels that require it are tested, too.
  void lay_out(op::CallSpec& spec);
  void lay_out(op::TensorSpec& tensor, bool written);
  void alias(op::CallSpec& spec);

  enum class Layouts { kContiguous, kMisaligned, kOneTensor, kAllTensors };
  enum class Layout { kRowPadded, kTransposed, kInnerStep, kBroadcast, kNegative, kMisaligned };

  const op::Program& program_;
  const op::Schema& s_;
  const yard_op_t* op_;
  CallLimits limits_;
  Random random_;
  SizeSolver solver_;
  ShuffleBag<Layouts> layouts_of_call_;
  ShuffleBag<Layout> layouts_;
  std::map<std::string, ShuffleBag<DType>> types_;
  VariableTypes chosen_types_;
  std::map<std::string, ShuffleBag<int>> scalars_;  // by parameter
  std::map<const op::Clause*, ShuffleBag<char>> aliases_;
  ShuffleBag<uint32_t> flags_;
  ShuffleBag<Contents> contents_;
  size_t point_count_ = 0;
  ShuffleBag<SizePoint> points_;
  ShuffleBag<char> takes_point_;
};

}  // namespace yard::verification
