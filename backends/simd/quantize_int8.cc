// SPDX-License-Identifier: Apache-2.0
// quantize_int8: a scale for each row. Plain loops, which compilers turn into vectors.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "jobs.h"
#include "kernels.h"
#include "scalars.h"

namespace yard::simd {
namespace {

// The bits of the largest absolute value; those of a NaN are larger than of any number.
template <class T>
uint32_t largest_in_row(const char* x, int64_t width) {
  uint32_t most = 0;
  for (int64_t i = 0; i < width; ++i) {
    const float v = widen(read<T>(x + i * static_cast<int64_t>(sizeof(T))));
    most = std::max(most, std::bit_cast<uint32_t>(v) & 0x7fffffffu);
  }
  return most;
}

template <class T>
void round_row(const char* x, int64_t width, float step, int8_t* out) {
  // Where the inverse of the step is no number of f32, quotients are taken.
  const bool small = step < 1e-37f;
  const float inverse = small ? 0.0f : 1.0f / step;
  for (int64_t i = 0; i < width; ++i) {
    const float v = widen(read<T>(x + i * static_cast<int64_t>(sizeof(T))));
    const float scaled = std::clamp(small ? v / step : v * inverse, -127.0f, 127.0f);
    // The last bits of a number near 1.5 * 2^23 are those of the integer that was added.
    const float shifted = scaled + 12582912.0f;
    out[i] =
        static_cast<int8_t>(std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f));
  }
}

template <class T>
void quantize_rows(const QuantizeRows& job, int64_t begin, int64_t end) {
  auto row = job.walk.from(begin);
  for (int64_t r = begin; r < end; ++r, row.next()) {
    const char* const x = row.template at<char>(2);
    auto* const out = row.template at<int8_t>(0);
    const float scale = std::bit_cast<float>(largest_in_row<T>(x, job.width)) / 127.0f;
    std::memcpy(row.template at<char>(1), &scale, sizeof scale);
    if (scale == 0 || !std::isfinite(scale))
      std::fill_n(out, job.width, int8_t{0});
    else
      round_row<T>(x, job.width, scale, out);
  }
}

}  // namespace

int32_t quantize_int8(Call call, Tensor out, Tensor scale, Tensor x) {
  const QuantizeRows job{{{out, scale, x}, 1}, x.size(-1)};
  if (job.walk.rows() == 0) return YARD_OK;
  call.parallel_for(job.walk.rows(), grain_of(job.width * 8), [&](int64_t begin, int64_t end) {
    switch (x.dtype()) {
      case YARD_F32: return quantize_rows<float>(job, begin, end);
      case YARD_F16: return quantize_rows<F16>(job, begin, end);
      case YARD_BF16: return quantize_rows<BF16>(job, begin, end);
      default: return;
    }
  });
  return YARD_OK;
}

}  // namespace yard::simd
