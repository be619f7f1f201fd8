// SPDX-License-Identifier: Apache-2.0
// `linear` over weights with few bits, as they are stored or packed. Activations become int8 blocks
// once per call, and threads share the panels of weight rows.
#include <algorithm>
#include <bit>
#include <cmath>

#include "linear.h"

namespace yard::simd {
namespace {

// Rows with fewer results are computed in f32, because even the largest result may by chance be
// small beside the error of int8. Rows outside the range of int8, and panels whose results are not
// finite or hardly fit f16, are also computed in f32.
constexpr int64_t kFewest = 16;
// Products that justify another thread: one or two microseconds, in which an awake one starts.
constexpr int64_t kPieceProducts = int64_t{1} << 14;

struct QuantLinear {
  const Linear& job;
  QuantWeight weight;
  int64_t rows, blocks;
  const uint8_t* packed;               // the panels of the weight, or null
  const XRow* single = nullptr;        // rows that are `blocks` apart, or null
  const XGroup* groups = nullptr;      // groups of rows, or null
  const uint8_t* in_range = nullptr;   // for each row
  const uint16_t* in_tiles = nullptr;  // tiles of 16 rows, or null

  QuantLinear(const Linear& linear, Format format, const uint8_t* panels)
      : job(linear),
        // An empty tensor may have no data.
        weight{format, linear.weight.data<uint8_t>(),
               linear.k > 0 ? stride_bytes(linear.weight, 0) : 0, linear.k},
        rows(linear.walk.rows()),
        blocks(blocks_of(linear.k)),
        packed(panels) {}

