// SPDX-License-Identifier: Apache-2.0
// Panels by the `smmla` instruction of Arm's i8mm, which multiplies two weight rows by two rows,
// with eight elements of each. It takes half as many instructions as `sdot`. Sums of integers are
// exact, and blocks are added in the same order, so results have the same bits.
#include "quant.h"

#if defined(__aarch64__)
#include <sys/auxv.h>

#include <cstring>

#include "arm_isa.h"
#include "quant_neon.h"

namespace yard::simd {
namespace neon {
namespace {

#define YARD_ISA YARD_ARM_ISA("i8mm")
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

// Adds the products of the first row of `a` with both rows of `b`, then of the second row.
YARD_ISA_INLINE int32x4_t smmla(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__clang__)
  asm("smmla %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
#else
  return vmmlaq_s32(sum, a, b);
#endif
}

inline constexpr int64_t kChunk = 8;

// Stores eight elements of two rows, then the next eight of both.
YARD_ISA_INLINE void interleave_pair(Elements a, Elements b, int8_t* to) {
  const auto put = [&to](int8x16_t first, int8x16_t second) __attribute__((always_inline)) {
    const int64x2_t x = vreinterpretq_s64_s8(first), y = vreinterpretq_s64_s8(second);
    vst1q_s8(to, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(to + kChunk * kPanelRows, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
    to += 2 * kChunk * kPanelRows;
  };
  put(a.low, b.low);
  put(a.high, b.high);
}
template <Format F, int kAt>
YARD_ISA_INLINE void interleave(const uint8_t* const (&p)[4], int8_t* to) {
  interleave_pair(elements<F, kAt>(p[0]), elements<F, kAt>(p[1]), to);
  interleave_pair(elements<F, kAt>(p[2]), elements<F, kAt>(p[3]), to + 2 * kChunk);
}

// Eight weight rows times kPairs pairs of rows. A vector has two weight rows for the first row of
// its pair, then for the second.
inline constexpr int kWeightPairs = 4;
template <int kPairs>
struct Dots {
  int32x4_t v[kPairs][kWeightPairs];
};

// Adds elements [8 * kBegin, 8 * kEnd) of a block.
template <int kBegin, int kEnd, int kPairs>
YARD_ISA_INLINE void add_dots(Dots<kPairs>& dots, const int8_t* w, const int8_t* x) {
#pragma GCC unroll 4
  for (int i = kBegin; i < kEnd; ++i)
    for (int j = 0; j < kWeightPairs; ++j)
      for (int p = 0; p < kPairs; ++p)
        dots.v[p][j] = smmla(dots.v[p][j], vld1q_s8(x + (i * kGroupRows + 2 * p) * kChunk),
                             vld1q_s8(w + (i * kPanelRows + 2 * j) * kChunk));
}

// Arranges a number per row for vectors of two weight rows by two rows.
template <int kPairs>
YARD_ISA_INLINE void of_rows(const float* four, VF (&out)[kPairs]) {
  const VF v = vld1q_f32(four);
  out[0] = vzip1q_f32(v, v);
  if constexpr (kPairs > 1) out[1] = vzip2q_f32(v, v);
}
// Arranges a number per weight row for vectors of two weight rows by two rows.
YARD_ISA_INLINE VF of_weights(const float* two) {
  const float32x2_t v = vld1_f32(two);
  return vcombine_f32(v, v);
}

template <int kPairs>
struct Values {
  VF v[kPairs][kWeightPairs];
};
// Adds the rest of a block, which is zeros in rows that have no rest.
template <int kBegin, int kEnd, int kPairs>
YARD_ISA_INLINE Values<kPairs> with_rest(Dots<kPairs> dots, const int8_t* w, const int8_t* x) {
  for (auto& pair : dots.v)
    for (int32x4_t& v : pair) v = vshlq_n_s32(v, kRestBits);
  add_dots<kBegin, kEnd, kPairs>(dots, w, x);
  Values<kPairs> values;
  for (int p = 0; p < kPairs; ++p)
    for (int j = 0; j < kWeightPairs; ++j)
      values.v[p][j] = vcvtq_n_f32_s32(dots.v[p][j], kRestBits);
  return values;
}

template <int kBegin, int kEnd, int kPairs>
YARD_ISA_INLINE void add_products(VF (&sums)[kPairs][kWeightPairs], const int8_t* w,
                                  const float* scale, const XGroup& x) {
  Dots<kPairs> dots;
  for (auto& pair : dots.v)
    for (int32x4_t& v : pair) v = new_zero();
  add_dots<kBegin, kEnd, kPairs>(dots, w, x.q);
  Values<kPairs> values;
  if (x.rest == nullptr) [[likely]] {
    for (int p = 0; p < kPairs; ++p)
      for (int j = 0; j < kWeightPairs; ++j) values.v[p][j] = vcvtq_f32_s32(dots.v[p][j]);
  } else {
    values = with_rest<kBegin, kEnd, kPairs>(dots, w, x.rest->q);
  }
  VF factors[kPairs];
  of_rows<kPairs>(x.scale, factors);
  for (int j = 0; j < kWeightPairs; ++j) {
    const VF scales = of_weights(scale + 2 * j);
    for (int p = 0; p < kPairs; ++p)
      sums[p][j] = vfmaq_f32(sums[p][j], vmulq_f32(values.v[p][j], scales), factors[p]);
  }
}

template <int kPairs>
YARD_ISA_INLINE void add_minima(VF (&sums)[kPairs][kWeightPairs], const float* minimum,
                                const XGroup& x) {
  VF factors[kPairs];
  of_rows<kPairs>(x.sum, factors);
  for (int j = 0; j < kWeightPairs; ++j) {
    const VF minima = of_weights(minimum + 2 * j);
    for (int p = 0; p < kPairs; ++p) sums[p][j] = vfmaq_f32(sums[p][j], minima, factors[p]);
  }
}

// The last pair may lack its second row.
template <BlockKind kKind, int kRows>
YARD_ISA void tile_rows(const WBlock* w, int64_t blocks, const XGroup* x, int64_t lane, float* to) {
  constexpr int kPairs = (kRows + 1) / 2;
  const auto place = [ to, lane ](int row, int j) __attribute__((always_inline)) {
    return to + row * kPanelRows + lane + 2 * j;
  };
  VF sums[kPairs][kWeightPairs];
  for (int p = 0; p < kPairs; ++p)
    for (int j = 0; j < kWeightPairs; ++j)
      sums[p][j] = vcombine_f32(vld1_f32(place(2 * p, j)),
                                vld1_f32(place(2 * p + 1 < kRows ? 2 * p + 1 : 2 * p, j)));
  for (; blocks > 0; --blocks, ++w, ++x) {
    const int8_t* const q = w->q + kChunk * lane;
    if constexpr (kKind == BlockKind::kTwoScales) {
      add_products<0, 2, kPairs>(sums, q, w->scale + lane, *x);
      add_products<2, 4, kPairs>(sums, q, w->other + lane, *x);
    } else {
      add_products<0, 4, kPairs>(sums, q, w->scale + lane, *x);
    }
    if constexpr (kKind == BlockKind::kMinimum) add_minima<kPairs>(sums, w->other + lane, *x);
  }
  for (int p = 0; p < kPairs; ++p)
    for (int j = 0; j < kWeightPairs; ++j) {
      vst1_f32(place(2 * p, j), vget_low_f32(sums[p][j]));
      if (2 * p + 1 < kRows) vst1_f32(place(2 * p + 1, j), vget_high_f32(sums[p][j]));
    }
}

// Elements of two rows become adjacent in eights.
template <Format F>
YARD_ISA void unpack_strip(const uint8_t* strip, int64_t blocks, int64_t first, int64_t last,
                           int64_t lane, WBlock* out) {
  unpack_blocks<F>(
      strip, blocks, first, last, lane,
      out, [lane](const int8x16_t(&v)[8], int8_t* to) __attribute__((always_inline)) {
        to += lane * kChunk;
        for (int i = 0; i < 8; i += 2, to += kChunk * kPanelRows) {
          const int32x4_t a = vreinterpretq_s32_s8(v[i]), b = vreinterpretq_s32_s8(v[i + 1]);
          vst1q_s8(to, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
          vst1q_s8(to + 2 * kChunk, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
        }
      });
}

static_assert(kTileLanes == 2 * kWeightPairs);
#include "quant_neon_tile.inc"
#include "quant_tile.inc"

// A few rows use sdot_row(), which reads weights once per row and does not interleave them.
constexpr QuantKernels kKernels{.row = sdot_row,
                                .unpack = unpack,
                                .tile = tile,
                                .chunk = kChunk,
                                .packed = {kStripRows, false, sdot_packed_rows, unpack_packed},
                                .product = 0.27};

}  // namespace
}  // namespace neon

const QuantKernels* quant_kernels_i8mm() {
  constexpr unsigned long kMatrixProduct = 1ul << 13;  // HWCAP2_I8MM
  const bool able = quant_kernels_neon() != nullptr && (getauxval(AT_HWCAP2) & kMatrixProduct) != 0;
  return able ? &neon::kKernels : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
const QuantKernels* quant_kernels_i8mm() { return nullptr; }
}  // namespace yard::simd
#endif
