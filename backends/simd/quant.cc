// SPDX-License-Identifier: Apache-2.0
// Unpacks weights in plain C++, and chooses an instruction set.
#include "quant.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "scalars.h"

namespace yard::simd {
namespace {

void unpack_nibbles(const uint8_t* p, int64_t head, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>(p[head + i] & 15);
    q[16 + i] = static_cast<int8_t>(p[head + i] >> 4);
  }
}

void unpack_q4_k(const uint8_t* p, int half, PlainBlocks& out) {
  const float d = widen(read<F16>(p)), least = widen(read<F16>(p + 2));
  const uint8_t* const packed = p + 4;
  for (int b = 0; b < 4; ++b) {
    const int j = half * 4 + b;
    const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    const int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    const uint8_t* const q = p + 16 + half * 64 + b / 2 * 32;
    for (int i = 0; i < 32; ++i)
      out.q[32 * b + i] = static_cast<int8_t>(b % 2 == 0 ? q[i] & 15 : q[i] >> 4);
    for (int g = 2 * b; g < 2 * b + 2; ++g) {
      out.scale[g] = d * static_cast<float>(scale);
      out.minimum[g] = -least * static_cast<float>(minimum);
    }
  }
}

void unpack_q6_k(const uint8_t* p, int half, PlainBlocks& out) {
  const uint8_t *const low = p + half * 64, *const high = p + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    out.q[i] = static_cast<int8_t>(((low[i] & 15) | (high[i] & 3) << 4) - 32);
    out.q[32 + i] = static_cast<int8_t>(((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4) - 32);
    out.q[64 + i] = static_cast<int8_t>((low[i] >> 4 | (high[i] >> 4 & 3) << 4) - 32);
    out.q[96 + i] = static_cast<int8_t>((low[32 + i] >> 4 | high[i] >> 6 << 4) - 32);
  }
  const float d = widen(read<F16>(p + 208));
  for (int g = 0; g < 8; ++g) {
    out.scale[g] = d * static_cast<float>(static_cast<int8_t>(p[192 + half * 8 + g]));
    out.minimum[g] = 0;
  }
}

void unpack_blocks(Format format, const uint8_t* p, PlainBlocks& out) {
  for (int b = 0; b < 4; ++b, p += block_bytes(format)) {
    float scale = widen(read<F16>(p)), minimum = 0;
    if (format == Format::kQ8_0) {
      std::memcpy(out.q + 32 * b, p + 2, 32);
    } else if (format == Format::kQ4_1) {
      unpack_nibbles(p, 4, out.q + 32 * b);
      minimum = widen(read<F16>(p + 2));
    } else {
      unpack_nibbles(p, 2, out.q + 32 * b);
      for (int i = 0; i < 32; ++i) out.q[32 * b + i] = static_cast<int8_t>(out.q[32 * b + i] - 8);
    }
    for (int g = 2 * b; g < 2 * b + 2; ++g) out.scale[g] = scale, out.minimum[g] = minimum;
  }
}

void unpack_whole(Format format, const uint8_t* p, int half, PlainBlocks& out) {
  switch (format) {
    case Format::kQ4_K: return unpack_q4_k(p, half, out);
    case Format::kQ6_K: return unpack_q6_k(p, half, out);
    case Format::kI8:
      std::memcpy(out.q, p, kPlain);
      for (int g = 0; g < 8; ++g) out.scale[g] = 1, out.minimum[g] = 0;
      return;
    default: return unpack_blocks(format, p, out);
  }
}

}  // namespace

void unpack_plain(Format format, const uint8_t* row, int64_t at, int64_t end, PlainBlocks& out) {
  const int64_t elements = block_elements(format), step = std::max(elements, kPlain);
  const int64_t first = at / step * step / elements * block_bytes(format);
  const uint8_t* p = row + first;
  uint8_t whole[block_bytes(Format::kQ6_K)];  // the largest step
  static_assert(sizeof whole >= 4 * block_bytes(Format::kQ8_0) && sizeof whole >= kPlain);
  if (end < at + kPlain) {
    std::memset(whole, 0, sizeof whole);
    const int64_t last = (end + elements - 1) / elements * block_bytes(format);
    std::memcpy(whole, p, static_cast<size_t>(last - first));
    p = whole;
  }
  unpack_whole(format, p, static_cast<int>(at % step / kPlain), out);
}

