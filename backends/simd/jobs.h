// SPDX-License-Identifier: Apache-2.0
// The jobs that kernels pass to the functions of every instruction set that compute rows.
#pragma once

#include "quant.h"
#include "rows.h"

namespace yard::simd {

struct Gate {
  enum Function { kSilu, kGeluErf, kGeluTanh };
  RowWalk<2> walk;  // out, x
  int64_t width;    // of out; x has twice as much
  uint32_t dtype;
  Function function;
  bool stream;  // whether stores bypass the caches, here and below
};

struct Softmax {
  RowWalk<2> walk;  // out, x
  int64_t width;
  uint32_t dtype;
};

struct Norm {
  RowWalk<3> walk;            // out, x, residual
  const void *weight, *bias;  // null if absent
  int64_t width;
  double eps;
  uint32_t dtype;
  bool stream;
};

struct Elementwise {
  enum Function { kAdd, kMul };
  RowWalk<3> walk;  // out, a, b
  int64_t width;
  uint32_t dtype;
  Function function;
  bool stream;
};

struct Largest {
  float value;
  int64_t index;
};

struct Argmax {
  RowWalk<2> walk;  // out, x; a row of out is one index
  int64_t width;    // of x
  uint32_t dtype;
  bool wide;  // indices are i64, else i32
};

// The most experts of topk_softmax that fit its buffers.
inline constexpr int64_t kMostExperts = 1024;

struct Topk {
  RowWalk<3> walk;  // weights, ids, x
  int64_t k, experts;
  uint32_t dtype;
  bool renormalize;
};

struct Matmul {
  // Rows and columns of a block of results. kColumns is a multiple of every pair of vectors.
  static constexpr int64_t kRows = 128, kColumns = 32;
  // Few rows do not justify a copy of `b`, whose rows are then read in parts of kWide columns.
  static constexpr int64_t kFewRows = 8, kWide = 512;
  RowWalk<3> walk;  // out, a, b; a row is a matrix
  int64_t m, n, k;
  int64_t out_row, a_row, a_step, b_row, b_step;  // bytes to the next row, or to the next element
  int64_t panels, parts;                          // blocks of columns, and of rows
  uint32_t dtype;

  bool has_few_rows() const noexcept {
    return m <= kFewRows && b_step == (dtype == YARD_F32 ? 4 : 2);
  }
};

struct QuantizeRows {
  RowWalk<3> walk;  // out, scale, x; a row of scale is one number
  int64_t width;
  uint32_t dtype;  // of x
};

struct Expand {
  RowWalk<3> walk;  // out; source or ids; scales
  int64_t width = 0;
  uint32_t dtype = 0, from_dtype = 0;
  Format format = Format::kI8;  // used if from_dtype is not a float
  const char* table = nullptr;  // table of embedding
  int64_t table_stride = 0;     // bytes
  bool wide_ids = false;        // i64, else i32
};

struct Rotary {
  RowWalk<3> walk;                     // query, key, positions; a row is a token
  int64_t heads = 0, head_stride = 0;  // of query, in elements
  int64_t key_heads = 0, key_head_stride = 0;
  int64_t dims = 0;  // rotated dimensions of a head
  bool interleaved = false;
  bool wide_positions = false;  // i64, else i32
  // The tables, or null if angles come from `base`.
  const char *cos = nullptr, *sin = nullptr;
  int64_t cos_stride = 0, sin_stride = 0;  // in bytes
  uint32_t cos_dtype = 0, sin_dtype = 0;
  double base = 0;
  uint32_t dtype = 0;
};

}  // namespace yard::simd
