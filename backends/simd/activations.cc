// SPDX-License-Identifier: Apache-2.0
// silu_and_mul and gelu_and_mul in one pass over a row.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "activations.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

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

struct Silu {
  static HWY_INLINE VF of(VF v) { return silu(v); }
};
struct GeluErf {
  static HWY_INLINE VF of(VF v) { return gelu_erf(v); }
};
struct GeluTanh {
  static HWY_INLINE VF of(VF v) { return gelu_tanh(v); }
};

template <class Function>
struct GateRows {
  template <bool kWhole, bool kStream, class T>
  static HWY_INLINE void step(T* out, const T* x, const T* gate, size_t count) {
    VF a, b, ga, gb;
    load2_part<kWhole>(x, count, a, b);
    load2_part<kWhole>(gate, count, ga, gb);
    a = hn::Mul(Function::of(a), ga);
    b = hn::Mul(Function::of(b), gb);
    store2_part<kWhole, kStream>(a, b, out, count);
  }

  template <bool kStream, class T>
  static HWY_INLINE void one(T* out, const T* x, size_t width) {
    const size_t pair = pair_lanes();
    size_t i = 0;
    for (; i + pair <= width; i += pair) step<true, kStream>(out + i, x + i, x + width + i, pair);
    if (i < width) step<false, false>(out + i, x + i, x + width + i, width - i);
  }

  template <class T>
  static void of(const Gate& job, int64_t begin, int64_t end) {
    const size_t width = static_cast<size_t>(job.width);
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next()) {
      T* const out = row.template at<T>(0);
      const T* const x = row.template at<T>(1);
      job.stream&& can_stream(out) ? one<true>(out, x, width) : one<false>(out, x, width);
    }
    if (job.stream) hwy::FlushStream();
  }
};

void gate_rows(const Gate& job, int64_t begin, int64_t end) {
  switch (job.function) {
    case Gate::kSilu: return by_type<GateRows<Silu>>(job, begin, end);
    case Gate::kGeluErf: return by_type<GateRows<GeluErf>>(job, begin, end);
    case Gate::kGeluTanh: return by_type<GateRows<GeluTanh>>(job, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(gate_rows);

int32_t gate(Call call, Tensor out, Tensor x, Gate::Function function) {
  if (out.numel() == 0) return YARD_OK;
  const Gate job{{{out, x}, 1}, out.size(-1), x.dtype(), function, streams(out, {x})};
  // These compute more than they move.
  const int64_t bytes = job.width * 12;
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gate_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace

int32_t silu_and_mul(Call call, Tensor out, Tensor x) { return gate(call, out, x, Gate::kSilu); }

int32_t gelu_and_mul(Call call, Tensor out, Tensor x, int64_t approximate) {
  return gate(call, out, x, approximate == 0 ? Gate::kGeluErf : Gate::kGeluTanh);
}

}  // namespace yard::simd
#endif
