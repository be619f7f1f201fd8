// SPDX-License-Identifier: Apache-2.0
// Reads answers of a running process as types of the library. Members that are missing or have
// another type are ignored, because a process of another version may know more or less.
#pragma once

#include <yard/stats.h>

#include <string>
#include <vector>

#include "json.h"

namespace yard::tool {

RuntimeStats read_stats(const Json& answer);

// Formats a factor: "0.08", "2.1", "540".
std::string factor_text(double factor);

// A kernel that serves a class of calls and takes at least twice as long as another kernel took.
struct SlowerKernel {
  std::string op, call, kernel, faster;
  double ns = 0, faster_ns = 0;  // mean times
  uint64_t calls = 0;            // between the two answers

  double lost_ns() const { return static_cast<double>(calls) * (ns - faster_ns); }
  std::string text() const;
};
// Returns the slower kernels in use between two answers, with the largest loss of time first.
std::vector<SlowerKernel> slower_kernels(const RuntimeStats& before, const RuntimeStats& now);

}  // namespace yard::tool
