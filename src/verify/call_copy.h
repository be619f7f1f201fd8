// SPDX-License-Identifier: Apache-2.0
// A call as plain data (yard/call_spec.h), and copies of its tensors with the same strides, so that it can be run again.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "op/call.h"
#include "op/program.h"
#include "verify/elements.h"

namespace yard::verification {

ParsedCall parsed_call(const op::Program& program, const op::Call& call);

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

// Arguments and program must outlive it. Throws std::bad_alloc.
class CallCopy {
 public:
  // Without `outputs`, arguments that are only written are missing from the copy.
  CallCopy(const op::Program& program, const yard_value_t* args, bool outputs);
  CallCopy(const CallCopy&) = delete;
  CallCopy& operator=(const CallCopy&) = delete;

  // The call on the copies. Outputs aliased to an input in the call have memory of their own here.
  const yard_value_t* args() const noexcept { return args_; }
  uint32_t count() const noexcept { return count_; }

  // Makes inputs() return the contents of now, even after a kernel has overwritten them.
  void save_inputs();
  // The tensors that are read, in schema order.
  std::vector<TensorBytes> inputs() const;

  // The tensors that are written: those of the call, and the copies.
  std::vector<CallTensors::Written> originals() const { return written(true); }
  std::vector<CallTensors::Written> copies() const { return written(false); }
  // Copies the results from the copies to the tensors of the call.
  void write_back() const;

 private:
  struct Copy {
    TensorView original;
    Buffer buffer;
    std::string name;
    bool read, written;
  };
  const yard_tensor_t* add(const yard_tensor_t& t, std::string name, const op::Param& param);
  std::vector<CallTensors::Written> written(bool originals) const;

  std::deque<Copy> copies_;
  std::deque<std::vector<const yard_tensor_t*>> lists_;
  yard_value_t args_[YARD_MAX_ARGS] = {};
  uint32_t count_ = 0;
};

}  // namespace yard::verification
