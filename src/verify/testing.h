// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of this folder: an op `copy`, its reference kernel, and calls from text.
#pragma once

#include <gtest/gtest.h>
#include <yard/plugin.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "op/call.h"
#include "registry/testing.h"
#include "verify/conformance.h"
#include "verify/elements.h"
#include "verify/parsed_call.h"

namespace yard::verification::testing {

inline constexpr const char* kCopy =
    "copy(out!: T[*rows, d], x: T[*rows, d]) where T in {f32, bf16}, out may_alias x";

// Copies a tensor of any strides, with `change` applied to each element.
template <class F>
void copy_with(plugin::Tensor out, plugin::Tensor x, const F& change) {
  const TensorView to(*out.c()), from(*x.c());
  const auto size = static_cast<int64_t>(element_size(to.dtype()));
  std::vector<int64_t> index(static_cast<size_t>(to.rank()), 0);
  for (int64_t left = to.numel(); left > 0; --left) {
    int64_t a = 0, b = 0;
    for (size_t i = 0; i < index.size(); ++i)
      a += index[i] * to.strides()[i], b += index[i] * from.strides()[i];
    const double v = load(to.dtype(), static_cast<char*>(from.data()) + b * size);
    store(to.dtype(), static_cast<char*>(to.data()) + a * size, change(v));
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < to.shape()[i]) break;
      index[i] = 0;
    }
  }
}
inline void copy(plugin::Call, plugin::Tensor out, plugin::Tensor x) {
  copy_with(out, x, [](double v) { return v; });
}

// A registry with the op and its reference kernel `reference.copy`; tests add kernels.
struct CopyOp {
  registry::testing::Shelf shelf;
  yard_kernel_t reference = plugin::Kernel::of<copy>("copy", "reference.copy")
                                .backend("plain")
                                .kind(YARD_KIND_REFERENCE)
                                .flags(YARD_KERNEL_DETERMINISTIC)
                                .d;
  CopyOp() {
    shelf.put(registry::testing::op_of(kCopy), registry::testing::backend_of("plain"),
              registry::testing::backend_of("fault"), reference);
  }

  std::vector<KernelReport> run(std::set<std::string> ids, VerifyOptions options = {}) {
    options.cases = std::min<size_t>(options.cases, 60);
    options.max_elements = 4096;
    used.assign(options.expectations.size(), false);
    return check_conformance({shelf.op_record("copy"), std::move(ids), {}}, options, used).kernels;
  }
  // Returns the report of one kernel.
  KernelReport verify(const yard_kernel_t& kernel, VerifyOptions options = {}) {
    shelf.put(kernel);
    return run({kernel.id}, std::move(options)).at(0);
  }

  std::vector<bool> used;
};

inline ParsedCall parse(const char* schema, const char* text) {
  const op::Program program = op::Program::compile(schema).value();
  return parsed_call(program,
                     op::Call::from_spec(program, op::parse_call_spec(text).value()).value());
}

}  // namespace yard::verification::testing
