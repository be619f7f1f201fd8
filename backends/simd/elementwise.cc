// SPDX-License-Identifier: Apache-2.0
// add and mul, element by element.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elementwise.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

struct AddOf {
  static HWY_INLINE VF of(VF a, VF b) { return hn::Add(a, b); }
};
struct MulOf {
  static HWY_INLINE VF of(VF a, VF b) { return hn::Mul(a, b); }
};

template <class Function>
struct ElementwiseRows {
  template <bool kWhole, bool kStream, class T>
  static HWY_INLINE void step(T* out, const T* x, const T* y, size_t count) {
    VF a, b, ya, yb;
    load2_part<kWhole>(x, count, a, b);
    load2_part<kWhole>(y, count, ya, yb);
    store2_part<kWhole, kStream>(Function::of(a, ya), Function::of(b, yb), out, count);
  }

  template <bool kStream, class T>
  static HWY_INLINE void one(T* out, const T* x, const T* y, size_t width) {
    const size_t pair = pair_lanes();
    size_t i = 0;
    for (; i + pair <= width; i += pair) step<true, kStream>(out + i, x + i, y + i, pair);
    if (i < width) step<false, false>(out + i, x + i, y + i, width - i);
  }

  template <class T>
  static void of(const Elementwise& job, int64_t begin, int64_t end) {
    const size_t width = static_cast<size_t>(job.width);
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next()) {
      T* const out = row.template at<T>(0);
      const T *const x = row.template at<T>(1), *const y = row.template at<T>(2);
      job.stream&& can_stream(out) ? one<true>(out, x, y, width) : one<false>(out, x, y, width);
    }
    if (job.stream) hwy::FlushStream();
  }
};

void elementwise_rows(const Elementwise& job, int64_t begin, int64_t end) {
  switch (job.function) {
    case Elementwise::kAdd: return by_type<ElementwiseRows<AddOf>>(job, begin, end);
    case Elementwise::kMul: return by_type<ElementwiseRows<MulOf>>(job, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(elementwise_rows);

int32_t elementwise(Call call, Tensor out, Tensor a, Tensor b, Elementwise::Function function) {
  if (out.numel() == 0) return YARD_OK;
  const bool stream = streams(out, {a, b});
  const Elementwise job{{{out, a, b}, 1}, out.size(-1), out.dtype(), function, stream};
  const int64_t bytes = job.width * 3 * (job.dtype == YARD_F32 ? 4 : 2);
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(elementwise_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace

int32_t add(Call call, Tensor out, Tensor a, Tensor b) {
  return elementwise(call, out, a, b, Elementwise::kAdd);
}
int32_t mul(Call call, Tensor out, Tensor a, Tensor b) {
  return elementwise(call, out, a, b, Elementwise::kMul);
}

}  // namespace yard::simd
#endif
