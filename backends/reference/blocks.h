// SPDX-License-Identifier: Apache-2.0
// Decodes the block-quantised types as GGUF defines them. Elements are exact in double. Scales are
// little-endian f16 at any address.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

#include "numeric.h"

namespace yard::reference {

inline double f16_at(const uint8_t* at) noexcept {
  return to_double(F16{static_cast<uint16_t>(at[0] | at[1] << 8)});
}

inline double i8_at(const uint8_t* at) noexcept { return static_cast<int8_t>(*at); }

// f16 d; i8 q[32]
inline void decode_q8_0(const uint8_t* block, double* to) noexcept {
  const double d = f16_at(block);
  for (int i = 0; i < 32; ++i) to[i] = d * i8_at(block + 2 + i);
}

// f16 d; u8 qs[16]. Elements i and i + 16 are the low and the high half of byte i.
inline void decode_q4_0(const uint8_t* block, double* to) noexcept {
  const double d = f16_at(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * ((block[2 + i] & 15) - 8);
    to[i + 16] = d * ((block[2 + i] >> 4) - 8);
  }
}

// f16 d, m; u8 qs[16] as in q4_0.
inline void decode_q4_1(const uint8_t* block, double* to) noexcept {
  const double d = f16_at(block), m = f16_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    to[i] = d * (block[4 + i] & 15) + m;
    to[i + 16] = d * (block[4 + i] >> 4) + m;
  }
}

// f16 d, dmin; u8 scales[12]; u8 qs[128]. Each pair of sub-blocks of 32 has 32 bytes of qs, with
// the first sub-block in the low halves. Each sub-block has a scale and a minimum of 6 bits. For
// the first four sub-blocks these are the low bits of a byte. For the others they are 4 bits of a
// byte and the 2 high bits of an earlier byte.
inline void decode_q4_k(const uint8_t* block, double* to) noexcept {
  const double d = f16_at(block), dmin = f16_at(block + 2);
  const uint8_t* const scales = block + 4;
  for (int j = 0; j < 8; ++j) {
    const int scale = j < 4 ? scales[j] & 63 : (scales[j + 4] & 15) | (scales[j - 4] >> 6 << 4);
    const int least = j < 4 ? scales[j + 4] & 63 : (scales[j + 4] >> 4) | (scales[j] >> 6 << 4);
    const uint8_t* const qs = block + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int q = j % 2 == 0 ? qs[i] & 15 : qs[i] >> 4;
      to[j * 32 + i] = d * scale * q - dmin * least;
    }
  }
}

// u8 ql[128] with the low 4 bits; u8 qh[64] with the high 2 bits; i8 scales[16]; f16 d. Each half
// of 128 elements has 64 bytes of ql, 32 of qh and 8 scales. A half has four quarters of 32
// elements: quarters 0 and 1 are in the low halves of ql, 2 and 3 in the high halves, and quarter k
// is in bits 2k and 2k + 1 of qh.
inline void decode_q6_k(const uint8_t* block, double* to) noexcept {
  const double d = f16_at(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int low = block[half * 64 + quarter % 2 * 32 + l] >> (quarter < 2 ? 0 : 4) & 15;
    const int high = block[128 + half * 32 + l] >> (2 * quarter) & 3;
    to[i] = d * i8_at(block + 192 + i / 16) * ((low | high << 4) - 32);
  }
}

// Returns the decoder of a dtype, or null if the dtype is not block-quantised.
inline auto block_decoder(uint32_t dtype) noexcept -> void (*)(const uint8_t*, double*) noexcept {
  switch (dtype) {
    case YARD_Q8_0: return decode_q8_0;
    case YARD_Q4_0: return decode_q4_0;
    case YARD_Q4_1: return decode_q4_1;
    case YARD_Q4_K: return decode_q4_k;
    case YARD_Q6_K: return decode_q6_k;
    default: return nullptr;
  }
}

}  // namespace yard::reference
