// SPDX-License-Identifier: Apache-2.0
// Answers of a running process as the types of the library. Members that are missing or of another
// type count as nothing, because a process of another version may know more or less.
#pragma once

#include <yard/stats.h>

#include <string>
#include <vector>

#include "json.h"

namespace yard::tool {

// From an answer to `stats`.
RuntimeStats read_stats(const Json& answer);

// "0.08", "2.1", "540".
std::string factor_text(double factor);

// A kernel that serves a class of calls and takes much longer for it than another one has taken.
struct SlowerKernel {
  std::string op, call, kernel, faster;
  double ns = 0, faster_ns = 0;  // mean times
  uint64_t calls = 0;            // between the two answers

  double lost_ns() const { return static_cast<double>(calls) * (ns - faster_ns); }
  std::string text() const;
};
// Those in use between two answers of a process, the most time lost first.
std::vector<SlowerKernel> slower_kernels(const RuntimeStats& before, const RuntimeStats& now);

}  // namespace yard::tool
