// SPDX-License-Identifier: Apache-2.0
// Weights with few bits, as GGUF stores them, and integer dot products with them.
//
// Activations are rounded once per call to int8, in blocks of 32 with a scale of max|x| / 127 each.
// With weights d_w q_w + m_w, a product is then
//   sum over blocks of  (q_w . q_x) d_w d_x  +  m_w d_x (sum of q_x)
// Only the rounding of activations is inexact: each element of a block is off by at most max|x| /
// 254. One large value reduces the precision of its whole block, and inputs of language models have
// such values, always in a few blocks. So if max|x| of a block is more than kLargeBlock times the
// root mean square of the row, the block has a second block. This rest holds the rounding errors in
// steps of d_x / 128, which makes the block 128 times as exact. At one standard deviation, a result
// is then off by at most kLargeBlock / (127 sqrt(12)), 0.9 %, of |x| |w| / sqrt(k), whatever the
// values and k are, and by 0.5 % for normally distributed values.
//
// A few rows of activations are multiplied with weights as stored. For more rows, a panel of 16
// weight rows is unpacked to int8, interleaved for the instructions, and multiplied with groups of
// four rows. Both ways add blocks in the same order, so they give the same bits. Processors with
// AMX multiply many rows by tiles of bf16, which round and add in another way (QuantTiles).
#pragma once

#include <yard/plugin.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace yard::simd {

enum class Format : uint8_t { kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ6_K, kI8 };

// Returns the format of a tensor whose elements are not floats, or nullopt for other tensors.
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
inline constexpr int64_t kPanelRows = 16;  // weight rows per panel
inline constexpr int64_t kGroupRows = 4;   // rows of activations per group

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
// The steps of a loop over a row, in blocks of 32 and in bytes.
constexpr int64_t step_blocks(Format f) { return is_super_block(f) ? 8 : 1; }
constexpr int64_t step_bytes(Format f) { return f == Format::kI8 ? kBlock : block_bytes(f); }
// The data that a block of 32 has besides its elements.
enum class BlockKind : uint8_t { kScale, kMinimum, kTwoScales };
constexpr BlockKind kind_of(Format f) {
  switch (f) {
    case Format::kQ4_0:  // unsigned, with -8 times the scale as its minimum
    case Format::kQ4_1:
    case Format::kQ4_K: return BlockKind::kMinimum;
    case Format::kQ6_K: return BlockKind::kTwoScales;  // one scale for each 16 elements
    default: return BlockKind::kScale;
  }
}

// The bits of the least and the largest value that is rounded. Between them, products with weights
// of f16 are normal numbers of f32.
inline constexpr uint32_t kLeastBits = std::bit_cast<uint32_t>(1e-25f);
inline constexpr uint32_t kMostBits = std::bit_cast<uint32_t>(1e25f);

inline constexpr float kLargeBlock = 4;
inline constexpr int kRestBits = 7;  // a step of the rest is 2^-7 of the scale
inline constexpr float kRestStep = 1.0f / (1 << kRestBits);

// A few elements of each of kRows rows in turn (QuantKernels::chunk elements in a group). Zeros
// follow the end of a row.
template <int64_t kRows>
struct XBytes {
  alignas(16) int8_t q[kBlock * kRows];
  int32_t offset[3][kRows];  // -128 times the sum of q, of its first half, of its second half
  bool used[kRows];          // in a rest, whether the row has a rest
};
// A block of activations of kRows rows. Elements are (q + rest->q / 128) scale.
template <int64_t kRows>
struct XBlock : XBytes<kRows> {
  float scale[kRows];
  float sum[kRows];           // scale times the sum of the elements
  const XBytes<kRows>* rest;  // null if no row has a rest; zeros in rows that have none
};
using XRow = XBlock<1>;
using XGroup = XBlock<kGroupRows>;
using XRowRest = XBytes<1>;
using XGroupRest = XBytes<kGroupRows>;

// Up to kFewRows rows are multiplied one by one, which is faster than unpacking a panel. If there
// are more, kRowsAtATime rows are multiplied with a panel before the next panel is unpacked.
inline constexpr int64_t kFewRows = 3, kRowsAtATime = 128;
// Unpacked blocks of a panel, which fit a first-level cache with the sums of kRowsAtATime rows, and
// panels that are multiplied together.
inline constexpr int64_t kPanelBlocks = 16, kMostPanels = 2;