void dequantize_row(Format format, const uint8_t* row, int64_t begin, int64_t count, float* out) {
  for (int64_t at = begin; at < begin + count;) {
    const int64_t from = at / kPlain * kPlain, end = std::min(begin + count, from + kPlain);
    PlainBlocks blocks;
    unpack_plain(format, row, from, end, blocks);
    float values[kPlain];
    for (int g = 0; g < 8; ++g)
      for (int i = 16 * g; i < 16 * g + 16; ++i)
        values[i] = static_cast<float>(blocks.q[i]) * blocks.scale[g] + blocks.minimum[g];
    out = std::copy(values + (at - from), values + (end - from), out);
    at = end;
  }
}

namespace {

// Packs a block of a row, whose elements and scales have their places at `q` and `s`.
void pack_block(const uint8_t* p, Format format, uint32_t flip, int64_t rows, uint8_t* q,
                uint8_t* s) {
  const int64_t elements = packed_bytes(format), scales = scale_bytes(format);
  for (int64_t at = 0; at < elements; at += 4) {
    const uint32_t four = read<uint32_t>(p + scales + at) ^ flip;
    std::memcpy(q + at * rows, &four, sizeof four);
  }
  for (int64_t at = 0; at < scales; at += 2) std::memcpy(s + at * rows, p + at, 2);
}

// Packs 32 elements of a super-block, `b` counted from the start of the row's `weights`. `q` is the
// row's place among the elements, and `s` the place of the scales of all rows of the strip.
void pack_six_bits(const uint8_t* weights, int64_t b, int64_t rows, int64_t row, uint8_t* q,
                   uint8_t* s) {
  const uint8_t* const super = weights + b / 8 * block_bytes(Format::kQ6_K);
  PlainBlocks plain;
  unpack_q6_k(super, static_cast<int>(b / 4 % 2), plain);
  const int8_t* const from = plain.q + b % 4 * kBlock;
  for (int i = 0; i < 16; ++i) {
    const int low = from[i] + 32, high = from[16 + i] + 32;
    q[i / 4 * 4 * rows + i % 4] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
    uint8_t& upper = q[(4 + i / 8) * 4 * rows + i % 4];
    upper = static_cast<uint8_t>(upper | (low >> 4 | high >> 4 << 2) << i / 4 % 2 * 4);
  }
  std::memcpy(s + 2 * row, super + 208, 2);
  s[2 * rows + row] = super[192 + 2 * (b % 8)];
  s[3 * rows + row] = super[193 + 2 * (b % 8)];
}

}  // namespace

void pack_panel(const PackedKernels& kernels, const QuantWeight& weight, int64_t begin, int64_t end,
                uint8_t* out) {
  const Format format = weight.format;
  const int64_t blocks = blocks_of(weight.k), rows = kernels.strip_rows;
  const int64_t elements = packed_bytes(format), scales = scale_bytes(format);
  const bool has_six_bits = format == Format::kQ6_K;
  const uint32_t flip = kernels.plus_128 && format == Format::kQ8_0 ? 0x80808080u : 0;
  std::memset(out, 0, static_cast<size_t>(kernels.panel_bytes(format, blocks)));
  for (; begin < end; begin += rows, out += strip_bytes(format, rows, blocks))
    for (int64_t b = 0; b < blocks; ++b)
      for (int64_t r = 0; r < std::min(rows, end - begin); ++r) {
        const uint8_t* const row = weight.data + (begin + r) * weight.stride;
        uint8_t* const q = out + b * elements * rows + 4 * r;
        uint8_t* const s = out + (blocks * elements + b * scales) * rows;
        if (has_six_bits)
          pack_six_bits(row, b, rows, r, q, s);
        else
          pack_block(row + b * block_bytes(format), format, flip, rows, q, s + 2 * r);
      }
}

const QuantKernels* const* all_quant_kernels() {
  static constinit const QuantKernels* all[6] = {};
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    const QuantKernels** next = all;
    for (const QuantKernels* kernels :
         {quant_kernels_vnni(), quant_kernels_avx2(), quant_kernels_i8mm(), quant_kernels_neon()})
      if (kernels != nullptr) *next++ = kernels;
    *next = &quant_kernels_plain();
  });
  return all;
}

const QuantKernels& quant_kernels() { return *all_quant_kernels()[0]; }

}  // namespace yard::simd
