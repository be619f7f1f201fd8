// SPDX-License-Identifier: Apache-2.0
// quantize_int8 stores a scale for each row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantize_int8.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

using DI = hn::RebindToSigned<DF>;

// The bits of absolute values are ordered like the values, and the bits of a NaN are larger.
template <bool kWhole, class T>
HWY_INLINE void note_largest(const T* x, size_t count, hn::Vec<DI>& most) {
  const DI di;
  VF a, b;
  load2_part<kWhole>(x, count, a, b);
  most = hn::Max(most, hn::BitCast(di, hn::Abs(a)));
  most = hn::Max(most, hn::BitCast(di, hn::Abs(b)));
}
template <class T>
HWY_INLINE float largest_in_row(const T* x, size_t width) {
  const DI di;
  const size_t pair = pair_lanes();
  hn::Vec<DI> most = hn::Zero(di);
  size_t i = 0;
  for (; i + pair <= width; i += pair) note_largest<true>(x + i, pair, most);
  if (i < width) note_largest<false>(x + i, width - i, most);
  return hn::GetLane(hn::BitCast(DF(), hn::MaxOfLanes(di, most)));
}

struct Step {
  float size;
  bool is_small = size < 1e-37f;  // the inverse would overflow, so elements are divided
  float inverse = is_small ? 0.0f : 1.0f / size;
};

// Rounds ties to even.
HWY_INLINE void store_rounded(VF x, const Step& step, int8_t* to) {
  const DF d;
  const VF scaled =
      step.is_small ? hn::Div(x, hn::Set(d, step.size)) : hn::Mul(x, hn::Set(d, step.inverse));
  const VF within = hn::Min(hn::Max(scaled, hn::Set(d, -127.0f)), hn::Set(d, 127.0f));
  const hn::Rebind<int8_t, DF> bytes;
  hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(within)), bytes, to);
}
template <bool kWhole, class T>
HWY_INLINE void round_pair(const T* x, size_t count, const Step& step, int8_t* out) {
  const size_t lanes = hn::Lanes(DF());
  HWY_ALIGN float ordered[2 * hn::MaxLanes(DF())];
  HWY_ALIGN int8_t some[2 * hn::MaxLanes(DF())];
  int8_t* const to = kWhole ? out : some;
  VF a, b;
  load2_part<kWhole>(x, count, a, b);
  store2_like<T>(a, b, ordered);
  store_rounded(hn::Load(DF(), ordered), step, to);
  store_rounded(hn::Load(DF(), ordered + lanes), step, to + lanes);
  if constexpr (!kWhole) std::memcpy(out, some, count);
}

struct QuantizeRowsAs {
  template <class T>
  static void of(const QuantizeRows& job, int64_t begin, int64_t end) {
    const auto width = static_cast<size_t>(job.width);
    const size_t pair = pair_lanes();
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next()) {
      const T* const x = row.template at<T>(2);
      auto* const out = row.template at<int8_t>(0);
      const float scale = largest_in_row(x, width) / 127.0f;
      std::memcpy(row.template at<char>(1), &scale, sizeof scale);
      if (scale == 0 || !std::isfinite(scale)) {
        std::fill_n(out, width, int8_t{0});
        continue;
      }
      const Step step{scale};
      size_t i = 0;
      for (; i + pair <= width; i += pair) round_pair<true>(x + i, pair, step, out + i);
      if (i < width) round_pair<false>(x + i, width - i, step, out + i);
    }
  }
};

void quantize_rows(const QuantizeRows& job, int64_t begin, int64_t end) {
  by_type<QuantizeRowsAs>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(quantize_rows);

}  // namespace

int32_t quantize_int8(Call call, Tensor out, Tensor scale, Tensor x) {
  const QuantizeRows job{{{out, scale, x}, 1}, x.size(-1), x.dtype()};
  if (job.walk.rows() == 0) return YARD_OK;
  call.parallel_for(job.walk.rows(), grain_of(job.width * 8), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(quantize_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
