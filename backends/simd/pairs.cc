// SPDX-License-Identifier: Apache-2.0
#include "pairs.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "arm_isa.h"
#include "scalars.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>

#define YARD_ISA YARD_ARM_ISA("bf16")
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#define YARD_ISA __attribute__((target("avx512f,avx512bw,avx512bf16")))
#endif

#if defined(YARD_ISA)
#define YARD_ISA_INLINE YARD_ISA inline __attribute__((always_inline))

namespace yard::simd {
namespace {

#if defined(__aarch64__)
using Vector = float32x4_t;
using Pairs = uint32x4_t;
YARD_ISA_INLINE Vector zeros() { return vdupq_n_f32(0); }
YARD_ISA_INLINE Vector load(const float* p) { return vld1q_f32(p); }
YARD_ISA_INLINE void store(float* p, Vector v) { vst1q_f32(p, v); }
YARD_ISA_INLINE Vector plus(Vector a, Vector b) { return vaddq_f32(a, b); }
YARD_ISA_INLINE Vector times(Vector a, float b) { return vmulq_n_f32(a, b); }
YARD_ISA_INLINE Pairs load_pairs(const uint32_t* p) { return vld1q_u32(p); }
YARD_ISA_INLINE Pairs all_of(uint32_t pair) { return vdupq_n_u32(pair); }
YARD_ISA_INLINE Vector add_products(Vector sum, Pairs a, Pairs b) {
  asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
}
#else
using Vector = __m512;
using Pairs = __m512i;
YARD_ISA_INLINE Vector zeros() { return _mm512_setzero_ps(); }
YARD_ISA_INLINE Vector load(const float* p) { return _mm512_loadu_ps(p); }
YARD_ISA_INLINE void store(float* p, Vector v) { _mm512_storeu_ps(p, v); }
YARD_ISA_INLINE Vector plus(Vector a, Vector b) { return _mm512_add_ps(a, b); }
YARD_ISA_INLINE Vector times(Vector a, float b) { return _mm512_mul_ps(a, _mm512_set1_ps(b)); }
YARD_ISA_INLINE Pairs load_pairs(const uint32_t* p) { return _mm512_loadu_si512(p); }
YARD_ISA_INLINE Pairs all_of(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
YARD_ISA_INLINE Vector add_products(Vector sum, Pairs a, Pairs b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#endif
constexpr size_t kLanes = sizeof(Vector) / sizeof(float);
constexpr int kRowsAtOnce = 4, kVectors = 4;

// Computes kRows rows of kCount vectors, from row `r` and column `c` on.
template <int kRows, int kCount, bool kAdd>
YARD_ISA_INLINE void block(const PairSums& s, size_t r, size_t c, float factor) {
  Vector sum[kRows][kCount];
  for (auto& row : sum)
    for (Vector& v : row) v = zeros();
  const char* at = s.a.data + static_cast<int64_t>(r) * s.a.row;
  const uint32_t* b = s.b + c;
  for (size_t t = 0; t < s.count; ++t, at += s.a.column, b += s.stride) {
    Pairs x[kCount];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) x[v] = load_pairs(b + static_cast<size_t>(v) * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Pairs a = all_of(read<uint32_t>(at + i * s.a.row));
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) sum[i][v] = add_products(sum[i][v], x[v], a);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kCount; ++v) {
      float* const to =
          s.to + (r + static_cast<size_t>(i)) * s.stride + c + static_cast<size_t>(v) * kLanes;
      store(to, kAdd ? plus(load(to), sum[i][v]) : times(sum[i][v], factor));
    }
}
template <int kRows, bool kAdd>
YARD_ISA_INLINE void rows_at_once(const PairSums& s, size_t r, float factor) {
  size_t c = 0;
  for (; c + kVectors * kLanes <= s.columns; c += kVectors * kLanes)
    block<kRows, kVectors, kAdd>(s, r, c, factor);
  for (; c < s.columns; c += kLanes) block<kRows, 1, kAdd>(s, r, c, factor);
}
template <bool kAdd>
YARD_ISA void sums(const PairSums& s, float factor) {
  size_t r = 0;
  for (; r + kRowsAtOnce <= s.rows; r += kRowsAtOnce) rows_at_once<kRowsAtOnce, kAdd>(s, r, factor);
  for (; r < s.rows; ++r) rows_at_once<1, kAdd>(s, r, factor);
}

YARD_ISA void multiply(const PairSums& s, float factor) { sums<false>(s, factor); }
YARD_ISA void add(const PairSums& s) { sums<true>(s, 1); }

#if defined(__aarch64__)
bool has_pairs() {
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & kBf16) != 0;
}
const PairProducts* tiles() { return nullptr; }
void turn(const char* from, int64_t from_row, char* to, int64_t to_row) {
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 16; ++i)
      std::memcpy(to + i * to_row + j * 4, from + j * from_row + i * 4, 4);
}
#else
bool has_pairs() {
  return __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512bf16") != 0;
}
#include "pair_turn.inc"

#include "pair_tiles.inc"  // after pair_turn.inc
#endif

constexpr PairProducts kByVectors{"vectors", multiply, add, turn, kVectors* kPairColumns};

}  // namespace

const PairProducts* const* all_pair_products() noexcept {
  static constinit const PairProducts* all[3] = {};
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    if (!has_pairs()) return;
    const PairProducts** next = all;
    if (tiles() != nullptr) *next++ = tiles();
    *next = &kByVectors;
  });
  return all;
}

}  // namespace yard::simd
#else
namespace yard::simd {
const PairProducts* const* all_pair_products() noexcept {
  static constexpr const PairProducts* kNone[1] = {};
  return kNone;
}
}  // namespace yard::simd
#endif
