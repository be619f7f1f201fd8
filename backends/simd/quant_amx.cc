// SPDX-License-Identifier: Apache-2.0
// Products of many rows with weights of few bits, by AMX tiles of bf16.
#include "quant.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "pairs.h"
#include "scalars.h"

#define YARD_TILES \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,f16c,amx-tile,amx-bf16")))
#define YARD_TILES_INLINE YARD_TILES inline __attribute__((always_inline))

namespace yard::simd {
namespace {

constexpr int64_t kTileElements = kTileBytes / 2;

YARD_TILES_INLINE __m512i load(const void* p) { return _mm512_loadu_si512(p); }

YARD_TILES_INLINE bool exceeds(__m512i v, uint32_t most) {
  return _mm512_cmpgt_epu32_mask(v, _mm512_set1_epi32(static_cast<int>(most))) != 0;
}

// Reads 16 elements as f32.
YARD_TILES_INLINE __m512 widen16(const char* p, uint32_t dtype) {
  // The masks cover all lanes. g++ 12 warns about the forms without a mask.
  if (dtype == YARD_F32) return _mm512_loadu_ps(p);
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  if (dtype == YARD_F16) return _mm512_maskz_cvtph_ps(0xffff, v);
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xffff, v);
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
}

// Stores two vectors as bf16, `low` first.
YARD_TILES_INLINE void store_pairs(uint16_t* out, __m512 low, __m512 high) {
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
  _mm512_storeu_si512(out, both);
}

YARD_TILES bool round_row(const char* x, uint32_t dtype, int64_t k, uint16_t* out) {
  const int64_t item = dtype == YARD_F32 ? 4 : 2;
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  alignas(64) char last[kBlock * 4];
  // The bits of a NaN are larger than the bits of any number.
  __m512i most = _mm512_setzero_si512();
  for (int64_t at = 0; at < k; at += kBlock, x += kBlock * item, out += kTileElements) {
    if (k - at < kBlock) {
      std::memset(last, 0, sizeof last);
      std::memcpy(last, x, static_cast<size_t>((k - at) * item));
      x = last;
    }
    const __m512 low = widen16(x, dtype), high = widen16(x + kBlock / 2 * item, dtype);
    const __m512i a = _mm512_and_si512(_mm512_castps_si512(low), magnitude),
                  b = _mm512_and_si512(_mm512_castps_si512(high), magnitude);
    most = _mm512_maskz_max_epu32(0xffff, most, _mm512_maskz_max_epu32(0xffff, a, b));
    store_pairs(out, low, high);
  }
  const bool is_zero = _mm512_test_epi32_mask(most, most) == 0;
  return is_zero || (exceeds(most, kLeastBits - 1) && !exceeds(most, kMostBits));
}

// Returns one byte of each lane, as 1 + byte / 256 in f32.
template <int kByte>
YARD_TILES_INLINE __m512 byte_of(__m512i v) {
  constexpr int kLeft = 15 - 8 * kByte;  // moves the byte to bits 15 to 22
  const __m512i moved = kLeft >= 0 ? _mm512_maskz_slli_epi32(0xffff, v, std::max(kLeft, 0))
                                   : _mm512_maskz_srli_epi32(0xffff, v, std::max(-kLeft, 0));
  const __m512i bits = _mm512_set1_epi32(0x007f8000), one = _mm512_set1_epi32(0x3f800000);
  constexpr int kAndOr = 0xea;  // (a & b) | c
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(moved, bits, one, kAndOr));
}

// Scales 4 elements of each of 16 rows and stores them as two rows of a tile.
YARD_TILES_INLINE void scale_four(__m512i v, __m512 scale, __m512 minimum, uint16_t* out) {
  const __m512i in_pairs =
      _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                       21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512 a = _mm512_fmadd_ps(byte_of<0>(v), scale, minimum),
               b = _mm512_fmadd_ps(byte_of<1>(v), scale, minimum),
               c = _mm512_fmadd_ps(byte_of<2>(v), scale, minimum),
               d = _mm512_fmadd_ps(byte_of<3>(v), scale, minimum);
  const __m512i first = (__m512i)_mm512_cvtne2ps_pbh(b, a),
                second = (__m512i)_mm512_cvtne2ps_pbh(d, c);
  _mm512_storeu_si512(out, _mm512_permutexvar_epi16(in_pairs, first));
  _mm512_storeu_si512(out + 32, _mm512_permutexvar_epi16(in_pairs, second));
}

