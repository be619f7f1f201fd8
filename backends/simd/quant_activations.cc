// SPDX-License-Identifier: Apache-2.0
// Rounding activations to int8 in blocks of 32. Plain loops, which compilers turn into vectors.
#include <algorithm>
#include <bit>

#include "quant.h"
#include "scalars.h"

namespace yard::simd {
namespace {

constexpr int64_t kBlock = 32;

template <class T>
void widen_block(const char* p, int64_t count, float (&out)[kBlock]) {
  T in[kBlock] = {};
  std::memcpy(in, p, static_cast<size_t>(count) * sizeof(T));
  for (int64_t i = 0; i < kBlock; ++i) out[i] = widen(in[i]);
}

// The bits of the largest absolute value; those of a NaN are larger than of any number.
uint32_t largest_bits(const float (&v)[kBlock]) {
  uint32_t most = 0;
  for (const float x : v) most = std::max(most, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  return most;
}

void round_block(const float (&v)[kBlock], float most, XPanel& out, int64_t block) {
  const float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0.0f;
  int8_t* const q = out.q + block * kBlock;
  int32_t sum = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    // The last bits of a number near 1.5 * 2^23 are those of the integer that was added.
    const float shifted = v[i] * inverse + 12582912.0f;
    const int32_t rounded = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(12582912.0f);
    q[i] = static_cast<int8_t>(rounded);
    sum += rounded;
  }
  out.scale[block] = scale;
  out.sum[block] = scale * static_cast<float>(sum);
}

template <class T>
bool quantize_as(const char* x, int64_t k, XPanel* out) {
  // Products with weights of f16 stay normal numbers of f32.
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(1e-25f);
  constexpr uint32_t kMost = std::bit_cast<uint32_t>(1e25f);
  bool in_range = true;
  for (int64_t at = 0; at < (k + kPanel - 1) / kPanel * kPanel; at += kBlock) {
    float v[kBlock];
    widen_block<T>(x + at * static_cast<int64_t>(sizeof(T)), std::clamp(k - at, int64_t{0}, kBlock),
                   v);
    const uint32_t bits = largest_bits(v);
    if (bits != 0 && (bits < kLeast || bits > kMost)) in_range = false;
    if (!in_range) std::fill_n(v, kBlock, 0.0f);  // the row is not used
    round_block(v, in_range ? std::bit_cast<float>(bits) : 0.0f, out[at / kPanel],
                at % kPanel / kBlock);
  }
  return in_range;
}

}  // namespace

bool quantize_row(const char* x, uint32_t dtype, int64_t k, XPanel* out) {
  switch (dtype) {
    case YARD_F16: return quantize_as<F16>(x, k, out);
    case YARD_BF16: return quantize_as<BF16>(x, k, out);
    default: return quantize_as<float>(x, k, out);
  }
}

}  // namespace yard::simd
