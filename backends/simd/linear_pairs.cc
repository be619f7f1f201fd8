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
constexpr int64_t kWeightRows = 64;  // rows of weights that are multiplied together, at most

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

int64_t threads_of(Call call) {
  const yard_host_t* const host = call.c()->host;
  const bool knows = host != nullptr && host->concurrency != nullptr;
  return knows ? std::max(host->concurrency(host->self), 1) : 1;
}

// Results are computed in blocks, whose sums stay in a cache of the core while the block goes
// through the depth of both matrices.
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
        row_blocks_((x_.columns + kMostRows - 1) / kMostRows),
        block_(block_of(linear.n * row_blocks_, threads_of(call))),
        weight_blocks_((linear.n + block_ - 1) / block_) {}

  void run(Call call) const {
    call.parallel_for(x_.columns / kSquare * parts_, grain_of(kSquare * kDepth * kPair * 4),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i)
                          turn_rows(i / parts_ * kSquare, i % parts_ * kDepth);
                      });
    // A product of kWeightRows rows of x takes about as long as reading its weights.
    const int64_t bytes = block_ * x_.pairs * kPair;
    const int64_t work = bytes + bytes / kWeightRows * std::min(x_.columns, kMostRows);
    call.parallel_for(row_blocks_ * weight_blocks_, grain_of(work),
                      [&](int64_t begin, int64_t end) {
                        if (products_.begin != nullptr) products_.begin();
                        for (int64_t i = begin; i < end; ++i)
                          multiply(i % weight_blocks_ * block_, i / weight_blocks_ * kMostRows);
                        if (products_.end != nullptr) products_.end();
                      });
  }

 private:
  static constexpr int64_t kDepth = 128;                       // pairs of a row per multiplication
  static constexpr int64_t kMostRows = 256, kMostBlock = 128;  // rows of x and weights in a block
  static constexpr int64_t kNearBytes = 1 << 19;               // of x that a core's cache keeps

  // Returns the rows of weights in a block. If there are more blocks than threads, all threads get
  // about as many rows.
  static int64_t block_of(int64_t rows, int64_t threads) {
    const int64_t most = threads * kMostBlock;
    const int64_t blocks = threads * std::max<int64_t>((rows + most - 1) / most, 1);
    return std::max(round_up((rows + blocks - 1) / blocks, kSquare), kSquare);
  }

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

  // Returns `count` pairs of rows of weights, in place if all of them exist, otherwise copied to
  // `to` and filled with zeros.
  PairMatrix weights_at(int64_t first, int64_t rows, int64_t pair, int64_t count, char* to) const {
    const int64_t bytes = std::clamp<int64_t>(linear_.k * 2 - pair * kPair, 0, count * kPair);
    const char* const from = weight_ + first * weight_row_ + pair * kPair;
    if (first + rows <= linear_.n && bytes == count * kPair) return {from, weight_row_, kPair};
    for (int64_t r = 0; r < rows; ++r) {
      char* const row = to + r * kDepth * kPair;
      const int64_t some = first + r < linear_.n ? bytes : 0;
      if (some > 0) std::memcpy(row, from + r * weight_row_, static_cast<size_t>(some));
      std::memset(row + some, 0, static_cast<size_t>(count * kPair - some));
    }
    return {to, kDepth * kPair, kPair};
  }

  // Returns kWeightRows rows of weights that will be multiplied next, or null at the ends of the
  // weights.
  PairMatrix weights_ahead(int64_t first, int64_t pair) const {
    if (first + kWeightRows > linear_.n || (pair + kDepth) * kPair > linear_.k * 2) return {};
    return {weight_ + first * weight_row_ + pair * kPair, weight_row_, kPair};
  }

  // Computes the results of a block of weights and a block of x. If a cache keeps the rows of x,
  // kWeightRows rows of weights at a time go through all of the depth. If not, all rows of the
  // block take part in each step, so that x is read once.
  void multiply(int64_t first, int64_t column) const {
    alignas(64) float sums[kMostBlock * kMostRows];
    const int64_t columns = std::min(x_.columns - column, kMostRows);
    const int64_t last = first + std::min(round_up(linear_.n - first, kSquare), block_);
    const bool near = columns * x_.pairs * kPair <= kNearBytes;
    std::fill_n(sums, (last - first) * columns, 0.0f);
    for (int64_t begin = first, end = last; begin < last; begin = end) {
      if (near) end = std::min(begin + kWeightRows, last);
      for (int64_t pair = 0; pair < x_.pairs; pair += kDepth)
        for (int64_t c = 0; c < columns; c += x_.panel)
          for (int64_t w = begin; w < end; w += kWeightRows) {
            const bool last_rows = w + kWeightRows >= end, last_panel = c + x_.panel >= columns;
            PairMatrix next{};
            if (!last_rows && c == 0)
              next = weights_ahead(w + kWeightRows, pair);
            else if (last_rows && last_panel)
              next = pair + kDepth < x_.pairs ? weights_ahead(begin, pair + kDepth)
                                              : weights_ahead(end, 0);
            const int64_t rows = std::min(end - w, kWeightRows);
            add_part(w, rows, pair, column + c, next, sums + (w - first) * columns + c * rows);
          }
    }
    for (int64_t w = first; w < last; w += kWeightRows)
      for (int64_t c = 0; c < columns; c += kSquare)
        store(w, std::min(last - w, kWeightRows), column + c, sums + (w - first) * columns, c);
  }

  // Adds products of kDepth pairs to the sums of rows of weights and a panel of x.
  void add_part(int64_t first, int64_t rows, int64_t pair, int64_t column, PairMatrix next,
                float* sums) const {
    alignas(64) char copy[kWeightRows * kDepth * kPair];
    const int64_t count = std::min(kDepth, x_.pairs - pair);
    const auto width = static_cast<size_t>(x_.width(column));
    products_.add({weights_at(first, rows, pair, count, copy), static_cast<size_t>(rows),
                   static_cast<size_t>(count), x_.at(column, pair), sums, width, width, next,
                   next.data != nullptr ? static_cast<size_t>(kWeightRows) : 0});
  }

  // Stores the results of 16 rows of x from `row` on for rows of weights. Their sums begin at
  // column `c`.
  void store(int64_t first, int64_t rows, int64_t row, const float* sums, int64_t c) const {
    const int64_t count = std::min(linear_.n - first, rows);
    const int64_t panel = c / x_.panel * x_.panel, width = x_.width(row) * kPair;
    const char* const from = reinterpret_cast<const char*>(sums + panel * rows + c - panel);
    alignas(64) float turned[kSquare * kWeightRows], bias[kWeightRows] = {};
    for (int64_t n = 0; n < rows; n += kSquare)
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
  const int64_t parts_, row_blocks_, block_, weight_blocks_;
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
