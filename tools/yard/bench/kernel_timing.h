// SPDX-License-Identifier: Apache-2.0
// Timing kernels beside a plain copy: all in turn, round after round, so that noise affects them equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Runs something n times and gives the nanoseconds each took.
using Timed = std::function<double(int64_t n)>;

// The median of each over rounds taken in turn for about `seconds`. A batch lasts some milliseconds;
// a path that takes longer than a tenth of a second is run only three times.
std::vector<double> time_in_turn(const std::vector<Timed>& paths, double seconds);

// Copies that move `bytes` in all: half of them read, half of them written.
class Copy {
 public:
  explicit Copy(uint64_t bytes);
  Timed one_thread() const;
  // Split over the host's threads.
  Timed all_threads() const;

 private:
  size_t half_;
  std::shared_ptr<char[]> from_, to_;
};

}  // namespace yard::tool
