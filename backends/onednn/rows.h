// SPDX-License-Identifier: Apache-2.0
// Finds the rows of f32 that oneDNN's arithmetic gets wrong, and computes them in double.
#pragma once

#include <yard/plugin.hpp>

#include <atomic>
#include <cstdint>
#include <span>

namespace yard::onednn {

// The least and the greatest bit pattern of a row, in the order -NaN, -inf, ..., -0, 0, ..., inf,
// NaN. They are found with integer compares only, several elements at once.
struct Range {
  int32_t low, high;
  bool finite() const noexcept;                  // no infinity and no NaN
  bool negative_only_infinity() const noexcept;  // every element is -inf
  bool has_nan_or_infinity() const noexcept;     // a NaN or +inf; -inf does not count
  float least() const noexcept;
  float greatest() const noexcept;
};
Range range_of(const float* row, int64_t width) noexcept;

// Whether the softmax of such a row is NaN throughout, which oneDNN does not always give.
bool softmax_is_nan(const Range& r) noexcept;

// Returns whether f32 sums serve layer_norm for such a row: squares must neither overflow nor
// vanish, and the mean must not be so large that differences from it lose their digits.
bool suits_layer_norm(const Range& r, double eps) noexcept;
// Returns whether weights or biases in that range can be multiplied and added in f32.
bool suits_scaling(const Range& r) noexcept;

// Scales a row of probabilities so that their sum, taken in double, is 1 if it has drifted.
void settle_sum(float* row, int64_t width) noexcept;

// Computes one row as the op defines it. `out` may be `x`. `weight` and `bias` may be null.
void layer_norm_row(float* out, const float* x, const float* weight, const float* bias,
                    int64_t width, double eps) noexcept;

// Returns the least number of rows for one piece of a parallel_for.
inline int64_t rows_per_piece(int64_t width) noexcept { return 1 + (int64_t{1} << 15) / width; }

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

// Returns `count` values in the host's memory, which live until the call ends. Returns an empty
// span if memory runs out.
template <class T>
std::span<T> scratch(plugin::Call call, int64_t count) {
  const yard_host_t* host = call.c()->host;
  const auto bytes = static_cast<uint64_t>(count) * sizeof(T);
  void* at = host && host->scratch ? host->scratch(host->self, call.c(), bytes) : nullptr;
  return at ? std::span<T>(static_cast<T*>(at), static_cast<size_t>(count)) : std::span<T>();
}

}  // namespace yard::onednn
