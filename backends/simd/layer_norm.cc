// SPDX-License-Identifier: Apache-2.0
// layer_norm reads a row twice, the second time from the cache. The first pass computes the sum and
// the sum of squares, the second writes the output. A row is read to its end before its first
// output is written, so the output may alias the input.
//
// This is exact enough while the mean is within two standard deviations of zero. Other rows are
// computed relative to their mean, so that nothing cancels however far from zero they lie. If
// squares leave the range of f32, such a row is also scaled by a power of two, which changes no
// digit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "layer_norm.cc"
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

template <bool kPlain>
struct View {
  float scale = 1, guess = 0;
  HWY_INLINE VF of(VF v) const {
    if constexpr (kPlain) return v;
    return hn::MulSub(v, hn::Set(DF(), scale), hn::Set(DF(), guess));
  }
};

// The means of the viewed elements and of their squares.
struct Moments {
  double mean, square;
  double variance() const { return square - mean * mean; }
};

template <bool kPlain, class T>
HWY_INLINE Moments moments(const T* x, size_t width, View<kPlain> view) {
  // Elements that are summed in f32 before double takes over; a multiple of every two pairs.
  constexpr size_t kBlock = 4096;
  const size_t pair = pair_lanes();
  double sum = 0, squares = 0;
  VF a, b;
  for (size_t i = 0; i < width;) {
    const size_t end = HWY_MIN(width, i + kBlock);
    VF s0 = hn::Zero(DF()), s1 = s0, q0 = s0, q1 = s0, q2 = s0, q3 = s0;
    for (; i + 2 * pair <= end; i += 2 * pair) {
      load2(x + i, a, b);
      a = view.of(a), b = view.of(b);
      s0 = hn::Add(s0, a), s1 = hn::Add(s1, b);
      q0 = hn::MulAdd(a, a, q0), q1 = hn::MulAdd(b, b, q1);
      load2(x + i + pair, a, b);
      a = view.of(a), b = view.of(b);
      s0 = hn::Add(s0, a), s1 = hn::Add(s1, b);
      q2 = hn::MulAdd(a, a, q2), q3 = hn::MulAdd(b, b, q3);
    }
    // One element at a time, because the view would change the zeros that fill the last vector.
    const size_t step = kPlain ? pair : 1;
    for (; i < end; i += step) {
      load2_part<false>(x + i, HWY_MIN(step, end - i), a, b);
      if constexpr (kPlain) {
        s0 = hn::Add(s0, a), s1 = hn::Add(s1, b);
        q0 = hn::MulAdd(a, a, q0), q1 = hn::MulAdd(b, b, q1);
      } else {
        const double one = static_cast<double>(hn::GetLane(view.of(a)));
        sum += one, squares += one * one;
      }
    }
    sum += static_cast<double>(sum_of(hn::Add(s0, s1)));
    squares += static_cast<double>(sum_of(hn::Add(hn::Add(q0, q1), hn::Add(q2, q3))));
  }
  const double count = static_cast<double>(width);
  return {sum / count, squares / count};
}

// Writes (x - mean) * factor, times weight and plus bias, for one row.
template <bool kPlain, class T>
struct Writer {
  const T* x;
  const T* weight;
  const T* bias;
  T* out;
  const T* next;  // the next row, prefetched while this one is written
  View<kPlain> view;
  float factor, shift;  // shift is -mean * factor

  template <bool kWhole, bool kStream, bool kWeight, bool kBias>
  HWY_INLINE void step(size_t i, size_t count) const {
    const VF f = plain_nan(hn::Set(DF(), factor)), s = plain_nan(hn::Set(DF(), shift));
    VF a, b, w0, w1, b0, b1;
    load2_part<kWhole>(x + i, count, a, b);
    a = hn::MulAdd(view.of(a), f, s);
    b = hn::MulAdd(view.of(b), f, s);
    if constexpr (kWeight) load2_part<kWhole>(weight + i, count, w0, w1);
    if constexpr (kBias) load2_part<kWhole>(bias + i, count, b0, b1);
    if constexpr (kWeight && kBias) a = hn::MulAdd(a, w0, b0), b = hn::MulAdd(b, w1, b1);
    if constexpr (kWeight && !kBias) a = hn::Mul(a, w0), b = hn::Mul(b, w1);
    if constexpr (!kWeight && kBias) a = hn::Add(a, b0), b = hn::Add(b, b1);
    store2_part<kWhole, kStream>(a, b, out + i, count);
  }

