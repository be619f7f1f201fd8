// SPDX-License-Identifier: Apache-2.0
// Dot products of panels on x86-64: by AVX2, and by the byte products of AVX-512 (VNNI) on vectors of 32 bytes.
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

// Pairs of products fit 16 bits: 2 * 128 * 127.
YARD_ISA_INLINE __m256i dot(__m256i u, __m256i s) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
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
#include "quant_x86.inc"

}  // namespace
}  // namespace vnni

QuantTile quant_tile_avx2() {
  unsigned a = 0, b = 0, c = 0, d = 0;  // clang's builtin does not know f16c
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c;
  return able ? avx2::tiles : nullptr;
}

QuantTile quant_tile_vnni() {
  const bool able = quant_tile_avx2() != nullptr && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  return able ? vnni::tiles : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
QuantTile quant_tile_avx2() { return nullptr; }
QuantTile quant_tile_vnni() { return nullptr; }
}  // namespace yard::simd
#endif
