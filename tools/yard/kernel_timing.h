// SPDX-License-Identifier: Apache-2.0
// The calls of the built-in ops that kernels are measured on, and timing kernels beside a plain copy: all in turn, round after round, so that noise affects them equally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace yard::tool {

// The ops that are measured, in the order of the documentation.
const std::vector<std::string>& measured_ops();

// The call as text, with an output of `rows` rows of `hidden` elements. Rotary embeddings have
// heads of 128, a quarter as many for keys, and tables as long as there are rows.
std::string measured_call(const std::string& op, const std::string& dtype, int64_t rows,
                          int64_t hidden);

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
