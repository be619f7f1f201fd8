// SPDX-License-Identifier: Apache-2.0
// A call as plain data (yard/call_spec.h), and questions about the tensors of a call.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <optional>
#include <string>

#include "op/call.h"
#include "op/program.h"

namespace yard::verification {

ParsedCall parsed_call(const op::Program& program, const op::Call& call);

// Calls f(tensor, place in its list or -1, parameter) for every tensor.
template <class F>
void for_each_tensor(const op::Program& program, const yard_value_t* args, const F& f) {
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    if (args[i].tag == YARD_TAG_TENSOR) f(*args[i].u.tensor, -1, p);
    if (args[i].tag != YARD_TAG_LIST) continue;
    for (uint32_t k = 0; k < args[i].count; ++k) f(*args[i].u.list[k], static_cast<int>(k), p);
  }
}
// "x", or "xs[1]" for a tensor of a list.
std::string tensor_name(const std::string& param, int item);

bool on_host(const op::Program& program, const yard_value_t* args) noexcept;
// Bytes that copies of all tensors take; with strides, more than their elements.
double copy_bytes(const op::Program& program, const yard_value_t* args);
// The first float that is not finite in the tensors that the call reads, or in those it writes.
struct NotFiniteArg {
  std::string where;  // "out[3,17]"
  double value = 0;
};
std::optional<NotFiniteArg> first_not_finite(const op::Program& program, const yard_value_t* args,
                                             bool written);

}  // namespace yard::verification
