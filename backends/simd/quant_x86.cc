// SPDX-License-Identifier: Apache-2.0
// Products of blocks on x86-64, by AVX2 and by the byte products of AVX-512 (VNNI).
#include "quant.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

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
inline constexpr int64_t kTileRows = 4;

template <bool kSigned>
struct Weights {
  __m256i v, size;  // absolute values if weights are signed
};
template <bool kSigned>
YARD_ISA_INLINE Weights<kSigned> load_weights(const int8_t* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {v, kSigned ? _mm256_abs_epi8(v) : v};
}
template <bool kSigned>
YARD_ISA_INLINE TI begin(const int32_t*) {
  return _mm256_setzero_si256();
}
template <bool kSigned>
YARD_ISA_INLINE TI add_dot(TI sum, const Weights<kSigned>& w, const int8_t* x) {
  const __m256i four = _mm256_set1_epi32(read<int32_t>(x));
  return _mm256_add_epi32(sum, dot(w.size, kSigned ? _mm256_sign_epi8(four, w.v) : four));
}
YARD_ISA_INLINE TF load_tile(const float* p) { return _mm256_loadu_ps(p); }
YARD_ISA_INLINE void store_tile(float* p, TF v) { _mm256_storeu_ps(p, v); }
YARD_ISA_INLINE TF times(TF v, float factor) { return _mm256_mul_ps(v, _mm256_set1_ps(factor)); }
YARD_ISA_INLINE TI finer(TI dots, TI more) {
  return _mm256_add_epi32(_mm256_slli_epi32(dots, kRestBits), more);
}
YARD_ISA_INLINE TF add_product(TF sum, TF v, float factor) {
  return _mm256_fmadd_ps(v, _mm256_set1_ps(factor), sum);
}
YARD_ISA_INLINE TF add_product(TF sum, TI dots, TF scale, float factor) {
  return add_product(sum, _mm256_mul_ps(_mm256_cvtepi32_ps(dots), scale), factor);
}
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
inline constexpr int64_t kTileRows = 8;

// Signed weights are multiplied plus 128, as unsigned ones. Sums begin with a correction.
template <bool kSigned>
struct Weights {
  __m512i v;
};
template <bool kSigned>
YARD_ISA_INLINE Weights<kSigned> load_weights(const int8_t* p) {
  const __m512i v = _mm512_loadu_si512(p);
  return {kSigned ? _mm512_xor_si512(v, _mm512_set1_epi32(static_cast<int>(0x80808080u))) : v};
}
template <bool kSigned>
YARD_ISA_INLINE TI begin(const int32_t* offset) {
  return kSigned ? _mm512_set1_epi32(*offset) : _mm512_setzero_si512();
}
template <bool kSigned>
YARD_ISA_INLINE TI add_dot(TI sum, const Weights<kSigned>& w, const int8_t* x) {
  return _mm512_dpbusd_epi32(sum, w.v, _mm512_set1_epi32(read<int32_t>(x)));
}
YARD_ISA_INLINE TF load_tile(const float* p) { return _mm512_loadu_ps(p); }
YARD_ISA_INLINE void store_tile(float* p, TF v) { _mm512_storeu_ps(p, v); }
YARD_ISA_INLINE TF times(TF v, float factor) { return _mm512_mul_ps(v, _mm512_set1_ps(factor)); }
YARD_ISA_INLINE TI finer(TI dots, TI more) {
  return _mm512_add_epi32(_mm512_maskz_slli_epi32(0xffff, dots, kRestBits), more);
}
YARD_ISA_INLINE TF add_product(TF sum, TF v, float factor) {
  return _mm512_fmadd_ps(v, _mm512_set1_ps(factor), sum);
}
YARD_ISA_INLINE TF add_product(TF sum, TI dots, TF scale, float factor) {
  // The mask covers all lanes. g++ 12 warns about the form without a mask.
  const TF v = _mm512_maskz_cvtepi32_ps(0xffff, dots);
  return add_product(sum, _mm512_mul_ps(v, scale), factor);
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
