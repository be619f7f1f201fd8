// SPDX-License-Identifier: Apache-2.0
// Dot products of panels by the `sdot` instruction of Arm v8.2.
#include "quant.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

#include <cstring>

#include "scalars.h"

namespace yard::simd {
namespace neon {
namespace {

#if defined(__clang__)
#define YARD_ISA __attribute__((target("dotprod")))
#else
#define YARD_ISA __attribute__((target("arch=armv8.2-a+dotprod")))
#endif
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

YARD_ISA_INLINE int32x4_t sdot(int32x4_t sum, int8x16_t a, int8x16_t b) {
#if defined(__clang__)  // has the intrinsic only where a whole file is compiled for it
  asm("sdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
#else
  return vdotq_s32(sum, a, b);
#endif
}

struct Panel {
  int8x16_t q[8];     // a group each
  float32x4_t scale;  // of each 32 elements; q6_k: of the first group in each
  float32x4_t other;  // q6_k: of the second group; formats with a minimum: that
};
using Sum = float32x4_t;

YARD_ISA_INLINE Sum zero() { return vdupq_n_f32(0); }
YARD_ISA_INLINE float total(Sum s) { return vaddvq_f32(s); }

YARD_ISA_INLINE float32x4_t from_f16(uint16x4_t v) { return vcvt_f32_f16(vreinterpret_f16_u16(v)); }

// The 16-bit numbers at the beginning of four blocks: first all that come first, then all that come second. Whole vectors are
// read and zipped, since loads into a lane cost more.
template <int64_t kStride>
YARD_ISA_INLINE uint16x8_t heads(const uint8_t* p) {
  static_assert(kStride >= 16);
  const auto head = [](const uint8_t* at) __attribute__((always_inline)) {
    return vreinterpretq_u16_u8(vld1q_u8(at));
  };
  const uint16x8_t a = vzip1q_u16(head(p), head(p + kStride));
  const uint16x8_t b = vzip1q_u16(head(p + 2 * kStride), head(p + 3 * kStride));
  return vreinterpretq_u16_u32(vzip1q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
}

// One number each, put together in a general register: blocks of q8_0 keep the load units busy as it is.
template <int64_t kStride>
YARD_ISA_INLINE uint16x4_t single_heads(const uint8_t* p) {
  const auto head = [](const uint8_t* at) __attribute__((always_inline)) {
    return uint64_t{read<uint16_t>(at)};
  };
  return vcreate_u16(head(p) | head(p + kStride) << 16 | head(p + 2 * kStride) << 32 |
                     head(p + 3 * kStride) << 48);
}

YARD_ISA_INLINE int8x16_t low_nibbles(uint8x16_t v) {
  return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}
YARD_ISA_INLINE int8x16_t high_nibbles(uint8x16_t v) {
  return vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
}

// Four bytes as f32.
YARD_ISA_INLINE float32x4_t bytes_to_float(uint32_t word) {
  const uint8x8_t bytes = vreinterpret_u8_u32(vdup_n_u32(word));
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))));
}

YARD_ISA_INLINE void unpack_q4_k(const uint8_t* p, int half, Panel& panel) {
  const float32x4_t d = from_f16(vreinterpret_u16_u32(vdup_n_u32(read<uint32_t>(p))));
  const uint32_t low = read<uint32_t>(p + 4), mid = read<uint32_t>(p + 8);
  const uint32_t high = read<uint32_t>(p + 12);
  const uint32_t scales =
      half == 0 ? low & 0x3f3f3f3fu : (high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u);
  const uint32_t minima =
      half == 0 ? mid & 0x3f3f3f3fu : (high >> 4 & 0x0f0f0f0fu) | (mid >> 2 & 0x30303030u);
  panel.scale = vmulq_laneq_f32(bytes_to_float(scales), d, 0);
  panel.other = vnegq_f32(vmulq_laneq_f32(bytes_to_float(minima), d, 1));
  for (int g = 0; g < 2; ++g) {
    const uint8_t* const q = p + 16 + half * 64 + g * 32;
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t v = vld1q_u8(q + 16 * i);
      panel.q[4 * g + i] = low_nibbles(v);
      panel.q[4 * g + 2 + i] = high_nibbles(v);
    }
  }
}

