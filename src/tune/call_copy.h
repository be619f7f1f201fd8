// SPDX-License-Identifier: Apache-2.0
// Copies of a call's tensors, strided as they are, so that it can be run a second time.
#pragma once

#include <yard/call_spec.h>
#include <yard/plugin.h>

#include <deque>
#include <string>
#include <vector>

#include "op/program.h"
#include "tune/buffer.h"

namespace yard::tune {

// Whether every tensor lies in memory of the host.
bool on_host(const op::Program& program, const yard_value_t* args) noexcept;
// Bytes that copies of all tensors take: with strides this may be more than their elements.
double copy_bytes(const op::Program& program, const yard_value_t* args);
// Whether the floats that a call reads are finite numbers, all of them; or those it writes, and if not, the first
// that is none: "out[3,17]".
bool reads_finite(const op::Program& program, const yard_value_t* args);
bool writes_finite(const op::Program& program, const yard_value_t* args, std::string& where,
                   double& value);

// Arguments and program must outlive it. Throws std::bad_alloc.
class CallCopy {
 public:
  // `outputs`: with memory for what is only written; else those arguments are missing.
  CallCopy(const op::Program& program, const yard_value_t* args, bool outputs);
  CallCopy(const CallCopy&) = delete;
  CallCopy& operator=(const CallCopy&) = delete;

  // The call on the copies. No output is an input, even where that is so in the call itself.
  const yard_value_t* args() const noexcept { return args_; }
  uint32_t count() const noexcept { return count_; }

  // What inputs() gives stays as it is now, although a kernel writes over it.
  void remember();
  // What is read, in the order of the schema.
  std::vector<TensorBytes> inputs() const;

  // Tensors that are written: the call's own, and the copies.
  std::vector<WrittenTensor> original() const;
  std::vector<WrittenTensor> copied() const;
  // The copies' elements into the call's own.
  void write_back() const;

 private:
  struct Copied {
    Copied(const yard_tensor_t& t, std::string n, const op::Param& p);
    TensorView original;
    Buffer buffer;
    std::string name;
    bool read, written, remembered = false;
  };
  const yard_tensor_t* hold(const yard_tensor_t& t, std::string name, const op::Param& param);

  std::deque<Copied> held_;
  std::deque<std::vector<const yard_tensor_t*>> lists_;
  yard_value_t args_[YARD_MAX_ARGS] = {};
  uint32_t count_ = 0;
};

}  // namespace yard::tune
