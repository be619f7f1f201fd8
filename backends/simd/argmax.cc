// SPDX-License-Identifier: Apache-2.0
// argmax over the last dimension: the largest of each block of a row, then its place in the first block that has it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "argmax.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

struct ArgmaxRows {
  // A multiple of every pair of vectors.
  static constexpr size_t kBlock = 2048;

  // The largest of `count` elements; NaN if one is.
  template <class T>
  static HWY_INLINE float largest(const T* x, size_t count) {
    const DF d;
    const size_t pair = pair_lanes();
    VF m0 = hn::Set(d, -std::numeric_limits<float>::infinity()), m1 = m0;
    VF n0 = hn::Zero(d), n1 = n0, a, b;
    size_t i = 0;
    for (; i + pair <= count; i += pair) {
      load2(x + i, a, b);
      m0 = hn::Max(m0, a), m1 = hn::Max(m1, b);
      n0 = hn::Or(n0, hn::VecFromMask(d, hn::IsNaN(a)));
      n1 = hn::Or(n1, hn::VecFromMask(d, hn::IsNaN(b)));
    }
    if (!hn::AllFalse(d, hn::MaskFromVec(hn::Or(n0, n1))))
      return std::numeric_limits<float>::quiet_NaN();
    float most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
    for (; i < count; ++i) {
      const float v = widen(read<T>(x + i));
      if (v != v) return v;
      most = v > most ? v : most;
    }
    return most;
  }

  template <class T>
  static HWY_INLINE int64_t row(const T* x, size_t width) {
    size_t block = 0;
    float most = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < width; i += kBlock) {
      const float here = largest(x + i, HWY_MIN(kBlock, width - i));
      if (here > most || here != here) most = here, block = i;
      if (here != here) break;
    }
    // The first pair that has it, then the element. A row of nothing but -inf has it at once.
    const DF d;
    const VF wanted = hn::Set(d, most);
    size_t from = block;
    for (VF a, b; from + pair_lanes() <= width; from += pair_lanes()) {
      load2(x + from, a, b);
      if (most != most || !hn::AllFalse(d, hn::Or(hn::Eq(a, wanted), hn::Eq(b, wanted)))) break;
    }
    for (size_t i = from; i < width; ++i) {
      const float v = widen(read<T>(x + i));
      if (v == most || (v != v && most != most)) return static_cast<int64_t>(i);
    }
    return 0;
  }

  template <class T>
  static void of(const Argmax& job, int64_t begin, int64_t end) {
    auto at = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, at.next()) {
      const int64_t index = row(at.template at<T>(1), static_cast<size_t>(job.width));
      const auto narrow_index = static_cast<int32_t>(index);
      if (job.wide)
        std::memcpy(at.template at<char>(0), &index, sizeof index);
      else
        std::memcpy(at.template at<char>(0), &narrow_index, sizeof narrow_index);
    }
  }
};

void argmax_rows(const Argmax& job, int64_t begin, int64_t end) {
  by_type<ArgmaxRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(argmax_rows);
}  // namespace

int32_t argmax(Call call, Tensor out, Tensor x) {
  if (out.numel() == 0) return YARD_OK;
  const int64_t width = x.size(-1);
  if (width == 0)
    return call.fail(YARD_CALLER, "argmax: invalid x: expected rows of at least 1 element, got 0");
  const Argmax job{{{out, x}, 0}, width, x.dtype(), out.dtype() == YARD_I64};
  call.parallel_for(job.walk.rows(), grain_of(width * 8), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(argmax_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
