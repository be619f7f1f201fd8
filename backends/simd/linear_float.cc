// SPDX-License-Identifier: Apache-2.0
// `linear` over weights of f32, f16 and bf16, for few rows: each weight row serves four rows, or
// several weight rows at once serve a single row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_float.cc"
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

#include "dots.inc"  // after lanes.inc

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

struct LinearRows {
  template <class W>
  static void of(const FloatLinear& job, int64_t begin, int64_t end) {
    const auto k = static_cast<size_t>(job.linear.k), width = static_cast<size_t>(job.width);
    constexpr int64_t kChunk = 16;
    float values[kChunk * kGroupRows];
    for (int64_t n = begin; n < end; n += kChunk) {
      const int64_t last = HWY_MIN(end, n + kChunk);
      auto row = job.linear.walk.from(0);
      for (int64_t r = 0; r < job.rows;) {
        const int64_t rows = job.rows - r >= kGroupRows ? kGroupRows : 1;
        const float* const x = job.x + static_cast<size_t>(r) * width;
        int64_t i = n;
        constexpr auto kTogether = static_cast<int64_t>(kRowsOfWeights);
        for (; rows == 1 && i + kTogether <= last; i += kTogether)
          products_of_rows<W>(job.weight + i * job.weight_stride, job.weight_stride, x, k,
                              values + (i - n) * kGroupRows, kGroupRows);
        for (; i < last; ++i) {
          const W* const w = reinterpret_cast<const W*>(job.weight + i * job.weight_stride);
          float* const to = values + (i - n) * kGroupRows;
          if (rows == kGroupRows)
            products4(w, x, width, k, to);
          else
            *to = product(w, x, k);
        }
        for (i = 0; i < rows; ++i, ++r, row.next())
          job.linear.store(row.template at<char>(0), n, last, values + i, kGroupRows);
      }
    }
  }
};

template <class W>
struct PrepareRows {
  template <class T>
  static void of(const Linear& job, const FloatLinear& to, int64_t begin, int64_t end) {
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next())
      prepare_row<W>(row.template at<T>(1), static_cast<size_t>(job.k), to.x + r * to.width,
                     static_cast<size_t>(to.width));
  }
};
template <class W>
HWY_INLINE void prepare_as(const FloatLinear& job, int64_t begin, int64_t end) {
  switch (job.linear.dtype) {
    case YARD_F32: return PrepareRows<W>::template of<float>(job.linear, job, begin, end);
    case YARD_F16: return PrepareRows<W>::template of<F16>(job.linear, job, begin, end);
    case YARD_BF16: return PrepareRows<W>::template of<BF16>(job.linear, job, begin, end);
    default: return;
  }
}

void prepare_rows(const FloatLinear& job, int64_t begin, int64_t end) {
  // Pairs of f32 and of f16 have the same order.
  if (job.dtype == YARD_BF16) return prepare_as<BF16>(job, begin, end);
  prepare_as<float>(job, begin, end);
}

void linear_rows(const FloatLinear& job, int64_t begin, int64_t end) {
  by_type<LinearRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(prepare_rows);
HWY_EXPORT(linear_rows);

// Returns the width of a prepared row, which the widest pair of vectors may read to its end.
int64_t width_of(int64_t k) {
  constexpr int64_t kWidestPair = 128;
  return (k + kWidestPair - 1) / kWidestPair * kWidestPair;
}

int32_t linear_float(Call call, const Linear& linear) {
  const FloatLinear job{linear, linear.walk.rows(), linear.weight.data<char>(),
                        // An empty tensor may have no data.
                        linear.k > 0 ? stride_bytes(linear.weight, 0) : 0,
                        call.workspace<float>().data(), width_of(linear.k), linear.weight.dtype()};
  call.parallel_for(job.rows, grain_of(linear.k * 8), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(prepare_rows)(job, begin, end);
  });
  const int64_t work = linear.k * (job.rows + 1) * 4;
  call.parallel_for(linear.n, grain_of(work), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(linear_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace

int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias) {
  if (out.numel() == 0) return YARD_OK;
  const Linear job(out, x, weight, scale, bias);
  if (const std::optional<Format> format = format_of(weight))
    return linear_quantized(call, job, *format);
  return linear_float(call, job);
}

int64_t linear_workspace(Tensor, Tensor x, Tensor weight, Tensor, Tensor) {
  const int64_t k = weight.size(1);
  if (format_of(weight)) return linear_quantized_workspace(x.rows(), k);
  return x.rows() * width_of(k) * static_cast<int64_t>(sizeof(float));
}

}  // namespace yard::simd
#endif
