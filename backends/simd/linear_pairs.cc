// SPDX-License-Identifier: Apache-2.0
// `linear` of bf16 by products of pairs: weights times the transposed activations. Rows of weights
// hold consecutive pairs and are used in place. Activations are transposed once per call, and
// results before they are stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_pairs.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "linear.h"
#include "linear_pairs.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Stores a row of `count` sums plus biases. Both arrays have room for kWeightRows values.
void store_row(const float* sums, const float* bias, size_t count, char* out) {
  BF16* const to = reinterpret_cast<BF16*>(out);
  const size_t pair = pair_lanes();
  VF a, b, bias_a, bias_b;
  for (size_t i = 0; i < count; i += pair) {
    load2_like<BF16>(sums + i, a, b), load2_like<BF16>(bias + i, bias_a, bias_b);
    a = hn::Add(a, bias_a), b = hn::Add(b, bias_b);
    if (i + pair <= count)
      store2_part<true>(a, b, to + i, pair);
    else
      store2_part<false>(a, b, to + i, count - i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(store_row);

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

constexpr int64_t kPair = 4;  // bytes
constexpr int64_t kSquare =
    16;  // rows, and elements of 32 bits in a row, that are turned over together
constexpr int64_t kWeightRows = 32;  // rows of weights that are multiplied together

// The transposed activations: column r of a panel is row r of x in pairs, followed by zeros. Panels
// follow each other, and the last one is narrower if x has few rows.
struct TurnedRows {
  static int64_t pairs_of(int64_t k) {
    return std::max<int64_t>(round_up(k, 2 * kSquare) / 2, kSquare);
  }
  static int64_t columns_of(int64_t rows) { return round_up(rows, kSquare); }

  uint32_t* data;
  int64_t pairs, columns, panel;

  int64_t width(int64_t column) const { return std::min(panel, columns - column / panel * panel); }
  uint32_t* at(int64_t column, int64_t pair) const {
    const int64_t first = column / panel * panel;
    return data + first * pairs + pair * width(column) + (column - first);
  }
};

class LinearPairs {
 public:
  LinearPairs(const PairProducts& products, Call call, const Linear& linear)
      : products_(products),
        linear_(linear),
        weight_(linear.weight.data<char>()),
        // An empty tensor may have no data.
        weight_row_(linear.k > 0 ? stride_bytes(linear.weight, 0) : 0),
        x_{call.workspace<uint32_t>().data(), TurnedRows::pairs_of(linear.k),
           TurnedRows::columns_of(linear.walk.rows()), static_cast<int64_t>(products.columns)},
        parts_((x_.pairs + kDepth - 1) / kDepth),
        weight_blocks_((linear.n + kWeightRows - 1) / kWeightRows),
        row_blocks_((x_.columns + kMostRows - 1) / kMostRows) {}

  void run(Call call) const {
    call.parallel_for(x_.columns / kSquare * parts_, grain_of(kSquare * kDepth * kPair * 4),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i)
                          turn_rows(i / parts_ * kSquare, i % parts_ * kDepth);
                      });
    call.parallel_for(row_blocks_ * weight_blocks_, grain_of(kWeightRows * x_.pairs * kPair),
                      [&](int64_t begin, int64_t end) {
                        if (products_.begin != nullptr) products_.begin();
                        multiply(begin, end);
                        if (products_.end != nullptr) products_.end();
                      });
  }

 private:
  static constexpr int64_t kDepth = 128;     // pairs of a row per multiplication
  static constexpr int64_t kMostRows = 128;  // rows of x per multiplication
  static constexpr int64_t kTogether = 4;    // blocks of weights whose sums are kept
  static constexpr int64_t kManyRows = 64;   // weights are copied for more rows of x

  // Transposes 16 rows of x from `row` on, and kDepth pairs of each from `pair` on.
  void turn_rows(int64_t row, int64_t pair) const {
    const char* from[kSquare];
    const int64_t rows = std::min(linear_.walk.rows() - row, kSquare);
    auto cursor = linear_.walk.from(row);
    for (int64_t r = 0; r < rows; ++r, cursor.next()) from[r] = cursor.at<char>(1);
    alignas(64) char square[kSquare * kSquare * kPair];
    for (const int64_t end = std::min(pair + kDepth, x_.pairs); pair < end; pair += kSquare) {
      const int64_t bytes = std::clamp<int64_t>(linear_.k * 2 - pair * kPair, 0, kSquare * kPair);
      if (rows < kSquare || bytes < kSquare * kPair) std::memset(square, 0, sizeof square);
      for (int64_t r = 0; r < rows && bytes > 0; ++r)
        std::memcpy(square + r * kSquare * kPair, from[r] + pair * kPair,
                    static_cast<size_t>(bytes));
      products_.turn(square, kSquare * kPair, reinterpret_cast<char*>(x_.at(row, pair)),
                     x_.width(row) * kPair);
    }
  }

  // Returns `count` pairs of a block of weights, in place if the block is whole and `copy` is
  // false, otherwise copied to `to` and filled with zeros.
  PairMatrix weights_at(int64_t block, int64_t pair, int64_t count, bool copy, char* to) const {
    const int64_t first = block * kWeightRows, rows = std::min(linear_.n - first, kWeightRows);
    const int64_t bytes = std::clamp<int64_t>(linear_.k * 2 - pair * kPair, 0, count * kPair);
    const char* const from = weight_ + first * weight_row_ + pair * kPair;
    if (!copy && rows == kWeightRows && bytes == count * kPair) return {from, weight_row_, kPair};
    for (int64_t r = 0; r < kWeightRows; ++r) {
      char* const row = to + r * kDepth * kPair;
      const int64_t some = r < rows ? bytes : 0;
      if (some > 0) std::memcpy(row, from + r * weight_row_, static_cast<size_t>(some));
      std::memset(row + some, 0, static_cast<size_t>(count * kPair - some));
    }
    return {to, kDepth * kPair, kPair};
  }

  // Returns the next block to multiply, or null at the ends of the weights.
  PairMatrix weights_ahead(int64_t block, int64_t pair) const {
    if ((block + 1) * kWeightRows > linear_.n || (pair + kDepth) * kPair > linear_.k * 2) return {};
    return {weight_ + block * kWeightRows * weight_row_ + pair * kPair, weight_row_, kPair};
  }

  // Items are the blocks of weights for the first block of rows, then for the second, and so on.
  void multiply(int64_t item, int64_t end) const {
    alignas(64) float sums[kTogether * kWeightRows * kMostRows];
    while (item < end) {
      const int64_t first = item % weight_blocks_, column = item / weight_blocks_ * kMostRows;
      const int64_t count = std::min({end - item, weight_blocks_ - first, kTogether});
      const int64_t columns = std::min(x_.columns - column, kMostRows);
      std::fill_n(sums, count * kWeightRows * columns, 0.0f);
      for (int64_t pair = 0; pair < x_.pairs; pair += kDepth)
        for (int64_t i = 0; i < count; ++i) {
          PairMatrix next = weights_ahead(first + count, 0);
          if (i + 1 < count)
            next = weights_ahead(first + i + 1, pair);
          else if (pair + kDepth < x_.pairs)
            next = weights_ahead(first, pair + kDepth);
          add_part(first + i, pair, column, columns, next, sums + i * kWeightRows * columns);
        }
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < columns; c += kSquare)
          store(first + i, column + c, sums + i * kWeightRows * columns, c);
      item += count;
    }
  }

  // Adds products of kDepth pairs to the sums of a block of weights, one panel of x after another.
  void add_part(int64_t block, int64_t pair, int64_t column, int64_t columns, PairMatrix next,
                float* sums) const {
    alignas(64) char copy[kWeightRows * kDepth * kPair];
    const int64_t count = std::min(kDepth, x_.pairs - pair);
    const PairMatrix weights = weights_at(block, pair, count, columns > kManyRows, copy);
    const int64_t panels = (columns + x_.panel - 1) / x_.panel;
    const int64_t next_rows = next.data != nullptr ? (kWeightRows + panels - 1) / panels : 0;
    for (int64_t c = 0; c < columns; c += x_.panel) {
      const auto width = static_cast<size_t>(x_.width(column + c));
      products_.add({weights, kWeightRows, static_cast<size_t>(count), x_.at(column + c, pair),
                     sums + c * kWeightRows, width, width, next, static_cast<size_t>(next_rows)});
      next.data += next_rows * next.row;
    }
  }

  // Stores the results of 16 rows of x from `row` on. Their sums begin at column `c`.
  void store(int64_t block, int64_t row, const float* sums, int64_t c) const {
    const int64_t first = block * kWeightRows, count = std::min(linear_.n - first, kWeightRows);
    const int64_t panel = c / x_.panel * x_.panel, width = x_.width(row) * kPair;
    const char* const from = reinterpret_cast<const char*>(sums + panel * kWeightRows + c - panel);
    alignas(64) float turned[kSquare * kWeightRows], bias[kWeightRows] = {};
    for (int64_t n = 0; n < kWeightRows; n += kSquare)
      products_.turn(from + n * width, width, reinterpret_cast<char*>(turned + n), kWeightRows * 4);
    for (int64_t i = 0; i < count && linear_.bias; ++i)
      bias[i] = widen(read<BF16>(linear_.bias.data<char>() + (first + i) * 2));
    auto cursor = linear_.walk.from(row);
    for (int64_t r = 0; r < std::min(linear_.walk.rows() - row, kSquare); ++r, cursor.next())
      HWY_DYNAMIC_DISPATCH(store_row)
    (turned + r * kWeightRows, bias, static_cast<size_t>(count), cursor.at<char>(0) + first * 2);
  }

  const PairProducts& products_;
  const Linear& linear_;
  const char* const weight_;
  const int64_t weight_row_;  // in bytes
  const TurnedRows x_;
  const int64_t parts_, weight_blocks_, row_blocks_;
};

}  // namespace

int32_t linear_pairs_by(const PairProducts& products, Call call, Tensor out, Tensor x,
                        Tensor weight, Tensor bias) {
  if (out.numel() == 0) return YARD_OK;
  const Linear linear(out, x, weight, Tensor(nullptr), bias);
  LinearPairs(products, call, linear).run(call);
  return YARD_OK;
}

int32_t linear_pairs(Call call, Tensor out, Tensor x, Tensor weight, Tensor, Tensor bias) {
  return linear_pairs_by(*pair_products(), call, out, x, weight, bias);
}

int64_t linear_pairs_workspace(Tensor, Tensor x, Tensor weight, Tensor, Tensor) {
  return TurnedRows::columns_of(x.rows()) * TurnedRows::pairs_of(weight.size(1)) * kPair;
}

}  // namespace yard::simd
#endif
