// SPDX-License-Identifier: Apache-2.0
// rotary_embedding turns pairs of dimensions of query and key in place. The angles of a token are
// computed once, in the order of vectors, for all its heads.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rotary.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "angles.h"
#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Converts elements of any type to f32 in order.
template <bool kWhole, class T>
HWY_INLINE void widen_step(const T* from, size_t count, float* to) {
  VF a, b;
  load2_part<kWhole>(from, count, a, b);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, BF16>) {
    HWY_ALIGN float some[2 * hn::MaxLanes(DF())];
    hn::StoreInterleaved2(a, b, DF(), some);
    load2(some, a, b);
  }
#endif
  if constexpr (std::is_same_v<T, float>) a = plain_nan(a), b = plain_nan(b);
  store2_part<kWhole>(a, b, to, count);
}

template <class T>
HWY_INLINE void widen(const T* from, size_t count, float* to) {
  const size_t pair = pair_lanes();
  size_t i = 0;
  for (; i + pair <= count; i += pair) widen_step<true>(from + i, pair, to + i);
  if (i < count) widen_step<false>(from + i, count - i, to + i);
}

// Converts columns [from, from + count) of a row of a table to f32.
HWY_INLINE void widen_table(const char* row, uint32_t dtype, size_t from, size_t count, float* to) {
  if (dtype == YARD_F32)
    widen(reinterpret_cast<const float*>(row) + from, count, to);
  else if (dtype == YARD_F16)
    widen(reinterpret_cast<const F16*>(row) + from, count, to);
  else
    widen(reinterpret_cast<const BF16*>(row) + from, count, to);
}

HWY_INLINE void turn(VF& a, VF& b, VF cos, VF sin) {
  const VF first = hn::NegMulAdd(b, sin, hn::Mul(a, cos));
  b = hn::MulAdd(a, sin, hn::Mul(b, cos));
  a = first;
}

// Turns pairs (i, i + half), which are two runs of `count` elements.
template <bool kWhole, class T>
HWY_INLINE void turn_step(T* first, T* second, const float* cos, const float* sin, size_t count) {
  VF a0, a1, b0, b1, c0, c1, s0, s1;
  load2_part<kWhole>(first, count, a0, a1);
  load2_part<kWhole>(second, count, b0, b1);
  load2_like<T>(cos, c0, c1);
  load2_like<T>(sin, s0, s1);
  turn(a0, b0, c0, s0);
  turn(a1, b1, c1, s1);
  store2_part<kWhole>(a0, a1, first, count);
  store2_part<kWhole>(b0, b1, second, count);
}

template <class T>
HWY_INLINE void turn_halves(T* first, T* second, const Angles& angles, size_t count) {
  const size_t pair = pair_lanes();
  size_t i = 0;
  for (; i + pair <= count; i += pair)
    turn_step<true>(first + i, second + i, angles.cos + i, angles.sin + i, pair);
  if (i < count) turn_step<false>(first + i, second + i, angles.cos + i, angles.sin + i, count - i);
}

// Loads and stores neighbouring pairs. `a` has the first element of each pair.
HWY_INLINE void load_pairs(const float* p, VF& a, VF& b) { hn::LoadInterleaved2(DF(), p, a, b); }
HWY_INLINE void store_pairs(VF a, VF b, float* p) { hn::StoreInterleaved2(a, b, DF(), p); }
HWY_INLINE void load_pairs(const F16* p, VF& a, VF& b) {
  VH x, y;
  hn::LoadInterleaved2(DH(), reinterpret_cast<const uint16_t*>(p), x, y);
  a = widen_f16(x), b = widen_f16(y);
}
HWY_INLINE void store_pairs(VF a, VF b, F16* p) {
  hn::StoreInterleaved2(narrow_f16(a), narrow_f16(b), DH(), reinterpret_cast<uint16_t*>(p));
}
// A pair of bf16 vectors already has the even elements in `a` and the odd ones in `b`.
HWY_INLINE void load_pairs(const BF16* p, VF& a, VF& b) { load2(p, a, b); }
HWY_INLINE void store_pairs(VF a, VF b, BF16* p) { store2(a, b, p); }

template <class T>
HWY_INLINE void turn_pairs(T* p, const float* cos, const float* sin) {
  VF a, b;
  load_pairs(p, a, b);
  turn(a, b, hn::LoadU(DF(), cos), hn::LoadU(DF(), sin));
  store_pairs(a, b, p);
}

template <class T>
HWY_INLINE void turn_neighbours(T* p, const Angles& angles, size_t count) {
  const size_t lanes = hn::Lanes(DF());
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) turn_pairs(p + 2 * i, angles.cos + i, angles.sin + i);
  if (i == count) return;
  HWY_ALIGN T some[2 * hn::MaxLanes(DF())] = {};
  std::memcpy(some, p + 2 * i, (count - i) * 2 * sizeof(T));
  turn_pairs(some, angles.cos + i, angles.sin + i);
  std::memcpy(p + 2 * i, some, (count - i) * 2 * sizeof(T));
}

