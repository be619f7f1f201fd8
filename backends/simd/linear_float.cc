// SPDX-License-Identifier: Apache-2.0
// `linear` over weights of f32, f16 and bf16, for few rows: each weight row is read once for four of them. Sums are in f32.
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

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Activations as f32 in the order of pairs of weights W, with zeros up to `width`.
template <class W, class T>
HWY_INLINE void prepare_row(const T* x, size_t k, float* out, size_t width) {
  const size_t pair = pair_lanes();
  HWY_ALIGN float ordered[2 * hn::MaxLanes(DF())];
  VF a, b;
  size_t i = 0;
  for (; i + pair <= k; i += pair) {
    load2(x + i, a, b);
    store2_like<T>(a, b, ordered);
    load2_like<W>(ordered, a, b);
    store2(a, b, out + i);
  }
  if (i < k) {
    load2_part<false>(x + i, k - i, a, b);
    store2_like<T>(a, b, ordered);
    load2_like<W>(ordered, a, b);
    store2(a, b, out + i), i += pair;
  }
  std::fill(out + i, out + width, 0.0f);
}

struct LinearRows {
  template <class W>
  static HWY_INLINE float product(const W* w, const float* x, size_t k) {
    const size_t pair = pair_lanes();
    VF s0 = hn::Zero(DF()), s1 = s0, s2 = s0, s3 = s0, a, b, xa, xb;
    size_t i = 0;
    for (; i + 2 * pair <= k; i += 2 * pair) {
      load2(w + i, a, b), load2(x + i, xa, xb);
      s0 = hn::MulAdd(a, xa, s0), s1 = hn::MulAdd(b, xb, s1);
      load2(w + i + pair, a, b), load2(x + i + pair, xa, xb);
      s2 = hn::MulAdd(a, xa, s2), s3 = hn::MulAdd(b, xb, s3);
    }
    for (; i + pair <= k; i += pair) {
      load2(w + i, a, b), load2(x + i, xa, xb);
      s0 = hn::MulAdd(a, xa, s0), s1 = hn::MulAdd(b, xb, s1);
    }
    if (i < k) {
      load2_part<false>(w + i, k - i, a, b), load2(x + i, xa, xb);
      s2 = hn::MulAdd(a, xa, s2), s3 = hn::MulAdd(b, xb, s3);
    }
    return sum_of(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  }

  // Adds a pair of weights times those of four rows of activations.
  static HWY_INLINE void add4(VF a, VF b, const float* x, size_t stride, VF& s0, VF& s1, VF& s2,
                              VF& s3, VF& t0, VF& t1, VF& t2, VF& t3) {
    VF xa, xb;
    load2(x, xa, xb), s0 = hn::MulAdd(a, xa, s0), t0 = hn::MulAdd(b, xb, t0);
    load2(x + stride, xa, xb), s1 = hn::MulAdd(a, xa, s1), t1 = hn::MulAdd(b, xb, t1);
    load2(x + 2 * stride, xa, xb), s2 = hn::MulAdd(a, xa, s2), t2 = hn::MulAdd(b, xb, t2);
    load2(x + 3 * stride, xa, xb), s3 = hn::MulAdd(a, xa, s3), t3 = hn::MulAdd(b, xb, t3);
  }
  template <class W>
  static HWY_INLINE void products4(const W* w, const float* x, size_t stride, size_t k,
                                   float* out) {
    const size_t pair = pair_lanes();
    VF s0 = hn::Zero(DF()), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0, a, b;
    size_t i = 0;
    for (; i + pair <= k; i += pair) {
      load2(w + i, a, b);
      add4(a, b, x + i, stride, s0, s1, s2, s3, t0, t1, t2, t3);
    }
    if (i < k) {
      load2_part<false>(w + i, k - i, a, b);
      add4(a, b, x + i, stride, s0, s1, s2, s3, t0, t1, t2, t3);
    }
    out[0] = sum_of(hn::Add(s0, t0)), out[1] = sum_of(hn::Add(s1, t1));
    out[2] = sum_of(hn::Add(s2, t2)), out[3] = sum_of(hn::Add(s3, t3));
  }

  template <class W>
  static void of(const FloatLinear& job, int64_t begin, int64_t end) {
    const auto k = static_cast<size_t>(job.linear.k), width = static_cast<size_t>(job.width);
    constexpr int64_t kChunk = 16;
    float values[kChunk * kTileRows];
    for (int64_t n = begin; n < end; n += kChunk) {
      const int64_t last = HWY_MIN(end, n + kChunk);
      auto row = job.linear.walk.from(0);
      for (int64_t r = 0; r < job.rows;) {
        const int64_t rows = job.rows - r >= kTileRows ? kTileRows : 1;
        const float* const x = job.x + static_cast<size_t>(r) * width;
        for (int64_t i = n; i < last; ++i) {
          const W* const w = reinterpret_cast<const W*>(job.weight + i * job.weight_stride);
          float* const to = values + (i - n) * kTileRows;
          if (rows == kTileRows)
            products4(w, x, width, k, to);
          else
            *to = product(w, x, k);
        }
        for (int64_t i = 0; i < rows; ++i, ++r, row.next())
          job.linear.store(row.template at<char>(0), n, last, values + i, kTileRows);
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
  // Pairs of f32 and of f16 are in the same order.
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

// Of a prepared row: as many as the widest pair of vectors may read.
int64_t width_of(int64_t k) {
  constexpr int64_t kWidestPair = 128;
  return (k + kWidestPair - 1) / kWidestPair * kWidestPair;
}

int32_t linear_float(Call call, const Linear& linear) {
  const FloatLinear job{linear,
                        linear.walk.rows(),
                        linear.weight.data<char>(),
                        stride_bytes(linear.weight, 0),
                        call.workspace<float>().data(),
                        width_of(linear.k),
                        linear.weight.dtype()};
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
