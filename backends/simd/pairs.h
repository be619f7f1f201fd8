// SPDX-License-Identifier: Apache-2.0
// Products of bf16 by instructions that add two products at once to an f32 sum: `bfdot` of Arm,
// `vdpbf16ps` and the tiles (AMX) of x86. These instructions treat subnormal numbers as zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace yard::simd {

// A matrix of pairs of bf16, 32 bits each. Data need not be aligned, and strides are in bytes.
struct PairMatrix {
  const char* data;
  int64_t row, column;
};

// Sums over t < count of both products of a(r, t) and b[t][c], for r < rows and c < columns. Rows
// of `b` and `to` are `stride` apart.
struct PairSums {
  PairMatrix a;
  size_t rows, count;
  const uint32_t* b;
  float* to;
  size_t stride, columns;  // multiples of kPairColumns
  // The next `next_rows` rows of `count` pairs that will be multiplied. Up to `rows` of them may be
  // prefetched.
  PairMatrix next{};
  size_t next_rows = 0;
};
inline constexpr size_t kPairColumns = 16;

struct PairProducts {
  const char* name;
  // Computes to[r][c] = sum * factor.
  void (*multiply)(const PairSums& sums, float factor);
  // Computes to[r][c] += sum.
  void (*add)(const PairSums& sums);
  // Computes to[i][j] = from[j][i] for 16 rows of 16 elements of 32 bits. Distances are in bytes.
  void (*turn)(const char* from, int64_t from_row, char* to, int64_t to_row);
  size_t columns;  // the width of `b` that is fastest
  // Call these around multiply() and add() on each thread. Null if nothing is needed.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

// Returns the products that this machine supports, the fastest first, ended by null. The list is
// constant. pair_products() returns the first of them, or null.
const PairProducts* const* all_pair_products() noexcept;
inline const PairProducts* pair_products() noexcept { return all_pair_products()[0]; }

}  // namespace yard::simd