  const uint8_t* packed_panel(int64_t row) const {
    return packed + row / kPanelRows * quant_kernels().packed.panel_bytes(weight.format, blocks);
  }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool is_few(int64_t rows, bool packed) { return rows <= (packed ? kFewPackedRows : kFewRows); }

int64_t items_per_piece(int64_t products) {
  return std::max<int64_t>(1, kPieceProducts / std::max<int64_t>(1, products));
}

// Returns one result, summed in double and rounded to f32.
float exact_product(const QuantLinear& linear, int64_t n, const char* x) {
  const QuantWeight& weight = linear.weight;
  const int64_t item = linear.job.dtype == YARD_F32 ? 4 : 2;
  const uint8_t* const w = weight.data + n * weight.stride;
  double sum = 0;
  for (int64_t at = 0; at < weight.k; at += kPlain) {
    float values[kPlain];
    const int64_t count = std::min(kPlain, weight.k - at);
    dequantize_row(weight.format, w, at, count, values);
    for (int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(values[i]) *
             static_cast<double>(read_as_float(x + (at + i) * item, linear.job.dtype));
  }
  return static_cast<float>(sum);
}

bool leaves_range(const Linear& job, int64_t begin, int64_t end, const float* values) {
  const float most = most_of(job.dtype);
  if (!job.scale) {
    // Values past the end are copies. The bits of a NaN are larger than the bits of any number.
    uint32_t bits = 0;
    for (int64_t i = 0; i < kPanelRows; ++i)
      bits = std::max(bits, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
    return bits > std::bit_cast<uint32_t>(most);
  }
  for (int64_t n = begin; n < end; ++n, ++values)
    if (!(std::abs(*values * read<float>(job.scale.data<char>() + n * 4)) <= most)) return true;
  return false;
}

void finish(const QuantLinear& linear, int64_t begin, int64_t end, bool in_range, const char* x,
            float* values, char* out) {
  if (!in_range || leaves_range(linear.job, begin, end, values))
    for (int64_t n = begin; n < end; ++n) values[n - begin] = exact_product(linear, n, x);
  linear.job.store(out, begin, end, values);
}

// Multiplies panels [first, last) by each of a few rows.
void multiply_few(const QuantLinear& linear, int64_t first, int64_t last) {
  const Linear& job = linear.job;
  const QuantKernels& kernels = quant_kernels();
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t begin = panel * kPanelRows, end = std::min(job.n, begin + kPanelRows);
    float values[std::max(kFewRows, kFewPackedRows) * kPanelRows];
    if (linear.packed != nullptr)
      kernels.packed.rows(linear.weight.format, linear.packed_panel(begin), linear.blocks,
                          linear.single, linear.blocks, linear.rows, values);
    else
      for (int64_t r = 0; r < linear.rows; ++r)
        kernels.row(linear.weight, begin, end, linear.single + r * linear.blocks,
                    values + r * kPanelRows);
    auto row = job.walk.from(0);
    for (int64_t r = 0; r < linear.rows; ++r, row.next())
      finish(linear, begin, end, linear.in_range[r] != 0, row.at<char>(1), values + r * kPanelRows,
             row.at<char>(0));
  }
}

int32_t few_rows(Call call, QuantLinear& linear) {
  const Linear& job = linear.job;
  auto* const x = call.workspace<XRow>().data();
  auto* const rests = reinterpret_cast<XRowRest*>(x + linear.rows * linear.blocks);
  auto* const in_range = reinterpret_cast<uint8_t*>(rests + linear.rows * linear.blocks);
  linear.single = x, linear.in_range = in_range;
  auto row = job.walk.from(0);
  for (int64_t r = 0; r < linear.rows; ++r, row.next())
    in_range[r] = quantize_row(row.at<char>(1), job.dtype, job.k, x + r * linear.blocks,
                               rests + r * linear.blocks) &&
                  job.n >= kFewest;
  call.parallel_for(ceil_div(job.n, kPanelRows), items_per_piece(kPanelRows * job.k * linear.rows),
                    [&](int64_t first, int64_t last) { multiply_few(linear, first, last); });
  return YARD_OK;
}

void unpack_panel(const QuantLinear& linear, int64_t begin, int64_t first, int64_t last,
                  WBlock* to) {
  const QuantKernels& kernels = quant_kernels();
  if (linear.packed != nullptr)
    return kernels.packed.unpack(linear.weight.format, linear.packed_panel(begin), linear.blocks,
                                 first, last, to);
  const int64_t end = std::min(linear.job.n, begin + kPanelRows);
  kernels.unpack(linear.weight, begin, end, first, last, to);
}

// Multiplies panels of weights by whole groups of rows, at most kRowsAtATime.
void multiply_panels(const QuantLinear& linear, int64_t begin, int64_t panels, int64_t first,
                     int64_t rows) {
  WBlock unpacked[kMostPanels * kPanelBlocks];
  float sums[kMostPanels * kRowsAtATime * kPanelRows];
  for (int64_t p = 0; p < panels; ++p)
    std::fill_n(sums + p * kRowsAtATime * kPanelRows, rows * kPanelRows, 0.0f);
  const XGroup* const x = linear.groups + first / kGroupRows * linear.blocks;
  for (int64_t block = 0; block < linear.blocks; block += kPanelBlocks) {
    const int64_t last = std::min(linear.blocks, block + kPanelBlocks);
    for (int64_t p = 0; p < panels; ++p)
      unpack_panel(linear, begin + p * kPanelRows, block, last, unpacked + p * kPanelBlocks);
    quant_kernels().tile(kind_of(linear.weight.format), panels, unpacked, last - block, x + block,
                         linear.blocks, rows, sums);
  }
  for (int64_t p = 0; p < panels; ++p, begin += kPanelRows) {
    const int64_t end = std::min(linear.job.n, begin + kPanelRows);
    auto row = linear.job.walk.from(first);
    for (int64_t r = 0; r < rows; ++r, row.next())
      finish(linear, begin, end, linear.in_range[first + r] != 0, row.at<char>(1),
             sums + (p * kRowsAtATime + r) * kPanelRows, row.at<char>(0));
  }
}

int32_t many_rows(Call call, QuantLinear& linear) {
  const Linear& job = linear.job;
  const int64_t rows = linear.rows, groups = ceil_div(rows, kGroupRows);
  auto* const x = call.workspace<XGroup>().data();
  auto* const rests = reinterpret_cast<XGroupRest*>(x + groups * linear.blocks);
  auto* const in_range = reinterpret_cast<uint8_t*>(rests + groups * linear.blocks);
  linear.groups = x, linear.in_range = in_range;
  call.parallel_for(groups, grain_of(kGroupRows * job.k * 8), [&](int64_t begin, int64_t end) {
    auto row = job.walk.from(begin * kGroupRows);
    for (int64_t r = begin * kGroupRows; r < std::min(rows, end * kGroupRows); ++r, row.next())
      in_range[r] =
          quantize_row(row.at<char>(1), job.dtype, job.k, x + r / kGroupRows * linear.blocks,
                       rests + r / kGroupRows * linear.blocks,
                       {r % kGroupRows, quant_kernels().chunk}) &&
          job.n >= kFewest;
  });
  const int64_t panels = ceil_div(job.n, kPanelRows), parts = ceil_div(rows, kRowsAtATime);
  const int64_t together = quant_kernels().panels;
  call.parallel_for(
      panels * parts,
      std::max(together, items_per_piece(kPanelRows * job.k * std::min(rows, kRowsAtATime))),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t first = i / panels * kRowsAtATime, panel = i % panels;
          // A tile multiplies `together` panels or one.
          const bool enough = std::min(end - i, panels - panel) >= together;
          const int64_t count = enough ? together : 1;
          multiply_panels(linear, panel * kPanelRows, count, first,
                          std::min(kRowsAtATime, rows - first));
          i += count;
        }
      });
  return YARD_OK;
}

// Tiles multiply panels in pairs, up to kPanelsTogether panels with up to kMostRowTiles tiles of
// rows. They take kTileBlocks blocks at a time, so that a second-level cache holds the operands and
// the sums.
constexpr int64_t kPair = 2, kPanelsTogether = 8, kTileBlocks = 8;
constexpr int64_t kMostRowTiles = kTileRowsAtATime / kTileRows;
constexpr int64_t kTileElements = kTileBytes / 2;

// Returns how many tiles of rows are multiplied by a panel after it was unpacked. With fewer, there
// is more to unpack, but enough for all threads. A unit is the time of a product of two tiles.
int64_t row_tiles_together(int64_t row_tiles, int64_t pairs) {
  constexpr int64_t kUnpack = 5;
  const auto threads = static_cast<int64_t>(plugin::threads_now());
  int64_t best = 0, least = 0;
  for (int64_t tiles = kMostRowTiles; tiles >= kPair; tiles /= 2) {
    const int64_t items = ceil_div(row_tiles, tiles) * pairs;
    const int64_t time = ceil_div(items, threads) * (std::min(tiles, row_tiles) + kUnpack);
    if (best == 0 || time < least) best = tiles, least = time;
  }
  return best;
}

// Stores the results of up to 16 rows from `first` on, for panels from weight row `begin` on.
void store_tiles(const QuantLinear& linear, const QuantTiles& tiles, int64_t begin, int64_t panels,
                 int64_t first, float* sums) {
  const Linear& job = linear.job;
  const int64_t last = std::min(linear.rows, first + kTileRows);
  const int64_t item = job.dtype == YARD_F32 ? 4 : 2;
  const bool is_plain = !job.scale && !job.bias && begin + panels * kPanelRows <= job.n;
  auto row = job.walk.from(first);
  for (int64_t r = first; r < last; ++r, row.next(), sums += kPanelRows) {
    const bool in_range = linear.in_range[r] != 0;
    if (is_plain && in_range &&
        tiles.store_row(sums, panels, job.dtype, row.at<char>(0) + begin * item))
      continue;
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t from = begin + p * kPanelRows, to = std::min(job.n, from + kPanelRows);
      finish(linear, from, to, in_range, row.at<char>(1), sums + p * kTileSums, row.at<char>(0));
    }
  }
}

// Multiplies panels by `count` tiles of rows from `first` on.
void multiply_tiles(const QuantLinear& linear, const QuantTiles& tiles, int64_t begin,
                    int64_t panels, int64_t first, int64_t count) {
  WBlock unpacked[kTileBlocks];
  alignas(64) uint16_t weights[kPanelsTogether * kTileBlocks * kTileElements];
  alignas(64) float sums[kMostRowTiles * kPanelsTogether * kTileSums];
  for (int64_t block = 0; block < linear.blocks; block += kTileBlocks) {
    const int64_t last = std::min(block + kTileBlocks, linear.blocks), blocks = last - block;
    for (int64_t p = 0; p < panels; ++p) {
      unpack_panel(linear, begin + p * kPanelRows, block, last, unpacked);
      tiles.scale_blocks(kind_of(linear.weight.format), unpacked, blocks,
                         weights + p * kTileBlocks * kTileElements);
    }
    for (int64_t t = 0; t < count; t += kPair) {
      const int64_t row_tiles = std::min(count - t, kPair);
      const uint16_t* const x =
          linear.in_tiles + ((first + t) * linear.blocks + block) * kTileElements;
      float* const to = sums + t * kPanelsTogether * kTileSums;
      for (int64_t p = 0; p < panels; p += kPair)
        tiles.multiply({.panels = std::min(panels - p, kPair),
                        .row_tiles = row_tiles,
                        .blocks = blocks,
                        .w = weights + p * kTileBlocks * kTileElements,
                        .w_stride = kTileBlocks,
                        .x = x,
                        .x_stride = linear.blocks,
                        .sums = to + p * kTileSums,
                        .sums_stride = kPanelsTogether,
                        .adds = block > 0});
      for (int64_t i = 0; i < row_tiles && last == linear.blocks; ++i)
        store_tiles(linear, tiles, begin, panels, (first + t + i) * kTileRows,
                    to + i * kPanelsTogether * kTileSums);
    }
  }
}

int32_t by_tiles(Call call, QuantLinear& linear) {
  const QuantTiles& tiles = *quant_tiles();
  const Linear& job = linear.job;
  const int64_t row_tiles = ceil_div(linear.rows, kTileRows);
  const int64_t of_tile = linear.blocks * kTileElements;
  uint16_t* const x = call.workspace<uint16_t>().data();
  auto* const in_range = reinterpret_cast<uint8_t*>(x + row_tiles * of_tile);
  linear.in_tiles = x, linear.in_range = in_range;
  call.parallel_for(row_tiles, grain_of(kTileRows * job.k * 4), [&](int64_t begin, int64_t end) {
    auto row = job.walk.from(begin * kTileRows);
    for (int64_t r = begin * kTileRows; r < end * kTileRows; ++r) {
      uint16_t* const to = x + r / kTileRows * of_tile + r % kTileRows * kBlock;
      if (r < linear.rows) {
        in_range[r] = tiles.round_row(row.at<char>(1), job.dtype, job.k, to) && job.n >= kFewest;
        row.next();
      } else {
        for (int64_t b = 0; b < linear.blocks; ++b) std::fill_n(to + b * kTileElements, kBlock, 0);
      }
    }
  });
  const int64_t panels = ceil_div(job.n, kPanelRows), pairs = ceil_div(panels, kPair);
  const int64_t together = row_tiles_together(row_tiles, pairs);
  call.parallel_for(pairs * ceil_div(row_tiles, together), 1, [&](int64_t begin, int64_t end) {
    tiles.begin();
    while (begin < end) {
      const int64_t first = begin / pairs * together, panel = begin % pairs * kPair;
      const int64_t count = std::min({(end - begin) * kPair, panels - panel, kPanelsTogether});
      multiply_tiles(linear, tiles, panel * kPanelRows, count, first,
                     std::min(together, row_tiles - first));
      begin += ceil_div(count, kPair);
    }
    tiles.end();
  });
  return YARD_OK;
}

}  // namespace

int64_t linear_quantized_workspace(int64_t rows, int64_t k, bool packed) {
  constexpr int64_t kRow = sizeof(XRow) + sizeof(XRowRest);
  constexpr int64_t kGroup = sizeof(XGroup) + sizeof(XGroupRest);
  if (is_few(rows, packed)) return rows * (blocks_of(k) * kRow + 1);
  const int64_t of_tiles = ceil_div(rows, kTileRows) * blocks_of(k) * kTileBytes;
  const int64_t of_groups = ceil_div(rows, kGroupRows) * blocks_of(k) * kGroup;
  return (use_tiles(rows) ? of_tiles : of_groups) + rows;
}

int32_t linear_quantized(Call call, const Linear& job, Format format, const uint8_t* packed) {
  QuantLinear linear(job, format, packed);
  if (is_few(linear.rows, packed != nullptr)) return few_rows(call, linear);
  return use_tiles(linear.rows) ? by_tiles(call, linear) : many_rows(call, linear);
}

}  // namespace yard::simd
