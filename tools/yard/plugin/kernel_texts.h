// SPDX-License-Identifier: Apache-2.0
// Simple kernels of built-in ops as text, for C and for C++.
#pragma once

#include <string_view>

namespace yard::tool {

// A kernel that computes one row after the other. In `rows`, `locals` and `call` @data_x@ is the pointer to x, @maybe_x@ the
// same or null, @index_x@ a pointer to i64, @last_x@ its last dimension, @second_x@ and @third_x@ those before, @rows_x@ the
// product of all but the last, @count_x@ of all.
struct KernelText {
  const char* op;
  const char*
      limits;  // words: `F32` a dtype of all, `x:F32` of one, `compact`, `+x` present, `-x` absent, `x=0`
  const char* row;     // the function `row`
  const char* rows;    // how many there are
  const char* locals;  // declarations before the loop
  const char* call;    // arguments of `row` for row number r
};

// Null for an op without one.
const KernelText* kernel_text(std::string_view op);

}  // namespace yard::tool
