// SPDX-License-Identifier: Apache-2.0
// softmax over the last dimension.
//
// Computes the largest element, then the exponentials and their sum, then the quotients. In f32 the
// output holds the exponentials meanwhile. Sixteen bits are not enough for them, so long 16-bit
// rows compute them twice.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "softmax.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "math.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Fills the last vector of a row, and changes neither the maximum nor the sum.
template <class T>
HWY_INLINE T minus_infinity() {
  if constexpr (std::is_same_v<T, float>) return -std::numeric_limits<float>::infinity();
  if constexpr (std::is_same_v<T, F16>) return F16{0xfc00};
  if constexpr (std::is_same_v<T, BF16>) return BF16{0xff80};
}

struct SoftmaxRows {
  // A multiple of every pair of vectors.
  static constexpr size_t kBlock = 4096;

  // A NaN may win or lose here, because the sum becomes NaN in both cases.
  template <class T>
  static HWY_INLINE float largest(const T* x, size_t width) {
    const DF d;
    const size_t pair = pair_lanes();
    VF m0 = hn::Set(d, -std::numeric_limits<float>::infinity()), m1 = m0, m2 = m0, m3 = m0;
    VF a, b;
    size_t i = 0;
    for (; i + 2 * pair <= width; i += 2 * pair) {
      load2(x + i, a, b);
      m0 = hn::Max(m0, a), m1 = hn::Max(m1, b);
      load2(x + i + pair, a, b);
      m2 = hn::Max(m2, a), m3 = hn::Max(m3, b);
    }
    for (; i + pair <= width; i += pair) {
      load2(x + i, a, b);
      m0 = hn::Max(m0, a), m1 = hn::Max(m1, b);
    }
    if (i < width) {
      load2_part<false>(x + i, width - i, a, b, minus_infinity<T>());
      m2 = hn::Max(m2, a), m3 = hn::Max(m3, b);
    }
    return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  }

  // 16-bit rows with at most this many elements keep their exponentials in f32 for the division.
  static constexpr size_t kMostKept = 4096;

  // Stores the exponentials in `out` if it holds f32, otherwise in `kept` unless that is null.
  template <bool kWhole, class T>
  static HWY_INLINE void add_step(const T* x, T* out, float* kept, size_t count, VF top, VF& s0,
                                  VF& s1) {
    VF a, b;
    load2_part<kWhole>(x, count, a, b, minus_infinity<T>());
    a = exp_minus(hn::Sub(top, a));
    b = exp_minus(hn::Sub(top, b));
    s0 = hn::Add(s0, a), s1 = hn::Add(s1, b);
    if constexpr (std::is_same_v<T, float>) {
      store2_part<kWhole>(a, b, out, count);
    } else if (kept != nullptr) {
      hn::StoreU(a, DF(), kept);
      hn::StoreU(b, DF(), kept + hn::Lanes(DF()));
    }
  }

  // Adds in blocks, so that a long row has few rounding errors.
  template <class T>
  static HWY_INLINE double exponentials(const T* x, T* out, float* kept, size_t width, VF top) {
    const auto kept_at = [kept](size_t i) { return kept != nullptr ? kept + i : nullptr; };
    const size_t pair = pair_lanes();
    double total = 0;
    for (size_t i = 0; i < width;) {
      VF s0 = hn::Zero(DF()), s1 = s0;
      const size_t end = HWY_MIN(width, i + kBlock);
      for (; i + pair <= end; i += pair)
        add_step<true>(x + i, out + i, kept_at(i), pair, top, s0, s1);
      if (i < end) add_step<false>(x + i, out + i, kept_at(i), end - i, top, s0, s1), i = end;
      total += static_cast<double>(sum_of(hn::Add(s0, s1)));
    }
    return total;
  }

  template <bool kWhole, class T>
  static HWY_INLINE void divide_step(const T* x, T* out, const float* kept, size_t count, VF top,
                                     VF scale) {
    VF a, b;
    if constexpr (std::is_same_v<T, float>) {
      load2_part<kWhole>(out, count, a, b);
    } else if (kept != nullptr) {
      a = hn::LoadU(DF(), kept);
      b = hn::LoadU(DF(), kept + hn::Lanes(DF()));
    } else {
      load2_part<kWhole>(x, count, a, b);
      a = exp_minus(hn::Sub(top, a));
      b = exp_minus(hn::Sub(top, b));
    }
    store2_part<kWhole>(hn::Mul(a, scale), hn::Mul(b, scale), out, count);
  }

  template <class T>
  static void of(const Softmax& job, int64_t begin, int64_t end) {
    const DF d;
    const size_t width = static_cast<size_t>(job.width), pair = pair_lanes();
    constexpr size_t kRoom = std::is_same_v<T, float> ? 1 : kMostKept + 2 * hn::MaxLanes(DF());
    float room[kRoom];
    float* const kept = !std::is_same_v<T, float> && width <= kMostKept ? room : nullptr;
    const auto kept_at = [kept](size_t i) { return kept != nullptr ? kept + i : nullptr; };
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next()) {
      T* const out = row.template at<T>(0);
      const T* const x = row.template at<T>(1);
      // A row with a NaN or +inf, or of only -inf, has a difference of NaN and becomes NaN.
      const VF top = hn::Set(d, largest(x, width));
      const double sum = exponentials(x, out, kept, width, top);
      const VF scale = hn::Set(d, static_cast<float>(1.0 / sum));
      size_t i = 0;
      for (; i + pair <= width; i += pair)
        divide_step<true>(x + i, out + i, kept_at(i), pair, top, scale);
      if (i < width) divide_step<false>(x + i, out + i, kept_at(i), width - i, top, scale);
    }
  }
};

void softmax_rows(const Softmax& job, int64_t begin, int64_t end) {
  by_type<SoftmaxRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(softmax_rows);
}  // namespace

int32_t softmax(Call call, Tensor out, Tensor x) {
  if (out.numel() == 0) return YARD_OK;
  const Softmax job{{{out, x}, 1}, out.size(-1), x.dtype()};
  const int64_t bytes = job.width * 12;  // the op computes more than it moves
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(softmax_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
