// SPDX-License-Identifier: Apache-2.0
// `linear` over weights of few bits: activations are rounded to int8 once per call, and weight rows shared among threads.
#include <algorithm>
#include <cmath>
#include <limits>

#include "linear.h"

namespace yard::simd {
namespace {

// Weight rows that are done together, and stay in a second-level cache while all rows of activations pass by.
constexpr int64_t kChunk = 16;
// Fewer results of a row are computed in f32: the largest of them may be small beside the error of int8 by chance. So are
// rows that int8 cannot hold, and chunks with a result that is not finite, or that f16 hardly holds.
constexpr int64_t kFewest = 16;

int64_t panels_of(int64_t k) { return (k + kPanel - 1) / kPanel; }

struct QuantLinear {
  const Linear& job;
  QuantJob quant;
  const uint8_t* in_range;  // of each row of activations
  bool all_in_range;
};

// One result in f32, summed in double.
float exact_product(const QuantLinear& linear, int64_t n, const char* x) {
  const QuantJob& q = linear.quant;
  const int64_t item = linear.job.dtype == YARD_F32 ? 4 : 2;
  const uint8_t* const w = q.weight + n * q.weight_stride;
  double sum = 0;
  for (int64_t at = 0; at < q.k; at += kPanel) {
    float values[kPanel];
    const int64_t count = std::min(kPanel, q.k - at);
    dequantize_row(q.format, w, at, count, values);
    for (int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(values[i]) *
             static_cast<double>(read_as_float(x + (at + i) * item, linear.job.dtype));
  }
  return static_cast<float>(sum);
}

bool leaves_range(const Linear& job, int64_t begin, int64_t end, const float* values) {
  const float most = job.dtype == YARD_F16 ? 16384.0f : std::numeric_limits<float>::max();
  for (int64_t n = begin; n < end; ++n, values += kTileRows) {
    const float scale = job.scale ? read<float>(job.scale.data<char>() + n * 4) : 1.0f;
    if (!(std::abs(*values * scale) <= most)) return true;  // NaN, too
  }
  return false;
}

// Chunks [first, end_chunk), whose places do not depend on how the work is divided.
void weight_chunks(const QuantLinear& linear, int64_t first, int64_t end_chunk) {
  const int64_t begin = first * kChunk, end = std::min(linear.job.n, end_chunk * kChunk);
  const QuantTile tile = quant_tile();
  float values[kChunk * kTileRows];
  for (int64_t n = begin; n < end; n += kChunk) {
    const int64_t last = std::min(end, n + kChunk);
    auto row = linear.job.walk.from(0);
    for (int64_t r = 0; r < linear.quant.rows; r += kTileRows) {
      const int64_t rows = std::min(kTileRows, linear.quant.rows - r);
      tile(linear.quant, n, last, r, r + rows, values);
      for (int64_t i = 0; i < rows; ++i, row.next()) {
        if ((!linear.all_in_range && linear.in_range[r + i] == 0) ||
            leaves_range(linear.job, n, last, values + i))
          for (int64_t j = n; j < last; ++j)
            values[(j - n) * kTileRows + i] = exact_product(linear, j, row.at<char>(1));
        linear.job.store(row.at<char>(0), n, last, values + i, kTileRows);
      }
    }
  }
}

}  // namespace

int64_t linear_quantized_workspace(int64_t rows, int64_t k) {
  return rows * (panels_of(k) * static_cast<int64_t>(sizeof(XPanel)) + 1);
}

int32_t linear_quantized(Call call, const Linear& job, Format format) {
  const int64_t rows = job.walk.rows(), panels = panels_of(job.k);
  auto* const x = call.workspace<XPanel>().data();
  auto* const in_range = reinterpret_cast<uint8_t*>(x + rows * panels);
  call.parallel_for(rows, grain_of(job.k * 8), [&](int64_t begin, int64_t end) {
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next())
      in_range[r] =
          quantize_row(row.at<char>(1), job.dtype, job.k, x + r * panels) && job.n >= kFewest;
  });

  const int64_t stride = job.k > 0 ? stride_bytes(job.weight, 0) : 0;  // there may be no data
  const QuantLinear linear{
      job,
      {format, job.weight.data<uint8_t>(), stride, job.k, x, panels, rows},
      in_range,
      std::all_of(in_range, in_range + rows, [](uint8_t ok) { return ok != 0; })};
  // A weight row is unpacked once for kTileRows rows, and multiplied with each: k bytes take as long as one to read.
  const int64_t work = kChunk * job.k * (rows + 1);
  call.parallel_for((job.n + kChunk - 1) / kChunk, grain_of(work),
                    [&](int64_t begin, int64_t end) { weight_chunks(linear, begin, end); });
  return YARD_OK;
}

}  // namespace yard::simd
