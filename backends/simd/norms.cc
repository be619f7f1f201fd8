// SPDX-License-Identifier: Apache-2.0
// rms_norm and add_rms_norm. A row is read once from memory and once from the cache. It is read to
// its end before its first output is written, so an output may alias an input.
//
// Blocks are summed in f32, and their sums in double. If squares leave the range of f32, the row is
// computed again, scaled by a power of two, which changes no digit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "norms.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Elements whose squares are summed in f32; a multiple of every two pairs of vectors.
constexpr size_t kBlock = 4096;

constexpr double kDown = 0x1p-100, kUp = 0x1p100;
// If the mean of squares is below this, squares have lost bits to underflow.
constexpr double kTiny = 1e-30;

template <bool kWhole, bool kScaled, class T>
HWY_INLINE void load2_scaled(const T* p, size_t count, VF scale, VF& a, VF& b) {
  load2_part<kWhole>(p, count, a, b);
  if constexpr (kScaled) a = hn::Mul(a, scale), b = hn::Mul(b, scale);
}

template <bool kScaled, class T>
HWY_INLINE double sum_squares(const T* x, size_t width, VF scale) {
  const size_t pair = pair_lanes();
  double total = 0;
  for (size_t i = 0; i < width;) {
    const size_t end = HWY_MIN(width, i + kBlock);
    VF s0 = hn::Zero(DF()), s1 = s0, s2 = s0, s3 = s0;
    VF a, b;
    for (; i + 2 * pair <= end; i += 2 * pair) {
      load2_scaled<true, kScaled>(x + i, pair, scale, a, b);
      s0 = hn::MulAdd(a, a, s0), s1 = hn::MulAdd(b, b, s1);
      load2_scaled<true, kScaled>(x + i + pair, pair, scale, a, b);
      s2 = hn::MulAdd(a, a, s2), s3 = hn::MulAdd(b, b, s3);
    }
    for (; i < end; i += pair) {
      load2_scaled<false, kScaled>(x + i, HWY_MIN(pair, end - i), scale, a, b);
      s0 = hn::MulAdd(a, a, s0), s1 = hn::MulAdd(b, b, s1);
    }
    total += static_cast<double>(sum_of(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  }
  return total;
}

template <bool kWhole, bool kScaled, bool kStream, class T>
HWY_INLINE void write_step(T* out, const T* x, const T* weight, size_t count, VF factor, VF scale) {
  VF a, b, wa, wb;
  load2_scaled<kWhole, kScaled>(x, count, scale, a, b);
  load2_part<kWhole>(weight, count, wa, wb);
  a = hn::Mul(hn::Mul(a, factor), wa);
  b = hn::Mul(hn::Mul(b, factor), wb);
  store2_part<kWhole, kStream>(a, b, out, count);
}

template <bool kScaled, bool kStream, class T>
HWY_INLINE void write_normalized(T* out, const T* x, const T* weight, const T* next, size_t width,
                                 double square, VF scale) {
  const size_t pair = pair_lanes();
  const VF factor = plain_nan(hn::Set(DF(), static_cast<float>(1 / std::sqrt(square))));
  size_t i = 0;
  for (; i + pair <= width; i += pair) {
    __builtin_prefetch(next + i);
    write_step<true, kScaled, kStream>(out + i, x + i, weight + i, pair, factor, scale);
  }
  if (i < width)
    write_step<false, kScaled, false>(out + i, x + i, weight + i, width - i, factor, scale);
}

// Normalizes a row whose squares sum up to `sum`.
template <class T>
HWY_INLINE void normalize(const Norm& job, T* out, const T* x, const T* next, double sum) {
  const DF d;
  const size_t width = static_cast<size_t>(job.width);
  const T* const weight = static_cast<const T*>(job.weight);
  const double count = static_cast<double>(job.width);
  const bool huge = sum == std::numeric_limits<double>::infinity();
  const double square = sum / count + job.eps;
  if (!huge && !(square < kTiny)) {
    const VF one = hn::Set(d, 1.0f);
    if (job.stream && can_stream(out))
      write_normalized<false, true>(out, x, weight, next, width, square, one);
    else
      write_normalized<false, false>(out, x, weight, next, width, square, one);
  } else {
    const double by = huge ? kDown : kUp;
    const VF scale = hn::Set(d, static_cast<float>(by));
    const double scaled = sum_squares<true>(x, width, scale) / count + job.eps * by * by;
    write_normalized<true, false>(out, x, weight, next, width, scaled, scale);
  }
}

struct RmsNormRows {
  template <class T>
  static void of(const Norm& job, int64_t begin, int64_t end) {
    const size_t width = static_cast<size_t>(job.width);
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r) {
      T* const out = row.template at<T>(0);
      const T* const x = row.template at<T>(1);
      row.next();
      const double sum = sum_squares<false>(x, width, hn::Zero(DF()));
      normalize(job, out, x, row.template at<T>(1), sum);
    }
    if (job.stream) hwy::FlushStream();
  }
};

struct AddRmsNormRows {
  // Adds x to the residual, and sums the squares of the stored values, as a later reader sees them.
  template <bool kWhole, class T>
  static HWY_INLINE void add_step(T* residual, const T* x, size_t count, VF& s0, VF& s1) {
    VF a, b, xa, xb;
    load2_part<kWhole>(residual, count, a, b);
    load2_part<kWhole>(x, count, xa, xb);
    a = hn::Add(a, xa), b = hn::Add(b, xb);
    store2_part<kWhole>(a, b, residual, count);
    if constexpr (!std::is_same_v<T, float>) load2_part<kWhole>(residual, count, a, b);
    s0 = hn::MulAdd(a, a, s0), s1 = hn::MulAdd(b, b, s1);
  }

  template <class T>
  static HWY_INLINE double add(T* residual, const T* x, size_t width) {
    const size_t pair = pair_lanes();
    double total = 0;
    for (size_t i = 0; i < width;) {
      const size_t end = HWY_MIN(width, i + kBlock);
      VF s0 = hn::Zero(DF()), s1 = s0;
      for (; i + pair <= end; i += pair) add_step<true>(residual + i, x + i, pair, s0, s1);
      if (i < end) add_step<false>(residual + i, x + i, end - i, s0, s1), i = end;
      total += static_cast<double>(sum_of(hn::Add(s0, s1)));
    }
    return total;
  }

  template <class T>
  static void of(const Norm& job, int64_t begin, int64_t end) {
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r) {
      T* const out = row.template at<T>(0);
      const T* const x = row.template at<T>(1);
      T* const residual = row.template at<T>(2);
      row.next();
      const double sum = add(residual, x, static_cast<size_t>(job.width));
      normalize(job, out, residual, row.template at<T>(1), sum);
    }
    if (job.stream) hwy::FlushStream();
  }
};

