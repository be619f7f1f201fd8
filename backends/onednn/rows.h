// SPDX-License-Identifier: Apache-2.0
// Rows of f32: finding those that oneDNN's arithmetic does not suit, and computing them in double.
#pragma once

#include <yard/plugin.hpp>

#include <atomic>
#include <cstdint>
#include <span>

namespace yard::onednn {

// The least and the greatest bit pattern of a row, in the order of the numbers: -NaN, -inf, ..., -0, 0,
// ..., inf, NaN. Found with integer compares only, several elements at once.
struct Range {
  int32_t low, high;
  bool finite() const noexcept;                  // nothing infinite, nothing NaN
  bool negative_only_infinity() const noexcept;  // nothing but -inf
  bool has_nan_or_infinity() const noexcept;     // a NaN or +inf; -inf does not count
  float least() const noexcept;
  float greatest() const noexcept;
};
Range range_of(const float* row, int64_t width) noexcept;

// A softmax of such a row is NaN throughout; oneDNN's is not always.
bool softmax_is_nan(const Range& r) noexcept;

// Whether f32 sums serve layer_norm for such a row: values whose squares neither overflow nor vanish, and
// an offset that does not drown the differences.
bool suits_layer_norm(const Range& r, double eps) noexcept;
// Whether weights or biases of that range can be multiplied and added in f32.
bool suits_scaling(const Range& r) noexcept;

// Brings the sum of a row of probabilities to 1 where it drifted; the sum is taken in double.
void settle_sum(float* row, int64_t width) noexcept;

// One row as the op is defined, in double; `out` may be `x`. `weight` and `bias` may be null.
void layer_norm_row(float* out, const float* x, const float* weight, const float* bias,
                    int64_t width, double eps) noexcept;

// Rows that one piece of a parallel_for should have at least.
inline int64_t rows_per_piece(int64_t width) noexcept { return 1 + (int64_t{1} << 15) / width; }

// How many rows unsuited(row) holds for; any number of threads look.
template <class Unsuited>
int64_t count_rows(plugin::Call call, int64_t rows, int64_t width, const Unsuited& unsuited) {
  std::atomic<int64_t> count{0};
  call.parallel_for(rows, rows_per_piece(width), [&](int64_t begin, int64_t end) {
    int64_t mine = 0;
    for (int64_t r = begin; r < end; ++r) mine += unsuited(r) ? 1 : 0;
    if (mine != 0) count.fetch_add(mine, std::memory_order_relaxed);
  });
  return count.load(std::memory_order_relaxed);
}

// `count` things of the host's memory, there until the call ends; empty when there is none.
template <class T>
std::span<T> scratch(plugin::Call call, int64_t count) {
  const yard_host_t* host = call.c()->host;
  const auto bytes = static_cast<uint64_t>(count) * sizeof(T);
  void* at = host && host->scratch ? host->scratch(host->self, call.c(), bytes) : nullptr;
  return at ? std::span<T>(static_cast<T*>(at), static_cast<size_t>(count)) : std::span<T>();
}

}  // namespace yard::onednn