constexpr int64_t blocks_of(int64_t k) { return (k + kBlock - 1) / kBlock; }

// Rounds a row of k elements to its blocks. `rests` has room for as many blocks as `out`. Returns
// false if a value is not finite or outside the range in which products are exact enough. Such a
// row must be multiplied in f32. In a group, call it for the first row first.
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XRow* out, XRowRest* rests);
struct InGroup {
  int64_t row, chunk;
};
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XGroup* out, XGroupRest* rests,
                  InGroup place);

// A block of the weight rows of a panel, interleaved as in XBytes.
struct WBlock {
  alignas(64) int8_t q[kBlock * kPanelRows];
  float scale[kPanelRows];
  float other[kPanelRows];  // minimum, or scale of the second half; otherwise not set
};

struct QuantWeight {
  Format format;
  const uint8_t* data;
  int64_t stride;  // in bytes
  int64_t k;
};

// A weight can be packed once, for calls that follow. Packed weights are panels of kPanelRows rows,
// and a panel has strips of a few rows, as many as a vector has lanes. A strip holds the elements
// of all its blocks and then their scales, as f16. Elements lie as in a WBlock, four of each row in
// turn; if they have four bits, elements 0 to 15 of a block are the low halves of bytes, and 16 to
// 31 are the high halves. If they have six, these are the lower four, and bytes follow that hold
// the upper two of elements i, 16 + i, 4 + i and 20 + i, for i of 0 to 3 and of 8 to 11. A block of
// q6_k has the f16 of its super-block and an integer for each of its halves as scales. Zeros follow
// the last row.
constexpr bool is_packed(Format f) { return f != Format::kI8 && f != Format::kQ4_K; }
// Bytes of the elements, and of the scales, that a block has in one row.
constexpr int64_t packed_bytes(Format f) {
  return f == Format::kQ8_0 ? kBlock : f == Format::kQ6_K ? kBlock * 3 / 4 : kBlock / 2;
}
constexpr int64_t scale_bytes(Format f) { return f == Format::kQ4_1 || f == Format::kQ6_K ? 4 : 2; }
constexpr int64_t strip_bytes(Format f, int64_t strip_rows, int64_t blocks) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = strip_rows * blocks * (packed_bytes(f) + scale_bytes(f));
  return (bytes + kLine - 1) / kLine * kLine;
}

// The most rows of activations that are multiplied by packed weights without unpacking a panel.
inline constexpr int64_t kFewPackedRows = 4;

// The functions of an instruction set for packed weights.
struct PackedKernels {
  int64_t strip_rows = 0;  // 0 if the instruction set does not pack weights
  bool plus_128 = false;   // whether signed elements are packed plus 128, as unsigned ones
  // Multiplies a panel by up to kFewPackedRows rows, which are `stride` blocks apart. Writes
  // out[row * kPanelRows + weight row].
  void (*rows)(Format format, const uint8_t* panel, int64_t blocks, const XRow* x, int64_t stride,
               int64_t rows, float* out) = nullptr;
  // Like QuantKernels::unpack.
  void (*unpack)(Format format, const uint8_t* panel, int64_t blocks, int64_t first, int64_t last,
                 WBlock* out) = nullptr;

  int64_t panel_bytes(Format f, int64_t blocks) const {
    return kPanelRows / strip_rows * strip_bytes(f, strip_rows, blocks);
  }
};

// Packs at most kPanelRows weight rows [begin, end) to `out`, which has panel_bytes() bytes.
void pack_panel(const PackedKernels& kernels, const QuantWeight& weight, int64_t begin, int64_t end,
                uint8_t* out);

// Returns the largest absolute result that needs no check in f32.
inline float most_of(uint32_t dtype) {
  return dtype == YARD_F16 ? 16384.0f : std::numeric_limits<float>::max();
}