YARD_ISA_INLINE void unpack_q6_k(const uint8_t* p, int half, Panel& panel) {
  const uint8x16_t two_bits = vdupq_n_u8(0x30);
  const int8x16_t offset = vdupq_n_s8(32);
  for (int i = 0; i < 2; ++i) {
    const uint8x16_t a = vld1q_u8(p + half * 64 + 16 * i);
    const uint8x16_t b = vld1q_u8(p + half * 64 + 32 + 16 * i);
    const uint8x16_t h = vld1q_u8(p + 128 + half * 32 + 16 * i);
    const auto join = [&](int8x16_t nibbles, uint8x16_t upper) __attribute__((always_inline)) {
      const uint8x16_t bits = vandq_u8(upper, two_bits);
      return vsubq_s8(vorrq_s8(nibbles, vreinterpretq_s8_u8(bits)), offset);
    };
    panel.q[i] = join(low_nibbles(a), vshlq_n_u8(h, 4));
    panel.q[2 + i] = join(low_nibbles(b), vshlq_n_u8(h, 2));
    panel.q[4 + i] = join(high_nibbles(a), h);
    panel.q[6 + i] = join(high_nibbles(b), vshrq_n_u8(h, 2));
  }
  const int8x8_t bytes = vld1_s8(reinterpret_cast<const int8_t*>(p + 192 + half * 8));
  const int16x8_t scales = vmovl_s8(vuzp1_s8(bytes, vuzp2_s8(bytes, bytes)));
  const int16x8_t odd = vmovl_s8(vuzp2_s8(bytes, bytes));
  const float d = widen(read<F16>(p + 208));
  panel.scale = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(scales))), d);
  panel.other = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(vget_low_s16(odd))), d);
}

template <Format F, int kHalf>
YARD_ISA_INLINE void unpack(const uint8_t* p, Panel& panel) {
  if constexpr (F == Format::kQ8_0 || F == Format::kI8) {
    constexpr int64_t kHead = F == Format::kI8 ? 0 : 2;
    for (int i = 0; i < 8; ++i)
      panel.q[i] = vreinterpretq_s8_u8(vld1q_u8(p + i / 2 * (32 + kHead) + kHead + i % 2 * 16));
    panel.scale = F == Format::kI8 ? vdupq_n_f32(1) : from_f16(single_heads<34>(p));
  } else if constexpr (F == Format::kQ4_0 || F == Format::kQ4_1) {
    constexpr int64_t kBytes = block_bytes(F);
    for (int b = 0; b < 4; ++b) {
      const uint8x16_t v = vld1q_u8(p + (b + 1) * kBytes - 16);
      panel.q[2 * b] = low_nibbles(v);
      panel.q[2 * b + 1] = high_nibbles(v);
    }
    if constexpr (F == Format::kQ4_0) {
      panel.scale = from_f16(single_heads<kBytes>(p));
      panel.other = vmulq_n_f32(panel.scale, -8);
    } else {
      const uint16x8_t both = heads<kBytes>(p);
      panel.scale = from_f16(vget_low_u16(both));
      panel.other = vcvt_high_f32_f16(vreinterpretq_f16_u16(both));
    }
  } else if constexpr (F == Format::kQ4_K) {
    unpack_q4_k(p, kHalf, panel);
  } else {
    unpack_q6_k(p, kHalf, panel);
  }
}

// A zero that the compiler does not copy from another register: the instruction costs nothing, a copy does.
YARD_ISA_INLINE int32x4_t new_zero() {
  int32x4_t z;
  asm volatile("movi %0.2d, #0" : "=w"(z));
  return z;
}

// Four vectors to the sum of each.
YARD_ISA_INLINE float32x4_t sums_of(const int32x4_t (&v)[4]) {
  return vcvtq_f32_s32(vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3])));
}

template <Format F>
YARD_ISA_INLINE void add(Sum& sum, const Panel& panel, const XPanel& x) {
  int32x4_t first[4], second[4];
  for (int b = 0; b < 4; ++b) {
    const int8x16_t x0 = vld1q_s8(x.q + 32 * b), x1 = vld1q_s8(x.q + 32 * b + 16);
    first[b] = sdot(new_zero(), panel.q[2 * b], x0);
    if constexpr (F == Format::kQ6_K)
      second[b] = sdot(new_zero(), panel.q[2 * b + 1], x1);
    else
      first[b] = sdot(first[b], panel.q[2 * b + 1], x1);
  }
  const float32x4_t scale = vld1q_f32(x.scale);
  sum = vfmaq_f32(sum, sums_of(first), vmulq_f32(panel.scale, scale));
  if constexpr (F == Format::kQ6_K)
    sum = vfmaq_f32(sum, sums_of(second), vmulq_f32(panel.other, scale));
  if constexpr (has_minimum(F)) sum = vfmaq_f32(sum, panel.other, vld1q_f32(x.sum));
}

#include "quant_tile.inc"

}  // namespace
}  // namespace neon

QuantTile quant_tile_neon() {
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProduct) != 0 ? neon::tiles : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
QuantTile quant_tile_neon() { return nullptr; }
}  // namespace yard::simd
#endif
