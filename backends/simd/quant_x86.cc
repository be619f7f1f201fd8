// SPDX-License-Identifier: Apache-2.0
// Products of blocks on x86-64, by AVX2 and by the byte products of AVX-512 (VNNI).
#include "quant.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include <bit>
#include <cstring>

#include "scalars.h"

namespace yard::simd {
namespace avx2 {
namespace {

#define YARD_ISA __attribute__((target("avx2,fma,f16c")))
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

// A pair of products is at most 2 * 128 * 127, which fits 16 bits.
YARD_ISA_INLINE __m256i dot(__m256i u, __m256i s) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
}

using TI = __m256i;
using TF = __m256;
inline constexpr int64_t kTileLanes = 8;
inline constexpr int kTilePanels = 1;

template <bool kSigned>
struct Weights {
  __m256i v, size;  // absolute values if weights are signed
};
template <bool kSigned>
YARD_ISA_INLINE Weights<kSigned> weights_of(TI v) {
  return {v, kSigned ? _mm256_abs_epi8(v) : v};
}
template <bool kSigned>
YARD_ISA_INLINE Weights<kSigned> load_weights(const void* p) {
  return weights_of<kSigned>(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
YARD_ISA_INLINE TI four_of(const int8_t* x) { return _mm256_set1_epi32(read<int32_t>(x)); }
template <bool kSigned>
YARD_ISA_INLINE TI begin(int32_t) {
  return _mm256_setzero_si256();
}
// Unsigned weights are at most 15. The products of a block, 16 of them at most in one lane, are at
// most 16 * 15 * 127, so they are summed in 16 bits.
template <bool kSigned>
YARD_ISA_INLINE TI add_dot(TI sum, const Weights<kSigned>& w, TI x) {
  if constexpr (!kSigned) return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w.v, x));
  return _mm256_add_epi32(sum, dot(w.size, _mm256_sign_epi8(x, w.v)));
}
template <bool kSigned>
YARD_ISA_INLINE TI dots_of(TI sum) {
  return kSigned ? sum : _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}
YARD_ISA_INLINE TF no_sum() { return _mm256_setzero_ps(); }
YARD_ISA_INLINE TF load_tile(const float* p) { return _mm256_loadu_ps(p); }
YARD_ISA_INLINE void store_tile(float* p, TF v) { _mm256_storeu_ps(p, v); }
YARD_ISA_INLINE TF times(TF v, float factor) { return _mm256_mul_ps(v, _mm256_set1_ps(factor)); }
YARD_ISA_INLINE TF shift_of(TF scale) { return scale; }
template <bool kSigned>
YARD_ISA_INLINE TF scaled(TI sum, TF scale, TF) {
  return _mm256_mul_ps(_mm256_cvtepi32_ps(dots_of<kSigned>(sum)), scale);
}
template <bool kSigned>
YARD_ISA_INLINE TF scaled_rest(TI sum, TI rest, TF scale) {
  const TI finer = _mm256_slli_epi32(dots_of<kSigned>(sum), kRestBits);
  const TI dots = _mm256_add_epi32(finer, dots_of<kSigned>(rest));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale);
}
YARD_ISA_INLINE TF add_product(TF sum, TF v, float factor) {
  return _mm256_fmadd_ps(v, _mm256_set1_ps(factor), sum);
}
YARD_ISA_INLINE TI load_packed(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
YARD_ISA_INLINE void store_packed(int8_t* p, TI v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
}
YARD_ISA_INLINE TI low_halves(TI v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
YARD_ISA_INLINE TI high_halves(TI v) { return low_halves(_mm256_srli_epi16(v, 4)); }
YARD_ISA_INLINE TF load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
template <int kField>
YARD_ISA_INLINE TI with_upper(TI v, TI upper) {
  const TI moved = kField < 2 ? _mm256_slli_epi16(upper, kField < 2 ? 4 - 2 * kField : 0)
                              : _mm256_srli_epi16(upper, kField < 2 ? 0 : 2 * kField - 4);
  const TI bits = _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
  return _mm256_sub_epi8(_mm256_or_si256(v, bits), _mm256_set1_epi8(32));
}
YARD_ISA_INLINE TF times_bytes(TF v, const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_mul_ps(v, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}
// How signed weights are stored in panels, and packed.
inline constexpr bool kPlus128 = false;
#include "quant_x86.inc"

#undef YARD_ISA
#undef YARD_ISA_INLINE

}  // namespace
}  // namespace avx2

namespace vnni {
namespace {

#define YARD_ISA __attribute__((target("avx2,fma,f16c,avx512f,avx512vl,avx512vnni")))
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

YARD_ISA_INLINE __m256i dot(__m256i u, __m256i s) {
  return _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, s);
}

using TI = __m512i;
using TF = __m512;
inline constexpr int64_t kTileLanes = 16;
inline constexpr int kTilePanels = 2;

// Signed weights are stored in panels, and packed, plus 128. Sums begin with a correction.
inline constexpr bool kPlus128 = true;

template <bool kSigned>
using Weights = __m512i;
template <bool kSigned>
YARD_ISA_INLINE TI weights_of(TI v) {
  return v;
}
template <bool kSigned>
YARD_ISA_INLINE TI load_weights(const void* p) {
  return _mm512_loadu_si512(p);
}
YARD_ISA_INLINE TI four_of(const int8_t* x) { return _mm512_set1_epi32(read<int32_t>(x)); }

// Sums begin with the bits of 1.5 * 2^23. Read as f32, they are that number plus the sum, which
// is less than 2^22. A multiplication and addition takes the number away and applies the scale.
// Both are exact, because a scale has at most 19 bits.
inline constexpr float kShift = 12582912.0f;
inline constexpr int32_t kShiftBits = std::bit_cast<int32_t>(kShift);
template <bool kSigned>
YARD_ISA_INLINE TI begin(int32_t offset) {
  return _mm512_set1_epi32(kSigned ? kShiftBits + offset : kShiftBits);
}
template <bool kSigned>
YARD_ISA_INLINE TI add_dot(TI sum, TI w, TI x) {
  return _mm512_dpbusd_epi32(sum, w, x);
}
YARD_ISA_INLINE TF no_sum() { return _mm512_setzero_ps(); }
YARD_ISA_INLINE TF load_tile(const float* p) { return _mm512_loadu_ps(p); }
YARD_ISA_INLINE void store_tile(float* p, TF v) { _mm512_storeu_ps(p, v); }
YARD_ISA_INLINE TF times(TF v, float factor) { return _mm512_mul_ps(v, _mm512_set1_ps(factor)); }
YARD_ISA_INLINE TF shift_of(TF scale) { return times(scale, -kShift); }
template <bool kSigned>
YARD_ISA_INLINE TF scaled(TI sum, TF scale, TF shift) {
  return _mm512_fmadd_ps(_mm512_castsi512_ps(sum), scale, shift);
}
template <bool kSigned>
YARD_ISA_INLINE TF scaled_rest(TI sum, TI rest, TF scale) {
  // The masks cover all lanes. g++ 12 warns about the forms without a mask.
  const TI shift = _mm512_set1_epi32(kShiftBits);
  const TI finer = _mm512_maskz_slli_epi32(0xffff, _mm512_sub_epi32(sum, shift), kRestBits);
  const TI dots = _mm512_add_epi32(finer, _mm512_sub_epi32(rest, shift));
  return _mm512_mul_ps(_mm512_maskz_cvtepi32_ps(0xffff, dots), scale);
}
YARD_ISA_INLINE TF add_product(TF sum, TF v, float factor) {
  return _mm512_fmadd_ps(v, _mm512_set1_ps(factor), sum);
}
YARD_ISA_INLINE TI load_packed(const uint8_t* p) { return _mm512_loadu_si512(p); }
YARD_ISA_INLINE void store_packed(int8_t* p, TI v) { _mm512_storeu_si512(p, v); }
YARD_ISA_INLINE TI low_halves(TI v) { return _mm512_and_si512(v, _mm512_set1_epi32(0x0f0f0f0f)); }
YARD_ISA_INLINE TI high_halves(TI v) { return low_halves(_mm512_maskz_srli_epi32(0xffff, v, 4)); }
YARD_ISA_INLINE TF load_halves(const uint8_t* p) {
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// The sum of six bits, of 128 and of -32 carries into no other byte.
template <int kField>
YARD_ISA_INLINE TI with_upper(TI v, TI upper) {
  const TI moved = kField < 2
                       ? _mm512_maskz_slli_epi32(0xffff, upper, kField < 2 ? 4 - 2 * kField : 0)
                       : _mm512_maskz_srli_epi32(0xffff, upper, kField < 2 ? 0 : 2 * kField - 4);
  const TI bits = _mm512_and_si512(moved, _mm512_set1_epi32(0x30303030));
  return _mm512_add_epi32(_mm512_or_si512(v, bits), _mm512_set1_epi32(0x60606060));
}
YARD_ISA_INLINE TF times_bytes(TF v, const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m512i wide = _mm512_maskz_cvtepi8_epi32(0xffff, bytes);
  return _mm512_mul_ps(v, _mm512_maskz_cvtepi32_ps(0xffff, wide));
}
#include "quant_x86.inc"

}  // namespace
}  // namespace vnni

const QuantKernels* quant_kernels_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;  // clang's builtin does not know f16c
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  return able ? &avx2::kKernels : nullptr;
}

const QuantKernels* quant_kernels_vnni() {
  const bool able = quant_kernels_avx2() != nullptr && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  return able ? &vnni::kKernels : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
const QuantKernels* quant_kernels_avx2() { return nullptr; }
const QuantKernels* quant_kernels_vnni() { return nullptr; }
}  // namespace yard::simd
#endif
