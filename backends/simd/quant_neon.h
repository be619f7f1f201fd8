// SPDX-License-Identifier: Apache-2.0
// Blocks of weights in vectors of Arm, shared by the products of `sdot` and `smmla`.
#pragma once

#include <arm_neon.h>

#include "quant.h"
#include "scalars.h"

namespace yard::simd::neon {

// These functions need only the base of Armv8, and are inlined into functions that need more.
#define YARD_NEON inline __attribute__((always_inline))

using VF = float32x4_t;
inline constexpr int kLanes = 4;
inline constexpr int64_t kTileLanes = 8;  // weight rows that a tile multiplies at once

YARD_NEON VF zero() { return vdupq_n_f32(0); }
YARD_NEON void store(float* to, VF v) { vst1q_f32(to, v); }

// Returns the 16-bit numbers at an offset of four rows as f32. They are combined in a general
// register, which costs the vector units nothing.
YARD_NEON float32x4_t heads(const uint8_t* const (&p)[4], int64_t offset = 0) {
  const auto head = [offset](const uint8_t* at) __attribute__((always_inline)) {
    return uint64_t{read<uint16_t>(at + offset)};
  };
  const uint64_t four = head(p[0]) | head(p[1]) << 16 | head(p[2]) << 32 | head(p[3]) << 48;
  return vcvt_f32_f16(vreinterpret_f16_u64(vcreate_u64(four)));
}

struct HeadPairs {
  float32x4_t first, second;
};
// Returns the first two 16-bit numbers of each of four rows. Reads whole vectors and zips them.
YARD_NEON HeadPairs head_pairs(const uint8_t* const (&p)[4]) {
  const auto head = [](const uint8_t* at) __attribute__((always_inline)) {
    return vreinterpretq_u16_u8(vld1q_u8(at));
  };
  const uint16x8_t a = vzip1q_u16(head(p[0]), head(p[1]));
  const uint16x8_t b = vzip1q_u16(head(p[2]), head(p[3]));
  const float16x8_t all =
      vreinterpretq_f16_u32(vzip1q_u32(vreinterpretq_u32_u16(a), vreinterpretq_u32_u16(b)));
  return {vcvt_f32_f16(vget_low_f16(all)), vcvt_high_f32_f16(all)};
}

// Multiplies eight bytes of each of four rows by the row's factor. Each row gets a lane.
YARD_NEON void spread(const int8x16_t (&bytes)[4], float32x4_t factors, float32x4_t (&out)[8]) {
  const int8x16_t even = vzip1q_s8(bytes[0], bytes[2]), odd = vzip1q_s8(bytes[1], bytes[3]);
  const int8x16_t all[2] = {vzip1q_s8(even, odd), vzip2q_s8(even, odd)};
  for (int i = 0; i < 2; ++i) {
    const int16x8_t low = vmovl_s8(vget_low_s8(all[i])), high = vmovl_high_s8(all[i]);
    const int32x4_t four[4] = {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                               vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
    for (int j = 0; j < 4; ++j) out[4 * i + j] = vmulq_f32(vcvtq_f32_s32(four[j]), factors);
  }
}

YARD_NEON int8x16_t eight_bytes(uint32_t low, uint32_t high) {
  const int8x8_t bytes = vcreate_s8(uint64_t{high} << 32 | low);
  return vcombine_s8(bytes, bytes);
}
YARD_NEON void scales_q4_k(const uint8_t* const (&p)[4], float32x4_t (&scale)[8],
                           float32x4_t (&minimum)[8]) {
  int8x16_t scales[4], minima[4];
  for (int r = 0; r < 4; ++r) {
    const uint32_t low = read<uint32_t>(p[r] + 4), mid = read<uint32_t>(p[r] + 8);
    const uint32_t high = read<uint32_t>(p[r] + 12);
    scales[r] = eight_bytes(low & 0x3f3f3f3fu, (high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u));
    minima[r] =
        eight_bytes(mid & 0x3f3f3f3fu, (high >> 4 & 0x0f0f0f0fu) | (mid >> 2 & 0x30303030u));
  }
  const HeadPairs pairs = head_pairs(p);
  spread(scales, pairs.first, scale);
  spread(minima, vnegq_f32(pairs.second), minimum);
}

YARD_NEON void scales_q6_k(const uint8_t* const (&p)[4], float32x4_t (&first)[8],
                           float32x4_t (&second)[8]) {
  int8x16_t even[4], odd[4];
  for (int r = 0; r < 4; ++r) {
    const int8x16_t pairs = vreinterpretq_s8_u8(vld1q_u8(p[r] + 192));
    even[r] = vuzp1q_s8(pairs, pairs), odd[r] = vuzp2q_s8(pairs, pairs);
  }
  const float32x4_t factors = heads(p, 208);
  spread(even, factors, first);
  spread(odd, factors, second);
}

template <Format F>
YARD_NEON void load_scales(const uint8_t* const (&p)[4], VF (&scale)[step_blocks(F)],
                           VF (&other)[step_blocks(F)]) {
  if constexpr (F == Format::kI8) {
    scale[0] = vdupq_n_f32(1);
  } else if constexpr (F == Format::kQ4_K) {
    scales_q4_k(p, scale, other);
  } else if constexpr (F == Format::kQ6_K) {
    scales_q6_k(p, scale, other);
  } else if constexpr (F == Format::kQ4_1) {
    const HeadPairs pairs = head_pairs(p);
    scale[0] = pairs.first, other[0] = pairs.second;
  } else {
    scale[0] = heads(p);
    if constexpr (F == Format::kQ4_0) other[0] = vmulq_n_f32(scale[0], -8);
  }
}

YARD_NEON int8x16_t low_nibbles(uint8x16_t v) {
  return vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
}
YARD_NEON int8x16_t high_nibbles(uint8x16_t v) { return vreinterpretq_s8_u8(vshrq_n_u8(v, 4)); }

struct Elements {
  int8x16_t low, high;  // 16 each
};

// Returns `v` with bits 4 and 5 of `upper`, minus 32.
YARD_NEON int8x16_t with_upper(int8x16_t v, uint8x16_t upper) {
  const int8x16_t bits = vreinterpretq_s8_u8(vandq_u8(upper, vdupq_n_u8(0x30)));
  return vsubq_s8(vorrq_s8(v, bits), vdupq_n_s8(32));
}
template <int kQuarter>
YARD_NEON int8x16_t six_bits(uint8x16_t v, uint8x16_t h) {
  const uint8x16_t upper = kQuarter == 0   ? vshlq_n_u8(h, 4)
                           : kQuarter == 1 ? vshlq_n_u8(h, 2)
                           : kQuarter == 2 ? h
                                           : vshrq_n_u8(h, 2);
  return with_upper(kQuarter < 2 ? low_nibbles(v) : high_nibbles(v), upper);
}

template <Format F, int kAt>
YARD_NEON Elements elements(const uint8_t* p) {
  if constexpr (F == Format::kQ8_0 || F == Format::kI8) {
    p += F == Format::kI8 ? 0 : 2;
    return {vreinterpretq_s8_u8(vld1q_u8(p)), vreinterpretq_s8_u8(vld1q_u8(p + 16))};
  } else if constexpr (F == Format::kQ4_0 || F == Format::kQ4_1) {
    const uint8x16_t v = vld1q_u8(p + block_bytes(F) - 16);
    return {low_nibbles(v), high_nibbles(v)};
  } else if constexpr (F == Format::kQ4_K) {
    const uint8x16_t a = vld1q_u8(p + 16 + kAt / 2 * 32), b = vld1q_u8(p + 32 + kAt / 2 * 32);
    if constexpr (kAt % 2 == 0) return {low_nibbles(a), low_nibbles(b)};
    return {high_nibbles(a), high_nibbles(b)};
  } else {
    const uint8_t *const q = p + kAt / 4 * 64 + kAt % 2 * 32, *const h = p + 128 + kAt / 4 * 32;
    return {six_bits<kAt % 4>(vld1q_u8(q), vld1q_u8(h)),
            six_bits<kAt % 4>(vld1q_u8(q + 16), vld1q_u8(h + 16))};
  }
}

inline constexpr int64_t kStripRows = 4;

// Four elements of each of four rows, for each four elements of a packed block.
template <Format F>
YARD_NEON void load_packed(const uint8_t* q, int8x16_t (&out)[8]) {
  for (int i = 0; i < 4; ++i) {
    const uint8x16_t v = vld1q_u8(q + 16 * i);
    if constexpr (F == Format::kQ8_0) {
      out[i] = vreinterpretq_s8_u8(v);
      out[4 + i] = vreinterpretq_s8_u8(vld1q_u8(q + 16 * (4 + i)));
    } else {
      out[i] = low_nibbles(v), out[4 + i] = high_nibbles(v);
    }
  }
  if constexpr (F == Format::kQ6_K)
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t upper = vld1q_u8(q + 16 * (4 + i));
      out[2 * i] = with_upper(out[2 * i], vshlq_n_u8(upper, 4));
      out[4 + 2 * i] = with_upper(out[4 + 2 * i], vshlq_n_u8(upper, 2));
      out[2 * i + 1] = with_upper(out[2 * i + 1], upper);
      out[5 + 2 * i] = with_upper(out[5 + 2 * i], vshrq_n_u8(upper, 2));
    }
}
// The scales of a block of a packed strip, and its minima or the scales of its second half.
template <Format F>
YARD_NEON HeadPairs packed_scales(const uint8_t* s) {
  const auto four = [](const uint8_t* at) __attribute__((always_inline)) {
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
  };
  const float32x4_t scale = four(s);
  if constexpr (F == Format::kQ4_1) return {scale, four(s + 8)};
  if constexpr (F == Format::kQ6_K) {
    const int16x8_t both = vmovl_s8(vreinterpret_s8_u8(vld1_u8(s + 8)));
    return {vmulq_f32(scale, vcvtq_f32_s32(vmovl_s16(vget_low_s16(both)))),
            vmulq_f32(scale, vcvtq_f32_s32(vmovl_s16(vget_high_s16(both))))};
  }
  return {scale, vmulq_n_f32(scale, -8)};
}
// Unpacks blocks [first, last) of a strip to rows from `lane` on of a panel. put(v, to) stores the
// elements of four rows.
template <Format F, class Put>
YARD_NEON void unpack_blocks(const uint8_t* strip, int64_t blocks, int64_t first, int64_t last,
                             int64_t lane, WBlock* out, const Put& put) {
  constexpr int64_t kElements = packed_bytes(F) * kStripRows, kScales = scale_bytes(F) * kStripRows;
  const uint8_t *q = strip + first * kElements, *s = strip + blocks * kElements + first * kScales;
  for (; first < last; ++first, q += kElements, s += kScales, ++out) {
    int8x16_t v[8];
    load_packed<F>(q, v);
    put(v, out->q);
    const HeadPairs pairs = packed_scales<F>(s);
    store(out->scale + lane, pairs.first);
    if constexpr (kind_of(F) != BlockKind::kScale) store(out->other + lane, pairs.second);
  }
}

// Returns a zero that the compiler does not copy: the instruction is free, but a copy is not.
YARD_NEON int32x4_t new_zero() {
  int32x4_t z;
  asm volatile("movi %0.2d, #0" : "=w"(z));
  return z;
}

// QuantKernels::row and PackedKernels::rows by `sdot`.
void sdot_row(const QuantWeight& weight, int64_t begin, int64_t end, const XRow* x, float* out);
void sdot_packed_rows(Format format, const uint8_t* panel, int64_t blocks, const XRow* x,
                      int64_t stride, int64_t rows, float* out);

}  // namespace yard::simd::neon
