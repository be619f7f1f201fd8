// SPDX-License-Identifier: Apache-2.0
// Collects the calls that a TraceScope records instead of running them (yard/trace.h).
#pragma once

#include <yard/detail/function.h>
#include <yard/trace.h>

#include "base/mutex.h"
#include "op/call_spec.h"
#include "op/program.h"

namespace yard::detail {

// Thread-safe.
class Tracer {
 public:
  void add(const op::Program& program, const yard_value_t* args, const op::CallSpec& spec,
           std::string_view kernel, std::string_view note);
  // Call this before the function runs. Each tensor counts as read and then written.
  void add(std::string function, const std::vector<ShownArgument>& args, std::string_view backend,
           std::string_view note);
  std::vector<TraceNode> nodes() const;

 private:
  struct Use {
    size_t arg;
    const void* place;  // the tensor's elements, its origin if it has no data, or null if unknown
    bool reads, writes;
  };
  static Use use_of(size_t arg, const yard_tensor_t& t, bool reads, bool writes);
  // A call reads all its tensors before it writes any.
  void add(TraceNode node, const std::vector<Use>& uses);

  mutable base::Mutex lock_{base::Rank::kOutput};
  std::vector<TraceNode> nodes_;
  std::map<const void*, int64_t> latest_;  // the value at each place
  int64_t values_ = 0;
};

}  // namespace yard::detail