void rms_norm_rows(const Norm& job, int64_t begin, int64_t end) {
  by_type<RmsNormRows>(job, begin, end);
}
void add_rms_norm_rows(const Norm& job, int64_t begin, int64_t end) {
  by_type<AddRmsNormRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(add_rms_norm_rows);
}  // namespace

int32_t rms_norm(Call call, Tensor out, Tensor x, Tensor weight, double eps) {
  if (out.numel() == 0) return YARD_OK;
  const Norm job{{{out, x, Tensor(nullptr)}, 1},
                 weight.data<char>(),
                 nullptr,
                 x.size(-1),
                 eps,
                 x.dtype(),
                 streams(out, {x})};
  const int64_t bytes = 2 * job.width * (x.c()->dtype.bits / 8);
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(job, begin, end);
  });
  return YARD_OK;
}

int32_t add_rms_norm(Call call, Tensor out, Tensor residual, Tensor x, Tensor weight, double eps) {
  if (out.numel() == 0) return YARD_OK;
  const Norm job{
      {{out, x, residual}, 1},    weight.data<char>(), nullptr, x.size(-1), eps, x.dtype(),
      streams(out, {x, residual})};
  const int64_t bytes = 4 * job.width * (x.c()->dtype.bits / 8);
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_rms_norm_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