// The functions of an instruction set. The bits of a product depend only on its two rows.
struct QuantKernels {
  // Multiplies weight rows [begin, end), at most kPanelRows, by a row. Writes out[0, kPanelRows);
  // values past the end repeat the last row.
  void (*row)(const QuantWeight& weight, int64_t begin, int64_t end, const XRow* x, float* out);
  // Unpacks blocks [first, last), from a multiple of 8 on, of at most kPanelRows weight rows.
  void (*unpack)(const QuantWeight& weight, int64_t begin, int64_t end, int64_t first, int64_t last,
                 WBlock* out);
  // Adds the products of `blocks` blocks of `panels` panels, 1 or this->panels, with `rows` rows to
  // sums[row * kPanelRows + weight row]. The groups of rows are `stride` blocks apart, panels are
  // kPanelBlocks blocks apart, and the sums of panels kRowsAtATime rows apart.
  void (*tile)(BlockKind kind, int64_t panels, const WBlock* panel, int64_t blocks, const XGroup* x,
               int64_t stride, int64_t rows, float* sums);
  // How many consecutive elements of a row groups and panels hold: 4 or 8.
  int64_t chunk;
  int64_t panels = 1;  // at most kMostPanels
  PackedKernels packed = {};
  // The measured time of a product of a tile, in operations of cost.h.
  double product = 0.34;
};

// Many rows of activations are multiplied by AMX tiles of bf16. Weights are scaled and rounded to
// bf16 after they are unpacked, so sums over whole rows need no scales of blocks. Each activation
// keeps eight bits of its own, so large values beside it cost no precision, and rows have no rests.
//
// A tile holds a block of 16 rows of activations or of the 16 weight rows of a panel: 32 elements
// of each row of activations, or pairs of consecutive elements of all rows of weights.
inline constexpr int64_t kTileRows = 16, kTileBytes = 1024, kTileSums = 256;
// Tiles are faster from kFewestTileRows rows on. A panel of weights that was unpacked serves
// kTileRowsAtATime rows.
inline constexpr int64_t kFewestTileRows = 20, kTileRowsAtATime = 256;

// Products of one or two panels of weights with one or two tiles of rows. Strides are in tiles.
struct TileProduct {
  int64_t panels, row_tiles, blocks;
  const uint16_t* w;  // panels are w_stride apart
  int64_t w_stride;
  const uint16_t* x;  // rows are x_stride apart
  int64_t x_stride;
  float* sums;  // tiles of 16 rows of 16 weight rows; rows are sums_stride apart, panels adjacent
  int64_t sums_stride;
  bool adds;  // to the sums
};

struct QuantTiles {
  // Call these around multiply() on each thread.
  void (*begin)();
  void (*end)();
  // Rounds a row of k elements to a row of its tiles. Zeros follow the end of the row. Returns
  // false like quantize_row().
  bool (*round_row)(const char* x, uint32_t dtype, int64_t k, uint16_t* out);
  // Scales blocks that QuantKernels::unpack or PackedKernels::unpack has written, to a tile each.
  void (*scale_blocks)(BlockKind kind, const WBlock* from, int64_t blocks, uint16_t* out);
  void (*multiply)(const TileProduct& product);
  // Stores a row of `panels` adjacent tiles of sums as `dtype`. Returns false if a value is not
  // finite or hardly fits f16; what was stored must then be replaced.
  bool (*store_row)(const float* sums, int64_t panels, uint32_t dtype, char* out);
};
// Returns null if this machine has no tiles.
const QuantTiles* quant_tiles();
inline bool use_tiles(int64_t rows) { return rows >= kFewestTileRows && quant_tiles() != nullptr; }

// The fastest kernels that this machine can run, and all that it can run, ended by null, for tests.
const QuantKernels& quant_kernels();
const QuantKernels* const* all_quant_kernels();

// The kernels of an instruction set, or null if the machine or the build lacks it.
const QuantKernels* quant_kernels_neon();
const QuantKernels* quant_kernels_i8mm();
const QuantKernels* quant_kernels_avx2();
const QuantKernels* quant_kernels_vnni();
const QuantKernels& quant_kernels_plain();

// 128 elements of a row, unpacked in plain C++, with a scale for each 16.
inline constexpr int64_t kPlain = 128;
struct PlainBlocks {
  int8_t q[kPlain];
  float scale[8];
  float minimum[8];  // added to the scaled elements
};
// Unpacks 128 elements from `at` on, a multiple of 128. Reads nothing past `end`, which may be
// before the end of the row.
void unpack_plain(Format format, const uint8_t* row, int64_t at, int64_t end, PlainBlocks& out);
// Converts `count` elements of a row of weights from `begin` on to f32, without the scale of i8.
// Both are multiples of 32, unless the range ends at k.
void dequantize_row(Format format, const uint8_t* row, int64_t begin, int64_t count, float* out);

}  // namespace yard::simd
