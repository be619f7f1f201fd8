// SPDX-License-Identifier: Apache-2.0
// Weights of few bits, as GGUF stores them, and dot products with them in integers.
//
// Activations are rounded once per call to int8 in blocks of 32 with a scale each, max|x| / 127. A product is then
//   sum over blocks of  (q_w . q_x) d_w d_x  +  m_w d_x (sum of q_x)
// with weights d_w q_w + m_w. This is exact but for the rounding of activations: an error of at most max|x| / 254 for each
// element of a block. One large value takes the precision of its block, and inputs of language models have such values, always
// in a few blocks. Blocks in which max|x| is more than kLargeBlock times the root mean square of the row therefore have a second
// block, the rest of the rounding in steps of d_x / 128, which makes them 128 times as exact. A result is then off by at most
// kLargeBlock / (127 sqrt(12)), 0.9 %, of |x| |w| / sqrt(k) at one standard deviation, whatever the values and k are; by 0.5 % if
// they are normally distributed.
//
// A few rows of activations are multiplied with weights as they are stored. For more of them 16 weight rows at a time, a panel,
// are unpacked to int8 and interleaved as the instructions take them, and multiplied with groups of four rows. Both add
// blocks one after the other in the same way, so that they give the same bits.
#pragma once

#include <yard/plugin.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace yard::simd {

enum class Format : uint8_t { kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K, kI8 };

// The format of a tensor whose elements are no floats; none for others.
inline std::optional<Format> format_of(plugin::Tensor t) noexcept {
  switch (t.dtype()) {
    case YARD_I8: return Format::kI8;
    case YARD_Q8_0: return Format::kQ8_0;
    case YARD_Q4_0: return Format::kQ4_0;
    case YARD_Q4_1: return Format::kQ4_1;
    case YARD_Q4_K: return Format::kQ4_K;
    case YARD_Q6_K: return Format::kQ6_K;
    default: return std::nullopt;
  }
}

inline constexpr int64_t kBlock = 32;      // elements of activations that share a scale
inline constexpr int64_t kPanelRows = 16;  // of weights
inline constexpr int64_t kGroupRows = 4;   // of activations

constexpr bool is_super_block(Format f) { return f == Format::kQ4_K || f == Format::kQ6_K; }
constexpr int64_t block_elements(Format f) {
  return is_super_block(f) ? 256 : f == Format::kI8 ? 1 : 32;
}
constexpr int64_t block_bytes(Format f) {
  switch (f) {
    case Format::kQ8_0: return 34;
    case Format::kQ4_0: return 18;
    case Format::kQ4_1: return 20;
    case Format::kQ4_K: return 144;
    case Format::kQ6_K: return 210;
    case Format::kI8: return 1;
  }
  return 0;
}
// What a loop over a row steps by, in blocks of 32 and in bytes.
constexpr int64_t step_blocks(Format f) { return is_super_block(f) ? 8 : 1; }
constexpr int64_t step_bytes(Format f) { return f == Format::kI8 ? kBlock : block_bytes(f); }
// What stands beside the elements of a block of 32, besides their scale.
enum class BlockKind : uint8_t { kScale, kMinimum, kTwoScales };
constexpr BlockKind kind_of(Format f) {
  switch (f) {
    case Format::kQ4_0:  // unsigned, with -8 times the scale as its minimum
    case Format::kQ4_1:
    case Format::kQ4_K: return BlockKind::kMinimum;
    case Format::kQ6_K: return BlockKind::kTwoScales;  // of 16 elements each
    default: return BlockKind::kScale;
  }
}

inline constexpr float kLargeBlock = 4;
inline constexpr int kRestBits = 7;  // a step of the rest is 2^-7 of the scale
inline constexpr float kRestStep = 1.0f / (1 << kRestBits);

