// SPDX-License-Identifier: Apache-2.0
// Times kernels beside a plain copy, all in turn and round after round, so that noise affects them
// equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Runs something n times and returns the nanoseconds that each run took.
using Timed = std::function<double(int64_t n)>;

// The median of each over rounds that last about `seconds` together. A batch lasts some
// milliseconds. A path that takes longer than a tenth of a second runs only three times.
std::vector<double> time_in_turn(const std::vector<Timed>& paths, double seconds);

// Copies that move `bytes` bytes: half of them are read, half of them are written.
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
