// SPDX-License-Identifier: Apache-2.0
// Products of blocks by the `sdot` instruction of Arm v8.2.
#include "quant.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

#include <cstring>

#include "arm_isa.h"
#include "quant_neon.h"

namespace yard::simd {
namespace neon {
namespace {

#define YARD_ISA YARD_ARM_ISA("dotprod")
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

YARD_ISA_INLINE int32x4_t sdot(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__clang__)
  asm("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
#else
  return vdotq_s32(sum, a, b);
#endif
}
// Multiplies all lanes of `a` by lane kLane of `b`, which has four bytes.
template <int kLane>
YARD_ISA_INLINE int32x4_t sdot_lane(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__clang__)
  asm("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(sum) : "w"(a), "w"(b), "i"(kLane));
  return sum;
#else
  return vdotq_laneq_s32(sum, a, b, kLane);
#endif
}

YARD_ISA_INLINE void transpose(float32x4_t (&v)[4]) {
  const float32x4_t a = vtrn1q_f32(v[0], v[1]), b = vtrn2q_f32(v[0], v[1]);
  const float32x4_t c = vtrn1q_f32(v[2], v[3]), d = vtrn2q_f32(v[2], v[3]);
  const auto low = [](float32x4_t x, float32x4_t y) __attribute__((always_inline)) {
    return vcombine_f32(vget_low_f32(x), vget_low_f32(y));
  };
  const auto high = [](float32x4_t x, float32x4_t y) __attribute__((always_inline)) {
    return vcombine_f32(vget_high_f32(x), vget_high_f32(y));
  };
  v[0] = low(a, c), v[1] = low(b, d), v[2] = high(a, c), v[3] = high(b, d);
}

// Returns the sums of four vectors, in units of 2^-kBits.
template <int kBits>
YARD_ISA_INLINE float32x4_t sums_of(const int32x4_t (&v)[4]) {
  const int32x4_t sums = vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
  if constexpr (kBits == 0)
    return vcvtq_f32_s32(sums);
  else
    return vcvtq_n_f32_s32(sums, kBits);
}

template <int kBits>
YARD_ISA_INLINE int32x4_t finer(const int32x4_t& dots) {
  if constexpr (kBits == 0)
    return new_zero();
  else
    return vshlq_n_s32(dots, kBits);
}
// Adds products of block kAt of four rows, after converting sums to steps that are kBits finer.
template <Format F, int kAt, int kBits>
YARD_ISA_INLINE void add_dots(const uint8_t* const (&p)[4], const XRowRest& x,
                              int32x4_t (&first)[4], int32x4_t (&second)[4]) {
  const int8x16_t x0 = vld1q_s8(x.q), x1 = vld1q_s8(x.q + 16);
  for (int r = 0; r < 4; ++r) {
    const Elements w = elements<F, kAt>(p[r]);
    first[r] = sdot(finer<kBits>(first[r]), w.low, x0);
    if constexpr (kind_of(F) == BlockKind::kTwoScales)
      second[r] = sdot(finer<kBits>(second[r]), w.high, x1);
    else
      first[r] = sdot(first[r], w.high, x1);
  }
}

template <Format F, int kAt>
YARD_ISA_INLINE VF add_block(const uint8_t* const (&p)[4], VF scale, VF other, const XRow& x,
                             VF sum) {
  constexpr bool kTwo = kind_of(F) == BlockKind::kTwoScales;
  int32x4_t first[4], second[4];
  add_dots<F, kAt, 0>(p, x, first, second);
  float32x4_t a, b;
  if (x.rest == nullptr) [[likely]] {
    a = sums_of<0>(first);
    if constexpr (kTwo) b = sums_of<0>(second);
  } else {
    add_dots<F, kAt, kRestBits>(p, *x.rest, first, second);
    a = sums_of<kRestBits>(first);
    if constexpr (kTwo) b = sums_of<kRestBits>(second);
  }
  sum = vfmaq_n_f32(sum, vmulq_f32(a, scale), x.scale[0]);
  if constexpr (kTwo) sum = vfmaq_n_f32(sum, vmulq_f32(b, other), x.scale[0]);
  if constexpr (kind_of(F) == BlockKind::kMinimum) sum = vfmaq_n_f32(sum, other, x.sum[0]);
  return sum;
}

YARD_ISA_INLINE void interleave_half(int8x16_t a, int8x16_t b, int8x16_t c, int8x16_t d,
                                     int8_t* to) {
  float32x4_t v[4] = {vreinterpretq_f32_s8(a), vreinterpretq_f32_s8(b), vreinterpretq_f32_s8(c),
                      vreinterpretq_f32_s8(d)};
  transpose(v);
  for (int i = 0; i < 4; ++i) vst1q_s8(to + i * 4 * kPanelRows, vreinterpretq_s8_f32(v[i]));
}
template <Format F, int kAt>
YARD_ISA_INLINE void interleave(const uint8_t* const (&p)[4], int8_t* to) {
  const Elements a = elements<F, kAt>(p[0]), b = elements<F, kAt>(p[1]), c = elements<F, kAt>(p[2]),
                 d = elements<F, kAt>(p[3]);
  interleave_half(a.low, b.low, c.low, d.low, to);
  interleave_half(a.high, b.high, c.high, d.high, to + 16 * kPanelRows);
}

inline constexpr int64_t kChunk = 4;

// Dot products of eight weight rows with kRows rows.
template <int kRows>
struct Dots {
  int32x4_t v[kRows][2];
};
template <int kRows, int kRow = 0>
YARD_ISA_INLINE void add_four(Dots<kRows>& dots, int8x16_t w0, int8x16_t w1, int8x16_t x) {
  dots.v[kRow][0] = sdot_lane<kRow>(dots.v[kRow][0], w0, x);
  dots.v[kRow][1] = sdot_lane<kRow>(dots.v[kRow][1], w1, x);
  if constexpr (kRow + 1 < kRows) add_four<kRows, kRow + 1>(dots, w0, w1, x);
}
// Adds elements [4 * kBegin, 4 * kEnd) of a block.
template <int kBegin, int kEnd, int kRows>
YARD_ISA_INLINE void add_dots(Dots<kRows>& dots, const int8_t* w, const int8_t* x) {
#pragma GCC unroll 8
  for (int i = kBegin; i < kEnd; ++i)
    add_four<kRows>(dots, vld1q_s8(w + i * 4 * kPanelRows), vld1q_s8(w + i * 4 * kPanelRows + 16),
                    vld1q_s8(x + i * 4 * kGroupRows));
}

// Adds the rest of rows that have one, and converts the dots of all rows to steps of the rest.
template <int kBegin, int kEnd, int kRows, int kRow = 0>
YARD_ISA_INLINE void add_rest(Dots<kRows>& dots, const int8_t* w, const XGroupRest& x) {
  for (int i = 0; i < 2; ++i) dots.v[kRow][i] = vshlq_n_s32(dots.v[kRow][i], kRestBits);
  if (x.used[kRow]) {
#pragma GCC unroll 8
    for (int i = kBegin; i < kEnd; ++i) {
      const int8x16_t four = vld1q_s8(x.q + i * 4 * kGroupRows);
      for (int j = 0; j < 2; ++j)
        dots.v[kRow][j] =
            sdot_lane<kRow>(dots.v[kRow][j], vld1q_s8(w + i * 4 * kPanelRows + 16 * j), four);
    }
  }
  if constexpr (kRow + 1 < kRows) add_rest<kBegin, kEnd, kRows, kRow + 1>(dots, w, x);
}

template <int kRows>
struct Values {
  VF v[kRows][2];
};
template <int kBegin, int kEnd, int kRows>
YARD_ISA_INLINE Values<kRows> with_rest(Dots<kRows> dots, const int8_t* w, const XGroupRest& x) {
  add_rest<kBegin, kEnd, kRows>(dots, w, x);
  Values<kRows> values;
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 2; ++i) values.v[r][i] = vcvtq_n_f32_s32(dots.v[r][i], kRestBits);
  return values;
}

template <int kRows, int kRow = 0>
YARD_ISA_INLINE void add_scaled(VF (&sums)[kRows][2], const Values<kRows>& values,
                                const float* scale, float32x4_t factors) {
  for (int i = 0; i < 2; ++i) {
    const float32x4_t v = vmulq_f32(values.v[kRow][i], vld1q_f32(scale + 4 * i));
    sums[kRow][i] = vfmaq_laneq_f32(sums[kRow][i], v, factors, kRow);
  }
  if constexpr (kRow + 1 < kRows) add_scaled<kRows, kRow + 1>(sums, values, scale, factors);
}
// Adds elements [4 * kBegin, 4 * kEnd) of a block, times their scales.
template <int kBegin, int kEnd, int kRows>
YARD_ISA_INLINE void add_products(VF (&sums)[kRows][2], const int8_t* w, const float* scale,
                                  const XGroup& x) {
  const float32x4_t factors = vld1q_f32(x.scale);
  Dots<kRows> dots;
  for (int r = 0; r < kRows; ++r) dots.v[r][0] = new_zero(), dots.v[r][1] = new_zero();
  add_dots<kBegin, kEnd, kRows>(dots, w, x.q);
  Values<kRows> values;
  if (x.rest == nullptr) [[likely]] {
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 2; ++i) values.v[r][i] = vcvtq_f32_s32(dots.v[r][i]);
  } else {
    values = with_rest<kBegin, kEnd, kRows>(dots, w, *x.rest);
  }
  add_scaled<kRows>(sums, values, scale, factors);
}
template <int kRows, int kRow = 0>
YARD_ISA_INLINE void add_minima(VF (&sums)[kRows][2], const float* minimum, float32x4_t factors) {
  for (int i = 0; i < 2; ++i)
    sums[kRow][i] = vfmaq_laneq_f32(sums[kRow][i], vld1q_f32(minimum + 4 * i), factors, kRow);
  if constexpr (kRow + 1 < kRows) add_minima<kRows, kRow + 1>(sums, minimum, factors);
}

template <BlockKind kKind, int kRows>
YARD_ISA void tile_rows(const WBlock* w, int64_t blocks, const XGroup* x, int64_t lane, float* to) {
  VF sums[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 2; ++i) sums[r][i] = vld1q_f32(to + r * kPanelRows + lane + 4 * i);
  for (; blocks > 0; --blocks, ++w, ++x) {
    const int8_t* const q = w->q + 4 * lane;
    if constexpr (kKind == BlockKind::kTwoScales) {
      add_products<0, 4, kRows>(sums, q, w->scale + lane, *x);
      add_products<4, 8, kRows>(sums, q, w->other + lane, *x);
    } else {
      add_products<0, 8, kRows>(sums, q, w->scale + lane, *x);
    }
    if constexpr (kKind == BlockKind::kMinimum)
      add_minima<kRows>(sums, w->other + lane, vld1q_f32(x->sum));
  }
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < 2; ++i) vst1q_f32(to + r * kPanelRows + lane + 4 * i, sums[r][i]);
}

