// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by instructions that add two of them at once to a sum in f32: `bfdot` of Arm, `vdpbf16ps` and the tiles (AMX)
// of x86. They take subnormal numbers as zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace yard::simd {

// Pairs of bf16, 32 bits each, in memory, not necessarily aligned, with strides in bytes.
struct PairMatrix {
  const char* data;
  int64_t row, column;
};

// Sums over t < count of both products of a(r, t) and b[t][c], for r < rows and c < columns. Rows of `b` and `to` are
// `stride` apart.
struct PairSums {
  PairMatrix a;
  size_t rows, count;
  const uint32_t* b;
  float* to;
  size_t stride, columns;  // multiples of kPairColumns
  // So many rows of `count` pairs that are needed next. They may be brought into a cache meanwhile.
  PairMatrix next{};
  size_t next_rows = 0;
};
inline constexpr size_t kPairColumns = 16;

struct PairProducts {
  const char* name;
  // to[r][c] = sum * factor
  void (*multiply)(const PairSums& sums, float factor);
  // to[r][c] += sum
  void (*add)(const PairSums& sums);
  // to[i][j] = from[j][i] for 16 rows of 16 elements of 32 bits. Rows are so many bytes apart.
  void (*turn)(const char* from, int64_t from_row, char* to, int64_t to_row);
  size_t columns;  // of a matrix `b` that is multiplied most quickly
  // Around calls of multiply() and add(), on each thread. Null: nothing to do.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

// Those that this machine has, the fastest first, ended by null; constant. And the first of them, null: none.
const PairProducts* const* all_pair_products() noexcept;
inline const PairProducts* pair_products() noexcept { return all_pair_products()[0]; }

}  // namespace yard::simd