// An element is scale * byte + minimum, and byte_of() returns 1 + byte / 256.
struct Factors {
  __m512 scale, minimum;
};
YARD_TILES_INLINE Factors factors(__m512 scale, __m512 minimum) {
  const __m512 wide = _mm512_mul_ps(scale, _mm512_set1_ps(256));
  return {wide, _mm512_sub_ps(minimum, wide)};
}

YARD_TILES void scale_blocks(BlockKind kind, const WBlock* from, int64_t blocks, uint16_t* out) {
  const __m512 offset = _mm512_set1_ps(-128);  // signed elements are stored plus 128
  for (; blocks > 0; --blocks, ++from, out += kTileElements) {
    const __m512 scale = _mm512_loadu_ps(from->scale);
    const __m512 other = kind == BlockKind::kScale ? scale : _mm512_loadu_ps(from->other);
    const Factors first =
        factors(scale, kind == BlockKind::kMinimum ? other : _mm512_mul_ps(scale, offset));
    const Factors second =
        kind == BlockKind::kTwoScales ? factors(other, _mm512_mul_ps(other, offset)) : first;
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const Factors& f = i < 4 ? first : second;
      scale_four(load(from->q + i * 64), f.scale, f.minimum, out + i * 64);
    }
  }
}

template <bool kTwoRows, bool kTwoPanels>
YARD_TILES void multiply_by(const TileProduct& p) {
  constexpr int64_t kRow = 64;
  const uint16_t *const lower_x = p.x + p.x_stride * kTileElements, *const next_w =
                                                                        p.w +
                                                                        p.w_stride * kTileElements;
  float* const lower = p.sums + p.sums_stride * kTileSums;
  // g++ does not know that tile instructions read memory.
  asm volatile("" ::: "memory");
  if (p.adds) {
    _tile_loadd(0, p.sums, kRow);
    if constexpr (kTwoPanels) _tile_loadd(1, p.sums + kTileSums, kRow);
    if constexpr (kTwoRows) _tile_loadd(2, lower, kRow);
    if constexpr (kTwoRows && kTwoPanels) _tile_loadd(3, lower + kTileSums, kRow);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t at = 0; at < p.blocks * kTileElements; at += kTileElements) {
    _tile_loadd(4, p.x + at, kRow);
    _tile_loadd(6, p.w + at, kRow);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoPanels) {
      _tile_loadd(7, next_w + at, kRow);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoRows) {
      _tile_loadd(5, lower_x + at, kRow);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoPanels) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, p.sums, kRow);
  if constexpr (kTwoPanels) _tile_stored(1, p.sums + kTileSums, kRow);
  if constexpr (kTwoRows) _tile_stored(2, lower, kRow);
  if constexpr (kTwoRows && kTwoPanels) _tile_stored(3, lower + kTileSums, kRow);
  asm volatile("" ::: "memory");
}
void multiply(const TileProduct& p) {
  if (p.row_tiles == 2)
    return p.panels == 2 ? multiply_by<true, true>(p) : multiply_by<true, false>(p);
  p.panels == 2 ? multiply_by<false, true>(p) : multiply_by<false, false>(p);
}

YARD_TILES bool store_row(const float* sums, int64_t panels, uint32_t dtype, char* out) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512();
  for (int64_t p = 0; p < panels; ++p, sums += kTileSums) {
    const __m512 v = _mm512_loadu_ps(sums);
    largest = _mm512_maskz_max_epu32(0xffff, largest,
                                     _mm512_and_si512(_mm512_castps_si512(v), magnitude));
    if (dtype == YARD_F32) {
      _mm512_storeu_ps(out + p * 64, v);
      continue;
    }
    const __m256i half = dtype == YARD_F16
                             ? _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT)
                             : (__m256i)_mm512_cvtneps_pbh(v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + p * 32), half);
  }
  return !exceeds(largest, std::bit_cast<uint32_t>(most_of(dtype)));
}

void begin() { pair_products()->begin(); }
void end() { pair_products()->end(); }

}  // namespace

const QuantTiles* quant_tiles() {
  static constexpr QuantTiles kTiles{begin, end, round_row, scale_blocks, multiply, store_row};
  const PairProducts* const products = pair_products();
  const bool able = products != nullptr && products->begin != nullptr;
  // scale_blocks() expects signed weights plus 128.
  return able && quant_kernels().packed.plus_128 ? &kTiles : nullptr;
}

}  // namespace yard::simd
#else
namespace yard::simd {
const QuantTiles* quant_tiles() { return nullptr; }
}  // namespace yard::simd
#endif
