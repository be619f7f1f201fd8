// SPDX-License-Identifier: Apache-2.0
// `linear` over weights with few bits. Activations are rounded to int8 once per call, and threads
// share the panels of weight rows.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "linear.h"

namespace yard::simd {
namespace {

// Unpacked blocks of a panel. With the sums of kRowsAtATime rows, they fit a first-level cache.
constexpr int64_t kMostBlocks = 16;
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
  const XRow* single = nullptr;       // rows that are `blocks` apart, or null
  const XGroup* groups = nullptr;     // groups of rows, or null
  const uint8_t* in_range = nullptr;  // for each row

  QuantLinear(const Linear& linear, Format format)
      : job(linear),
        // An empty tensor may have no data.
        weight{format, linear.weight.data<uint8_t>(),
               linear.k > 0 ? stride_bytes(linear.weight, 0) : 0, linear.k},
        rows(linear.walk.rows()),
        blocks(blocks_of(linear.k)) {}
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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
  const float most = job.dtype == YARD_F16 ? 16384.0f : std::numeric_limits<float>::max();
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

// Multiplies panels [first, last), as they are stored, by each row.
void multiply_stored(const QuantLinear& linear, int64_t first, int64_t last) {
  const Linear& job = linear.job;
  const QuantKernels& kernels = quant_kernels();
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t begin = panel * kPanelRows, end = std::min(job.n, begin + kPanelRows);
    auto row = job.walk.from(0);
    for (int64_t r = 0; r < linear.rows; ++r, row.next()) {
      float values[kPanelRows];
      kernels.row(linear.weight, begin, end, linear.single + r * linear.blocks, values);
      finish(linear, begin, end, linear.in_range[r] != 0, row.at<char>(1), values, row.at<char>(0));
    }
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
                    [&](int64_t first, int64_t last) { multiply_stored(linear, first, last); });
  return YARD_OK;
}

// Multiplies a panel of weights by whole groups of rows, at most kRowsAtATime.
void multiply_panel(const QuantLinear& linear, int64_t begin, int64_t first, int64_t rows) {
  const QuantKernels& kernels = quant_kernels();
  const int64_t end = std::min(linear.job.n, begin + kPanelRows);
  WBlock panel[kMostBlocks];
  float sums[kRowsAtATime * kPanelRows];
  std::fill_n(sums, rows * kPanelRows, 0.0f);
  const XGroup* const x = linear.groups + first / kGroupRows * linear.blocks;
  for (int64_t block = 0; block < linear.blocks; block += kMostBlocks) {
    const int64_t last = std::min(linear.blocks, block + kMostBlocks);
    kernels.unpack(linear.weight, begin, end, block, last, panel);
    kernels.tile(kind_of(linear.weight.format), panel, last - block, x + block, linear.blocks, rows,
                 sums);
  }
  auto row = linear.job.walk.from(first);
  for (int64_t r = 0; r < rows; ++r, row.next())
    finish(linear, begin, end, linear.in_range[first + r] != 0, row.at<char>(1),
           sums + r * kPanelRows, row.at<char>(0));
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
  call.parallel_for(panels * parts,
                    items_per_piece(kPanelRows * job.k * std::min(rows, kRowsAtATime)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t first = i / panels * kRowsAtATime;
                        multiply_panel(linear, i % panels * kPanelRows, first,
                                       std::min(kRowsAtATime, rows - first));
                      }
                    });
  return YARD_OK;
}

}  // namespace

int64_t linear_quantized_workspace(int64_t rows, int64_t k) {
  constexpr int64_t kRow = sizeof(XRow) + sizeof(XRowRest);
  constexpr int64_t kGroup = sizeof(XGroup) + sizeof(XGroupRest);
  if (rows <= kFewRows) return rows * (blocks_of(k) * kRow + 1);
  return ceil_div(rows, kGroupRows) * blocks_of(k) * kGroup + rows;
}

int32_t linear_quantized(Call call, const Linear& job, Format format) {
  QuantLinear linear(job, format);
  return linear.rows <= kFewRows ? few_rows(call, linear) : many_rows(call, linear);
}

}  // namespace yard::simd
