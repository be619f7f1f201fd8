// SPDX-License-Identifier: Apache-2.0
// Maps the arguments of an op to a kernel that declares different parameters, and says how an
// argument must be transformed before the kernel can take it.
//
// The requirements of a parameter are predicates over the call (predicate.h). An argument that
// fulfils all of them is passed on. Any other needs a transform: a copy in another order, dtype or
// padding. The selector adds the cost of transforms, the keys of the plan cache are compiled from
// the same predicates, and the executor evaluates them again for each call.
#pragma once

#include "op/predicate.h"

namespace yard::op {

class Program;

// Bits. transforms_text() names them.
enum Transform : uint32_t {
  kPermute = 1,     // another order of dimensions
  kContiguous = 2,  // no gaps
  kCast = 4,
  kAlign = 8,
  kPad = 16,
};
std::string transforms_text(uint32_t bits);

// A parameter as its descriptor states it.
struct ParamText {
  std::string name, source, layout;
  uint32_t flags = 0;  // YARD_PARAM_*
  uint64_t dtypes = 0;
  int64_t align = 0, pad = 0;
  yard_value_t constant{};
  std::string text;  // of a constant string

  bool is_constant() const noexcept { return (flags & YARD_PARAM_CONSTANT) != 0; }
};
bool same(const ParamText& a, const ParamText& b) noexcept;

struct KernelParam {
  std::string name;
  int source = -1;  // the op's parameter; -1 if it is constant
  yard_value_t constant{};
  std::string text;  // of a constant string
  bool read = true, written = false;
  AxisOrder order;      // in which the kernel takes the dimensions
  uint64_t dtypes = 0;  // 0 if any will do
  int64_t pad = 0;
  struct Requirement {
    Transform kind;
    Predicate predicate;  // about one tensor
  };
  std::vector<Requirement> requirements;

  // Returns the transforms that a tensor with facts needs, or 0 if it is passed on.
  uint32_t transforms(const yard_tensor_t& t) const noexcept;
  // Returns the dtype in which the kernel gets a tensor, or DType::invalid if it does not take it.
  DType dtype_for(DType dtype) const noexcept;
  // Returns the dtypes that the kernel takes, as they are or converted.
  uint64_t accepted() const noexcept;
};

struct ArgumentMap {
  std::vector<KernelParam> params;
  // Whether the kernel takes the op's own arguments if none needs a transform.
  bool in_order = false;
  std::string signature;  // one letter per parameter, as in plugin.h's `typed`

  // `fixed` are parameters of the op that the kernel need not take, since a limit or the verifier
  // decides on their value.
  static Result<ArgumentMap> resolve(const Program& program, std::span<const ParamText> params,
                                     std::span<const std::string> fixed);
};

// Returns the estimated time of one transform from the bytes read and written. The rate is not
// measured, so that the order of kernels is the same in every run.
inline double transform_ns(double bytes) noexcept { return 100 + bytes * 0.125; }

}  // namespace yard::op
