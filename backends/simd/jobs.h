// SPDX-License-Identifier: Apache-2.0
// What each kernel hands to the functions that do its rows; the same for every instruction set.
#pragma once

#include "rows.h"

namespace yard::simd {

struct Gate {
  enum Function { kSilu, kGeluErf, kGeluTanh };
  RowWalk<2> walk;  // out, x
  int64_t width;    // of out; x has twice as much
  uint32_t dtype;
  Function function;
};

struct Softmax {
  RowWalk<2> walk;  // out, x
  int64_t width;
  uint32_t dtype;
};

struct Norm {
  RowWalk<3> walk;            // out, x, residual
  const void *weight, *bias;  // null where absent
  int64_t width;
  double eps;
  uint32_t dtype;
};

struct Rotary {
  RowWalk<3> walk;                     // query, key, positions; a row is a token
  int64_t heads = 0, head_stride = 0;  // of query; in elements
  int64_t key_heads = 0, key_head_stride = 0;
  int64_t dims = 0;  // of a head that are rotated
  bool interleaved = false;
  bool wide_positions = false;  // i64, else i32
  // Tables, or none and a base.
  const char *cos = nullptr, *sin = nullptr;
  int64_t cos_stride = 0, sin_stride = 0;  // in bytes
  uint32_t cos_dtype = 0, sin_dtype = 0;
  double base = 0;
  uint32_t dtype = 0;
};

}  // namespace yard::simd