// A few elements of each of kRows rows in turn, QuantKernels::chunk of a group; zeros behind the end of a row.
template <int64_t kRows>
struct XBytes {
  alignas(16) int8_t q[kBlock * kRows];
  int32_t offset[3][kRows];  // -128 times the sum of q, of its first half, of its second half
  bool used[kRows];          // of a rest: whether the row has one
};
// A block of activations of kRows rows: (q + rest->q / 128) scale.
template <int64_t kRows>
struct XBlock : XBytes<kRows> {
  float scale[kRows];
  float sum[kRows];           // scale times the sum of the elements
  const XBytes<kRows>* rest;  // null: none; zeros in rows that have none
};
using XRow = XBlock<1>;
using XGroup = XBlock<kGroupRows>;
using XRowRest = XBytes<1>;
using XGroupRest = XBytes<kGroupRows>;

// So many rows are multiplied one by one, which takes less than unpacking a panel. Of more, so many pass by a panel before
// the next is unpacked.
inline constexpr int64_t kFewRows = 3, kRowsAtATime = 128;

constexpr int64_t blocks_of(int64_t k) { return (k + kBlock - 1) / kBlock; }

// Rounds a row of k elements to row `row` of its blocks, of a group the first row first. `rests` has room for as many blocks as
// `out`. False where the range of its values is not one in which the products are exact enough, or not finite: such a row
// must be multiplied in f32.
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XRow* out, XRowRest* rests);
struct InGroup {
  int64_t row, chunk;
};
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XGroup* out, XGroupRest* rests,
                  InGroup place);

// A block of the weight rows of a panel, QuantKernels::chunk elements of each in turn; zeros behind the end of a row.
struct WBlock {
  alignas(64) int8_t q[kBlock * kPanelRows];
  float scale[kPanelRows];
  float other[kPanelRows];  // minimum, or scale of the second half; else not set
};

struct QuantWeight {
  Format format;
  const uint8_t* data;
  int64_t stride;  // bytes
  int64_t k;
};

// What an instruction set has. A product's bits depend on its two rows only.
struct QuantKernels {
  // Weight rows [begin, end), at most kPanelRows, times a row: out[0, kPanelRows), of which those behind the end are copies.
  void (*row)(const QuantWeight& weight, int64_t begin, int64_t end, const XRow* x, float* out);
  // Blocks [first, last) of weight rows [begin, end), at most kPanelRows; `first` is a multiple of 8.
  void (*unpack)(const QuantWeight& weight, int64_t begin, int64_t end, int64_t first, int64_t last,
                 WBlock* out);
  // Adds the products of `blocks` blocks of a panel with those of `rows` rows, in groups that are `stride` blocks apart:
  // sums[row * kPanelRows + weight row].
  void (*tile)(BlockKind kind, const WBlock* panel, int64_t blocks, const XGroup* x, int64_t stride,
               int64_t rows, float* sums);
  // Elements of a row that follow each other in groups and panels: 4 or 8.
  int64_t chunk;
  // What a product of a tile takes, in operations of cost.h: measured.
  double product = 0.34;
};

// The fastest that this machine can run, and all that it can, for tests. Ends in null.
const QuantKernels& quant_kernels();
const QuantKernels* const* all_quant_kernels();

// By instruction set: null where the machine, or the build, lacks it.
const QuantKernels* quant_kernels_neon();
const QuantKernels* quant_kernels_i8mm();
const QuantKernels* quant_kernels_avx2();
const QuantKernels* quant_kernels_vnni();
const QuantKernels& quant_kernels_plain();

// 128 elements of a row with the scales of each 16, unpacked in plain C++.
inline constexpr int64_t kPlain = 128;
struct PlainBlocks {
  int8_t q[kPlain];
  float scale[8];
  float minimum[8];  // added
};
// Those from `at` on, a multiple of 128; behind `end`, where the row ends or what is wanted of it, nothing is read.
void unpack_plain(Format format, const uint8_t* row, int64_t at, int64_t end, PlainBlocks& out);
// A row of weights as f32, count elements from `begin`, both multiples of 32 (or k its end); i8 without its scale.
void dequantize_row(Format format, const uint8_t* row, int64_t begin, int64_t count, float* out);

}  // namespace yard::simd