  template <bool kStream, bool kWeight, bool kBias>
  HWY_INLINE void row(size_t width) const {
    const size_t pair = pair_lanes();
    size_t i = 0;
    for (; i + pair <= width; i += pair) {
      __builtin_prefetch(next + i);
      step<true, kStream, kWeight, kBias>(i, pair);
    }
    if (i < width) step<false, false, kWeight, kBias>(i, width - i);
  }

  template <bool kStream>
  HWY_INLINE void write(size_t width) const {
    if (weight != nullptr && bias != nullptr) return row<kStream, true, true>(width);
    if (weight != nullptr) return row<kStream, true, false>(width);
    if (bias != nullptr) return row<kStream, false, true>(width);
    return row<kStream, false, false>(width);
  }
};

template <bool kPlain, class T>
HWY_INLINE void write(const Norm& job, const T* x, T* out, const T* next, View<kPlain> view,
                      double mean, double spread) {
  const double factor = 1 / std::sqrt(spread);
  const Writer<kPlain, T> writer{
      x,    static_cast<const T*>(job.weight), static_cast<const T*>(job.bias),   out, next,
      view, static_cast<float>(factor),        static_cast<float>(-mean * factor)};
  const size_t width = static_cast<size_t>(job.width);
  if constexpr (kPlain)
    if (job.stream && can_stream(out)) return writer.template write<true>(width);
  writer.template write<false>(width);
}

struct LayerNormRows {
  static constexpr double kTiny = 1e-30;  // below this, squares have lost bits to underflow

  // `square` is the mean of squares that f32 arithmetic gives.
  template <class T>
  static HWY_NOINLINE void careful(const Norm& job, const T* x, T* out, const T* next,
                                   double square) {
    const size_t width = static_cast<size_t>(job.width);
    const bool huge = square == std::numeric_limits<double>::infinity();
    for (float scale = huge ? 0x1p-100f : 1;; scale = 0x1p100f) {
      View<false> view{scale, 0};
      view.guess = static_cast<float>(moments<false>(x, width, view).mean);
      const Moments m = moments<false>(x, width, view);
      const double by = static_cast<double>(scale), spread = m.variance() + job.eps * by * by;
      // Elements of 1 and more either are equal or differ by far more than what underflows.
      if (scale == 1 && spread < kTiny && square < 1) continue;
      return write(job, x, out, next, view, m.mean, spread);
    }
  }

  template <class T>
  static void of(const Norm& job, int64_t begin, int64_t end) {
    auto at = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r) {
      T* const out = at.template at<T>(0);
      const T* const x = at.template at<T>(1);
      at.next();
      const T* const next = at.template at<T>(1);
      const Moments m = moments<true>(x, static_cast<size_t>(job.width), View<true>());
      const double spread = m.variance() + job.eps;
      const bool near_zero = m.mean * m.mean <= 0.8 * m.square;
      if (near_zero && spread >= kTiny && spread <= std::numeric_limits<float>::max())
        write(job, x, out, next, View<true>(), m.mean, spread);
      else
        careful(job, x, out, next, m.square);
    }
    if (job.stream) hwy::FlushStream();
  }
};

void layer_norm_rows(const Norm& job, int64_t begin, int64_t end) {
  by_type<LayerNormRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(layer_norm_rows);
}  // namespace

int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps) {
  if (out.numel() == 0) return YARD_OK;
  const auto data = [](Tensor t) -> const void* { return t ? t.data<char>() : nullptr; };
  const Norm job{{{out, x, Tensor(nullptr)}, 1},
                 data(weight),
                 data(bias),
                 x.size(-1),
                 eps,
                 x.dtype(),
                 streams(out, {x})};
  const int64_t bytes = 2 * job.width * (x.c()->dtype.bits / 8);
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(layer_norm_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
