// SPDX-License-Identifier: Apache-2.0
// Times kernels beside a plain copy. The paths alternate, so that noise affects them equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// Runs a path n times and returns the nanoseconds of one run.
using Timed = std::function<double(int64_t n)>;

// Returns the median time of each path, in nanoseconds. All rounds together last about `seconds`. A
// path that takes longer than a tenth of a second is measured only three times.
std::vector<double> time_in_turn(const std::vector<Timed>& paths, double seconds);

// Copies half of `bytes` to the other half, which moves `bytes` bytes.
class Copy {
 public:
  explicit Copy(uint64_t bytes);
  Timed one_thread() const;
  // Splits the copy over the host's threads.
  Timed all_threads() const;

 private:
  size_t half_;
  std::shared_ptr<char[]> from_, to_;
};

}  // namespace yard::tool
