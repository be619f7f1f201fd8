// SPDX-License-Identifier: Apache-2.0
// topk_softmax chooses the experts of a row, and their weights.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "topk.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "math.inc"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

struct TopkRows {
  struct Buffers {
    HWY_ALIGN float values[kMostExperts + hn::MaxLanes(DF())];  // later exponentials
    uint32_t order[kMostExperts];  // grows with the value, NaN last; 0 if taken
  };

  static HWY_INLINE uint32_t order_of(float v) {
    if (v != v) return ~0u;
    const uint32_t bits = std::bit_cast<uint32_t>(v + 0.0f);  // both zeros are equal
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  }

  static HWY_INLINE size_t take_largest(uint32_t* order, size_t count) {
    uint32_t most = 0;
    for (size_t i = 0; i < count; ++i) most = std::max(most, order[i]);
    const auto at = static_cast<size_t>(std::find(order, order + count, most) - order);
    order[at] = 0;
    return at;
  }

  template <class T>
  static HWY_INLINE void row(const Topk& job, const T* x, char* weights, char* ids) {
    const DF d;
    const auto experts = static_cast<size_t>(job.experts), k = static_cast<size_t>(job.k);
    Buffers b;
    for (size_t i = 0; i < experts; ++i) {
      b.values[i] = widen(read<T>(x + i));
      b.order[i] = order_of(b.values[i]);
    }
    for (size_t n = 0; n < k; ++n) {
      const auto id = static_cast<int32_t>(take_largest(b.order, experts));
      std::memcpy(ids + n * sizeof id, &id, sizeof id);
    }
    const auto id_at = [&](size_t n) { return static_cast<size_t>(read<int32_t>(ids + n * 4)); };
    const float largest = b.values[id_at(0)];
    for (size_t i = experts; i < experts + hn::Lanes(d); ++i) b.values[i] = 0;
    for (size_t i = 0; i < experts; i += hn::Lanes(d))
      store(exp_minus(hn::Sub(hn::Set(d, largest), load(d, b.values + i))), d, b.values + i);
    double sum = 0;
    if (job.renormalize)
      for (size_t n = 0; n < k; ++n) sum += static_cast<double>(b.values[id_at(n)]);
    else
      for (size_t i = 0; i < experts; ++i) sum += static_cast<double>(b.values[i]);
    for (size_t n = 0; n < k; ++n) {
      const auto w = static_cast<float>(static_cast<double>(b.values[id_at(n)]) / sum);
      std::memcpy(weights + n * sizeof w, &w, sizeof w);
    }
  }

  template <class T>
  static void of(const Topk& job, int64_t begin, int64_t end) {
    auto at = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, at.next())
      row(job, at.template at<T>(2), at.template at<char>(0), at.template at<char>(1));
  }
};

void topk_rows(const Topk& job, int64_t begin, int64_t end) { by_type<TopkRows>(job, begin, end); }

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(topk_rows);
}  // namespace

int32_t topk_softmax(Call call, Tensor weights, Tensor ids, Tensor x, bool renormalize) {
  if (weights.numel() == 0) return YARD_OK;
  const Topk job{{{weights, ids, x}, 1}, weights.size(-1), x.size(-1), x.dtype(), renormalize};
  const int64_t bytes = job.experts * (job.k + 8) * 4;
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(topk_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
