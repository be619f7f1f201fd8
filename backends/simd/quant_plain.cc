// SPDX-License-Identifier: Apache-2.0
// Products of blocks in plain C++, for machines without the vector instructions.
#include <algorithm>

#include "quant.h"

namespace yard::simd {
namespace {

void unpack_panel(const QuantWeight& weight, int64_t begin, int64_t end, int64_t first,
                  int64_t last, WBlock* out) {
  const int64_t per_plain = kPlain / kBlock;
  for (int64_t i = 0; i < kPanelRows; ++i) {
    const uint8_t* const row = weight.data + std::min(begin + i, end - 1) * weight.stride;
    PlainBlocks plain;
    for (int64_t b = first; b < last; ++b) {
      const int64_t at = b % per_plain;
      if (at == 0) unpack_plain(weight.format, row, b * kBlock, weight.k, plain);
      WBlock& to = out[b - first];
      for (int64_t j = 0; j < kBlock; ++j)
        to.q[(j / 4 * kPanelRows + i) * 4 + j % 4] = plain.q[at * kBlock + j];
      to.scale[i] = plain.scale[2 * at];
      to.other[i] = kind_of(weight.format) == BlockKind::kTwoScales ? plain.scale[2 * at + 1]
                                                                    : plain.minimum[2 * at];
    }
  }
}

// Returns the product of 16 elements from the first or second half of a block.
template <int64_t kRows>
int32_t half_dot(const WBlock& w, int64_t n, const XBytes<kRows>& x, int64_t row, int64_t half) {
  int32_t dot = 0;
  for (int64_t j = 16 * half; j < 16 * half + 16; ++j)
    dot += w.q[(j / 4 * kPanelRows + n) * 4 + j % 4] * x.q[(j / 4 * kRows + row) * 4 + j % 4];
  return dot;
}
template <int64_t kRows>
float half_product(const WBlock& w, int64_t n, const XBlock<kRows>& x, int64_t row, int64_t half) {
  int32_t dot = half_dot(w, n, x, row, half) * (1 << kRestBits);
  if (x.rest != nullptr) dot += half_dot(w, n, *x.rest, row, half);
  return static_cast<float>(dot) * kRestStep;
}

template <int64_t kRows>
float add_block(BlockKind kind, const WBlock& w, int64_t n, const XBlock<kRows>& x, int64_t row,
                float sum) {
  const float low = half_product(w, n, x, row, 0), high = half_product(w, n, x, row, 1);
  if (kind == BlockKind::kTwoScales)
    return sum + low * w.scale[n] * x.scale[row] + high * w.other[n] * x.scale[row];
  sum += (low + high) * w.scale[n] * x.scale[row];
  return kind == BlockKind::kMinimum ? sum + w.other[n] * x.sum[row] : sum;
}

template <int64_t kRows>
void add_blocks(BlockKind kind, const WBlock* panel, int64_t blocks, const XBlock<kRows>* x,
                int64_t rows, float* sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < kPanelRows; ++n)
      for (int64_t b = 0; b < blocks; ++b)
        sums[r * kPanelRows + n] = add_block(kind, panel[b], n, x[b], r, sums[r * kPanelRows + n]);
}

void tile(BlockKind kind, int64_t, const WBlock* panel, int64_t blocks, const XGroup* x,
          int64_t stride, int64_t rows, float* sums) {
  for (int64_t r = 0; r < rows; r += kGroupRows)
    add_blocks(kind, panel, blocks, x + r / kGroupRows * stride, std::min(kGroupRows, rows - r),
               sums + r * kPanelRows);
}

void row(const QuantWeight& weight, int64_t begin, int64_t end, const XRow* x, float* out) {
  constexpr int64_t kStep = 8;
  WBlock panel[kStep];
  std::fill_n(out, kPanelRows, 0.0f);
  for (int64_t first = 0; first < blocks_of(weight.k); first += kStep) {
    const int64_t last = std::min(first + kStep, blocks_of(weight.k));
    unpack_panel(weight, begin, end, first, last, panel);
    add_blocks(kind_of(weight.format), panel, last - first, x + first, 1, out);
  }
}

}  // namespace

const QuantKernels& quant_kernels_plain() {
  static constexpr QuantKernels kKernels{row, unpack_panel, tile, 4};
  return kKernels;
}

}  // namespace yard::simd
