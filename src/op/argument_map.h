// SPDX-License-Identifier: Apache-2.0
// Argument maps: how the parameters of a kernel that has parameters of its own are filled from those of the op, and what
// must be done to an argument before the kernel can take it.
//
// What a parameter requires is a list of predicates over the call (predicate.h). An argument for which all of them hold is
// passed on as it is; otherwise it needs a transform: a copy in another order, dtype or padding. The selector adds the
// cost of these, the keys of the plan cache are compiled from the same predicates, and the executor evaluates them again
// for the call at hand.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "op/predicate.h"
#include "op/schema.h"

namespace yard::op {

class Program;

// Kinds of transforms; bits.
enum Transform : uint32_t {
  kPermute = 1,     // other order of dimensions
  kContiguous = 2,  // without gaps
  kCast = 4,
  kAlign = 8,
  kPad = 16,
};
// "permute, cast"
std::string transforms_text(uint32_t bits);

// A parameter as its descriptor states it, with strings of its own.
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

// One parameter of a kernel, resolved.
struct KernelParam {
  std::string name;
  int source = -1;  // the op's parameter; -1: constant
  yard_value_t constant{};
  std::string text;  // of a constant string
  bool read = true, written = false;
  AxisOrder order;      // of the dimensions for the kernel
  uint64_t dtypes = 0;  // 0: any
  int64_t pad = 0;
  struct Requirement {
    Transform kind;
    Predicate predicate;  // about one tensor
  };
  std::vector<Requirement> requirements;  // without one, an argument is always passed on

  // The transforms that the tensor needs, which has facts; 0: none.
  uint32_t transforms(const yard_tensor_t& t) const noexcept;
  // The dtype in which the kernel gets a tensor; invalid: it takes no such tensor.
  DType dtype_for(DType dtype) const noexcept;
  // The dtypes of arguments that it takes, as they are or converted.
  uint64_t accepted() const noexcept;
};

struct ArgumentMap {
  std::vector<KernelParam> params;
  // The kernel takes the op's own arguments where none needs a transform.
  bool in_order = false;
  std::string signature;  // one letter per parameter, as in plugin.h's `typed`

  // An error names what is wrong with the parameters. `fixed` are parameters of the op whose value a limit or the verifier
  // decides on, so that the kernel need not take them.
  static Result<ArgumentMap> resolve(const Program& program, std::span<const ParamText> params,
                                     std::span<const std::string> fixed);
};

// The estimated time of one transform, from the bytes read and written. A fixed figure, so that the order of kernels does
// not depend on when it was measured.
inline double transform_ns(double bytes) noexcept { return 100 + bytes * 0.125; }

}  // namespace yard::op
