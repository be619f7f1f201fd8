// SPDX-License-Identifier: Apache-2.0
// What a TraceScope collects.
#pragma once

#include <yard/detail/function_text.h>
#include <yard/plugin.h>
#include <yard/trace.h>

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "op/program.h"

namespace yard::detail {

class Tracer {
 public:
  // A call that fits. `spec` is its text.
  void add(const op::Program& program, const yard_value_t* args, std::string spec,
           std::string_view kernel, std::string_view note);
  // A call of a dispatched function, before it runs. Its use of tensors is not declared, so each counts as read and then
  // written.
  void add(std::string function, const void* args,
           void (*describe)(const void* args, SayArgument say, void* to), std::string_view backend,
           std::string_view note);
  std::vector<TraceNode> nodes() const;

 private:
  using Place = const void*;
  // The value at a place; a new one if the place is new.
  int64_t read(Place place);
  void add_tensor(TraceNode& node, const op::Param& param, std::string name,
                  const yard_tensor_t* tensor);

  mutable std::mutex lock_;
  std::vector<TraceNode> nodes_;
  std::map<Place, int64_t> latest_;
  int64_t values_ = 0;
};

}  // namespace yard::detail