// Adds products of four packed rows with half a row.
template <int kFour = 0>
YARD_ISA_INLINE int32x4_t add_packed(int32x4_t dots, const int8x16_t* w, int8x16_t x) {
  dots = sdot_lane<kFour>(dots, w[kFour], x);
  if constexpr (kFour < 3) dots = add_packed<kFour + 1>(dots, w, x);
  return dots;
}
// Adds products of a packed block with a row: of the first half if kPart is 1, of the second if it
// is 2, of both if it is 0.
template <int kPart>
YARD_ISA_INLINE int32x4_t add_part(int32x4_t dots, const int8x16_t (&w)[8], const int8_t* q) {
  if constexpr (kPart != 2) dots = add_packed(dots, w, vld1q_s8(q));
  if constexpr (kPart != 1) dots = add_packed(dots, w + 4, vld1q_s8(q + 16));
  return dots;
}
template <int kPart>
YARD_ISA_INLINE VF packed_product(const int8x16_t (&w)[8], const XRow& x) {
  const int32x4_t dots = add_part<kPart>(new_zero(), w, x.q);
  if (x.rest == nullptr) [[likely]]
    return vcvtq_f32_s32(dots);
  const int32x4_t finer = vshlq_n_s32(dots, kRestBits);
  return vcvtq_n_f32_s32(add_part<kPart>(finer, w, x.rest->q), kRestBits);
}

