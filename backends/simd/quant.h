// SPDX-License-Identifier: Apache-2.0
// Weights of few bits, as GGUF stores them, and dot products with them in integers.
//
// A panel is 128 elements of a weight row: four blocks of 32, or half a block of 256. Activations are rounded once per call
// to int8 in blocks of 32 with a scale each, max|x| / 127; a panel of them is an XPanel. A product is then
//   sum over blocks of  d_w d_x (q_w . q_x)  +  m_w d_x (sum of q_x)
// with weights d_w q_w + m_w. This is exact but for the rounding of activations: an error of at most max|x| / 254 for each
// element of a block. For values that are normally distributed a result is off by 0.5 % of |x| |w| / sqrt(k) at one standard
// deviation, whatever k is.
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

inline constexpr int64_t kPanel = 128;  // elements

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
// What a loop over a row steps by: a panel, or two that share a block.
constexpr int64_t step_panels(Format f) { return is_super_block(f) ? 2 : 1; }
constexpr int64_t step_bytes(Format f) {
  return step_panels(f) * kPanel / block_elements(f) * block_bytes(f);
}
// Whether its elements are unsigned with a minimum for each 32 of them; q4_0 is one with -8 times its scale.
constexpr bool has_minimum(Format f) {
  return f == Format::kQ4_0 || f == Format::kQ4_1 || f == Format::kQ4_K;
}

// Activations beside a panel of weights; zeros behind the end of the row.
struct XPanel {
  int8_t q[kPanel];
  float scale[4];
  float sum[4];  // scale times the sum of q
};

// Rounds a row of k elements to its panels. False where the range of its values is not one in which the products are exact
// enough, or not finite: such a row must be multiplied in f32.
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XPanel* out);

// Some weight rows times all rows of activations.
struct QuantJob {
  Format format;
  const uint8_t* weight;
  int64_t weight_stride;  // bytes
  int64_t k;
  const XPanel* x;  // rows of `panels`
  int64_t panels;
  int64_t rows;
};

// The scales and elements of a panel; `half` is which half of a block of 256 it is. A group is 16 elements.
struct PlainPanel {
  int8_t q[kPanel];
  float scale[8];    // of a group
  float minimum[8];  // of a group; added
};
void unpack_panel(Format format, const uint8_t* step, int half, PlainPanel& panel);
// A row of weights as f32, count elements from `begin`, both multiples of 32 (or k its end); i8 without its scale.
void dequantize_row(Format format, const uint8_t* row, int64_t begin, int64_t count, float* out);

// Products of weight rows [begin, end) with activation rows [first, last), at most kTileRows of them:
// out[(n - begin) * kTileRows + row - first]. A product's bits depend on its two rows only.
inline constexpr int64_t kTileRows = 4;
using QuantTile = void (*)(const QuantJob& job, int64_t begin, int64_t end, int64_t first,
                           int64_t last, float* out);

// The fastest that this machine can run, and all that it can, for tests. Ends in null.
QuantTile quant_tile();
const QuantTile* quant_tiles();

// By instruction set: null where the machine, or the build, lacks it.
QuantTile quant_tile_neon();
QuantTile quant_tile_avx2();
QuantTile quant_tile_vnni();

}  // namespace yard::simd
