// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of call memos: kernels that record how they were run.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "testing.h"

namespace yard::testing {

struct Outcome {
  Code code = Code::kOk;
  intptr_t kernel = 0;
  uint32_t flags = 0;
  bool operator==(const Outcome&) const = default;
};
inline void PrintTo(const Outcome& r, std::ostream* to) {
  *to << "code " << static_cast<int>(r.code) << ", kernel " << r.kernel << ", flags " << r.flags;
}

inline thread_local intptr_t t_kernel;
inline thread_local uint32_t t_flags;
inline int32_t note(yard_call_t* call) {
  t_kernel = reinterpret_cast<intptr_t>(call->self), t_flags = call->flags;
  return YARD_OK;
}
template <class F>
Outcome result_of(const F& call) {
  t_kernel = 0, t_flags = 0;
  const Status s = call();
  return {s.code(), t_kernel, t_flags};
}

using Tensor = const yard_tensor_t*;
inline int32_t run_packed(yard_call_t* call, const yard_value_t*, uint32_t) { return note(call); }

}  // namespace yard::testing
