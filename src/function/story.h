// SPDX-License-Identifier: Apache-2.0
// What one call of a function has been through, once there is something to tell: who failed, whose probe it is.
#pragma once

#include <yard/detail/function.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "health/probe_slots.h"

namespace yard::detail {

struct FunctionStory {
  std::vector<const char*> failed;            // backends
  std::shared_ptr<health::ProbeSlots> probe;  // which the one that runs has entered, and leaves
  bool watched = false;                       // a success of the one that runs is to be told

  FunctionStory() = default;
  // A call that was given up says nothing.
  ~FunctionStory() {
    if (probe != nullptr) probe->leave(ErrorClass::kDeclined);
  }
  FunctionStory(const FunctionStory&) = delete;
  FunctionStory& operator=(const FunctionStory&) = delete;

  bool has_failed(const FunctionRow& row) const noexcept {
    return std::find(failed.begin(), failed.end(), row.backend) != failed.end();
  }
};

}  // namespace yard::detail

namespace yard::function {

inline detail::FunctionStory& story_of(detail::FunctionTry& so_far) {
  if (so_far.story == nullptr) so_far.story = new detail::FunctionStory;
  return *so_far.story;
}

}  // namespace yard::function