template <Format F, int kRows>
YARD_ISA void strip_rows(const uint8_t* strip, int64_t blocks, const XRow* x, int64_t stride,
                         float* out) {
  constexpr int64_t kElements = packed_bytes(F) * kStripRows, kScales = scale_bytes(F) * kStripRows;
  const uint8_t *q = strip, *s = strip + blocks * kElements;
  VF sums[kRows];
  for (VF& sum : sums) sum = zero();
  for (; blocks > 0; --blocks, q += kElements, s += kScales, ++x) {
    int8x16_t w[8];
    load_packed<F>(q, w);
    const HeadPairs pairs = packed_scales<F>(s);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const XRow& block = x[r * stride];
      constexpr bool kTwo = kind_of(F) == BlockKind::kTwoScales;
      constexpr int kFirst = kTwo ? 1 : 0;
      const VF first = packed_product<kFirst>(w, block);
      sums[r] = vfmaq_n_f32(sums[r], vmulq_f32(first, pairs.first), block.scale[0]);
      if constexpr (kTwo)
        sums[r] = vfmaq_n_f32(sums[r], vmulq_f32(packed_product<2>(w, block), pairs.second),
                              block.scale[0]);
      if constexpr (kind_of(F) == BlockKind::kMinimum)
        sums[r] = vfmaq_n_f32(sums[r], pairs.second, block.sum[0]);
    }
  }
  for (int r = 0; r < kRows; ++r) store(out + r * kPanelRows, sums[r]);
}