struct RotaryRows {
  // Turns dimensions [from, from + count) of every pair, in all heads of one token.
  template <class T>
  static HWY_INLINE void turn_heads(const Rotary& job, T* token, int64_t heads, int64_t stride,
                                    const Angles& angles, size_t from, size_t count) {
    for (int64_t h = 0; h < heads; ++h) {
      T* const head = token + h * stride;
      if (job.interleaved)
        turn_neighbours(head + 2 * from, angles, count);
      else
        turn_halves(head + from, head + job.dims / 2 + from, angles, count);
    }
  }

  template <class T>
  static void of(const Rotary& job, int64_t begin, int64_t end) {
    const size_t half = static_cast<size_t>(job.dims / 2);
    Angles angles;
    for (size_t from = 0; from < half; from += Angles::kMost) {
      const size_t count = HWY_MIN(Angles::kMost, half - from);
      if (job.cos == nullptr) angles.set_frequencies(job.base, half, from, count);
      auto row = job.walk.from(begin);
      for (int64_t r = begin; r < end; ++r, row.next()) {
        const int64_t position = position_of(job, row.template at<char>(2), r);
        if (job.cos == nullptr) {
          angles.set_position(position, count);
        } else {
          const char* const cos = job.cos + position * job.cos_stride;
          const char* const sin = job.sin + position * job.sin_stride;
          widen_table(cos, job.cos_dtype, from, count, angles.cos);
          widen_table(sin, job.sin_dtype, from, count, angles.sin);
        }
        turn_heads(job, row.template at<T>(0), job.heads, job.head_stride, angles, from, count);
        if (T* const key = row.template at<T>(1))
          turn_heads(job, key, job.key_heads, job.key_head_stride, angles, from, count);
      }
    }
  }
};

void rotary_rows(const Rotary& job, int64_t begin, int64_t end) {
  by_type<RotaryRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(rotary_rows);

// Returns how many dimensions of a head are rotated, or a negative number after a failure. The
// schema limits rotary_dim too, but bound calls change scalars without a check, and this one
// decides which memory is touched.
int64_t rotated_dims(Call call, Tensor query, Tensor cos, int64_t rotary_dim) noexcept {
  const auto refuse = [&](const char* format, auto... figures) {
    return -int64_t{call.fail(YARD_CALLER, format, static_cast<long long>(figures)...)};
  };
  const int64_t head_dim = query.size(-1);
  if (rotary_dim < 0 || rotary_dim > head_dim || rotary_dim % 2 != 0)
    return refuse(
        "rotary_embedding: rotary_dim is %lld; it must be even and between 0 and head_dim, %lld",
        rotary_dim, head_dim);
  if (cos) {
    const int64_t covered = 2 * cos.size(-1);
    if (rotary_dim != 0 && rotary_dim != covered)
      return refuse("rotary_embedding: rotary_dim is %lld, but cos and sin cover %lld dimensions",
                    rotary_dim, covered);
    return covered;
  }
  if (rotary_dim != 0) return rotary_dim;
  if (head_dim % 2 != 0)
    return refuse(
        "rotary_embedding: head_dim is %lld, which is odd; give rotary_dim or cos and sin",
        head_dim);
  return head_dim;
}

// Checks that every position has a row in the tables. The error names the first that has none.
int32_t check_positions(Call call, const Rotary& job, int64_t rows) noexcept {
  auto row = job.walk.from(0);
  for (int64_t token = 0; token < job.walk.rows(); ++token, row.next()) {
    const int64_t position = position_of(job, row.at<char>(2), token);
    if (position < 0 || position >= rows)
      return call.fail(
          YARD_CALLER,
          "rotary_embedding: token %lld has position %lld, but cos and sin have %lld rows",
          static_cast<long long>(token), static_cast<long long>(position),
          static_cast<long long>(rows));
  }
  return YARD_OK;
}

}  // namespace

int32_t rotary_embedding(Call call, Tensor query, Tensor key, Tensor positions, Tensor cos,
                         Tensor sin, int64_t rotary_dim, double base, int64_t style) {
  if (!(base > 0))
    return call.fail(YARD_CALLER, "rotary_embedding: base is %g, not positive", base);
  const int64_t dims = rotated_dims(call, query, cos, rotary_dim);
  if (dims < 0) return static_cast<int32_t>(-dims);

  Rotary job{{{query, key, positions}, 2}};
  job.heads = query.size(-2), job.head_stride = query.stride(-2);
  if (key) job.key_heads = key.size(-2), job.key_head_stride = key.stride(-2);
  job.dims = dims, job.interleaved = style != 0, job.base = base, job.dtype = query.dtype();
  job.wide_positions = positions && positions.dtype() == YARD_I64;
  if (cos) {
    const auto bytes = [](Tensor t) { return t.stride(0) * (t.c()->dtype.bits / 8); };
    job.cos = cos.data<char>(), job.cos_stride = bytes(cos), job.cos_dtype = cos.dtype();
    job.sin = sin.data<char>(), job.sin_stride = bytes(sin), job.sin_dtype = sin.dtype();
  }
  if (job.walk.rows() == 0) return YARD_OK;
  if (positions && cos)
    if (const int32_t code = check_positions(call, job, cos.size(0)); code != YARD_OK) return code;
  // An empty table may have no data, and then no dimension is rotated.
  if (dims == 0) return YARD_OK;

  const int64_t bytes = (job.heads + job.key_heads + 4) * dims * 8;
  call.parallel_for(job.walk.rows(), grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotary_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
