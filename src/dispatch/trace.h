// SPDX-License-Identifier: Apache-2.0
// What a TraceScope collects: calls that are recorded instead of run (yard/trace.h).
#pragma once

#include <yard/detail/function.h>
#include <yard/plugin.h>
#include <yard/trace.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "op/program.h"

namespace yard::detail {

// The calls that a TraceScope records. Any thread.
class Tracer {
 public:
  // A call that fits. `spec` is its text.
  void add(const op::Program& program, const yard_value_t* args, std::string spec,
           std::string_view kernel, std::string_view note);
  // A call of a dispatched function, before it runs. Its use of tensors is not declared, so each counts as read and then
  // written.
  void add(std::string function, const std::vector<ShownArgument>& args, std::string_view backend,
           std::string_view note);
  std::vector<TraceNode> nodes() const;

 private:
  // The address of a tensor's elements; without data, its origin. Null: unknown, unlike all others.
  using Place = const void*;
  static Place place_of(const yard_tensor_t& t);
  // The value at a place; a new one if the place is new.
  int64_t read(Place place);
  struct Written {
    size_t arg;
    Place place;
  };
  // Everything of a call is read before anything is written.
  void finish(TraceNode node, const std::vector<Written>& written);

  mutable base::Mutex lock_{base::Rank::kOutput};
  std::vector<TraceNode> nodes_;
  std::map<Place, int64_t> latest_;
  int64_t values_ = 0;
};

}  // namespace yard::detail
