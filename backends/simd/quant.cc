// SPDX-License-Identifier: Apache-2.0
// Unpacking in plain C++, dot products for machines without the instructions, and the choice.
#include "quant.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "scalars.h"

namespace yard::simd {
namespace {

void unpack_nibbles(const uint8_t* p, int64_t head, int8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<int8_t>(p[head + i] & 15);
    q[16 + i] = static_cast<int8_t>(p[head + i] >> 4);
  }
}

void unpack_q4_k(const uint8_t* p, int half, PlainPanel& panel) {
  const float d = widen(read<F16>(p)), least = widen(read<F16>(p + 2));
  const uint8_t* const packed = p + 4;
  for (int b = 0; b < 4; ++b) {
    const int j = half * 4 + b;
    const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
    const int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    const uint8_t* const q = p + 16 + half * 64 + b / 2 * 32;
    for (int i = 0; i < 32; ++i)
      panel.q[32 * b + i] = static_cast<int8_t>(b % 2 == 0 ? q[i] & 15 : q[i] >> 4);
    for (int g = 2 * b; g < 2 * b + 2; ++g) {
      panel.scale[g] = d * static_cast<float>(scale);
      panel.minimum[g] = -least * static_cast<float>(minimum);
    }
  }
}

void unpack_q6_k(const uint8_t* p, int half, PlainPanel& panel) {
  const uint8_t *const low = p + half * 64, *const high = p + 128 + half * 32;
  for (int i = 0; i < 32; ++i) {
    panel.q[i] = static_cast<int8_t>(((low[i] & 15) | (high[i] & 3) << 4) - 32);
    panel.q[32 + i] = static_cast<int8_t>(((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4) - 32);
    panel.q[64 + i] = static_cast<int8_t>((low[i] >> 4 | (high[i] >> 4 & 3) << 4) - 32);
    panel.q[96 + i] = static_cast<int8_t>((low[32 + i] >> 4 | high[i] >> 6 << 4) - 32);
  }
  const float d = widen(read<F16>(p + 208));
  for (int g = 0; g < 8; ++g) {
    panel.scale[g] = d * static_cast<float>(static_cast<int8_t>(p[192 + half * 8 + g]));
    panel.minimum[g] = 0;
  }
}

void unpack_blocks(Format format, const uint8_t* p, PlainPanel& panel) {
  for (int b = 0; b < 4; ++b, p += block_bytes(format)) {
    float scale = widen(read<F16>(p)), minimum = 0;
    if (format == Format::kQ8_0) {
      std::memcpy(panel.q + 32 * b, p + 2, 32);
    } else if (format == Format::kQ4_1) {
      unpack_nibbles(p, 4, panel.q + 32 * b);
      minimum = widen(read<F16>(p + 2));
    } else {
      unpack_nibbles(p, 2, panel.q + 32 * b);
      for (int i = 0; i < 32; ++i)
        panel.q[32 * b + i] = static_cast<int8_t>(panel.q[32 * b + i] - 8);
    }
    for (int g = 2 * b; g < 2 * b + 2; ++g) panel.scale[g] = scale, panel.minimum[g] = minimum;
  }
}

namespace plain {

#define YARD_ISA
#define YARD_ISA_INLINE inline
using Panel = PlainPanel;
using Sum = float;
inline Sum zero() { return 0; }
inline float total(Sum s) { return s; }
template <Format F, int kHalf>
inline void unpack(const uint8_t* p, Panel& panel) {
  unpack_panel(F, p, kHalf, panel);
}
template <Format F>
inline void add(Sum& sum, const Panel& panel, const XPanel& x) {
  for (int g = 0; g < 8; ++g) {
    int dot = 0, ones = 0;
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      dot += panel.q[i] * x.q[i];
      ones += x.q[i];
    }
    sum += panel.scale[g] * x.scale[g / 2] * static_cast<float>(dot);
    if constexpr (has_minimum(F))
      sum += panel.minimum[g] * x.scale[g / 2] * static_cast<float>(ones);
  }
}
#include "quant_tile.inc"

}  // namespace plain
}  // namespace

void unpack_panel(Format format, const uint8_t* p, int half, PlainPanel& panel) {
  switch (format) {
    case Format::kQ4_K: return unpack_q4_k(p, half, panel);
    case Format::kQ6_K: return unpack_q6_k(p, half, panel);
    case Format::kI8:
      std::memcpy(panel.q, p, kPanel);
      for (int g = 0; g < 8; ++g) panel.scale[g] = 1, panel.minimum[g] = 0;
      return;
    default: return unpack_blocks(format, p, panel);
  }
}

void dequantize_row(Format format, const uint8_t* row, int64_t begin, int64_t count, float* out) {
  const int64_t elements = block_elements(format), step = step_panels(format) * kPanel;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t panel_begin = at / kPanel * kPanel;
    const int64_t end = std::min(begin + count, panel_begin + kPanel);
    const int64_t first = at / step * step / elements * block_bytes(format);
    const uint8_t* p = row + first;
    uint8_t whole[step_bytes(Format::kQ6_K)];
    // Only what belongs to the row is read: the rest of a last panel is made of zeros.
    if (end != panel_begin + kPanel) {
      std::memset(whole, 0, sizeof whole);
      const int64_t last = (end + elements - 1) / elements * block_bytes(format);
      std::memcpy(whole, p, static_cast<size_t>(last - first));
      p = whole;
    }
    PlainPanel panel;
    unpack_panel(format, p, static_cast<int>(at / kPanel % step_panels(format)), panel);
    float values[kPanel];
    for (int g = 0; g < 8; ++g)
      for (int i = 16 * g; i < 16 * g + 16; ++i)
        values[i] = static_cast<float>(panel.q[i]) * panel.scale[g] + panel.minimum[g];
    out = std::copy(values + (at - panel_begin), values + (end - panel_begin), out);
    at = end;
  }
}

const QuantTile* quant_tiles() {
  static constinit QuantTile all[5] = {};
  static constinit std::once_flag once;
  std::call_once(once, [] {
    QuantTile* next = all;
    for (const QuantTile tile : {quant_tile_vnni(), quant_tile_avx2(), quant_tile_neon()})
      if (tile != nullptr) *next++ = tile;
    *next = plain::tiles;
  });
  return all;
}

QuantTile quant_tile() { return quant_tiles()[0]; }

}  // namespace yard::simd