template <Format F>
YARD_ISA void unpack_strip(const uint8_t* strip, int64_t blocks, int64_t first, int64_t last,
                           int64_t lane, WBlock* out) {
  unpack_blocks<F>(
      strip, blocks, first, last, lane,
      out, [lane](const int8x16_t(&v)[8], int8_t* to) __attribute__((always_inline)) {
        for (int i = 0; i < 8; ++i) vst1q_s8(to + (i * kPanelRows + lane) * 4, v[i]);
      });
}

#include "quant_neon_tile.inc"
#include "quant_tile.inc"

#include "quant_row.inc"  // after quant_tile.inc

constexpr QuantKernels kKernels{.row = row,
                                .unpack = unpack,
                                .tile = tile,
                                .chunk = kChunk,
                                .packed = {kStripRows, false, packed_rows, unpack_packed}};

}  // namespace

void sdot_row(const QuantWeight& weight, int64_t begin, int64_t end, const XRow* x, float* out) {
  row(weight, begin, end, x, out);
}

void sdot_packed_rows(Format format, const uint8_t* panel, int64_t blocks, const XRow* x,
                      int64_t stride, int64_t rows, float* out) {
  packed_rows(format, panel, blocks, x, stride, rows, out);
}

}  // namespace neon

const QuantKernels* quant_kernels_neon() {
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProduct) != 0 ? &neon::kKernels : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
const QuantKernels* quant_kernels_neon() { return nullptr; }
}  // namespace yard::simd
#endif
