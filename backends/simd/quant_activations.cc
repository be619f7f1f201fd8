// SPDX-License-Identifier: Apache-2.0
// Rounding activations to int8 in blocks of 32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant_activations.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "jobs.h"
#include "lanes.inc"
#include "quant.h"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// At most 16 lanes, so that a block is whole vectors.
using DX = hn::CappedTag<float, 16>;
using DXU = hn::RebindToUnsigned<DX>;

// The bits of the largest absolute value; those of a NaN are larger than of any number.
HWY_INLINE uint32_t largest_bits(const char* v) {
  const DXU d;
  auto most = hn::Zero(d);
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto bits = load(d, v + i * sizeof(float));
    most = hn::Max(most, hn::And(bits, hn::Set(d, 0x7fffffffu)));
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// Half a block. Returns the sum.
HWY_INLINE int32_t round_half(const char* v, float inverse, int8_t* q) {
  // The last bits of a number near 1.5 * 2^23 are those of the integer that was added.
  constexpr float kShift = 12582912.0f;
  const DX d;
  const DXU du;
  const hn::Rebind<uint8_t, DX> bytes;
  auto sum = hn::Zero(du);
  for (size_t i = 0; i < kBlock / 2; i += hn::Lanes(d)) {
    const auto x = load(d, v + i * sizeof(float));
    const auto bits = hn::BitCast(du, hn::MulAdd(x, hn::Set(d, inverse), hn::Set(d, kShift)));
    hn::StoreU(hn::TruncateTo(bytes, bits), bytes, reinterpret_cast<uint8_t*>(q) + i);
    sum = hn::Add(sum, bits);
  }
  constexpr uint32_t kShifts = static_cast<uint32_t>(kBlock / 2) * std::bit_cast<uint32_t>(kShift);
  return static_cast<int32_t>(hn::GetLane(hn::SumOfLanes(du, sum)) - kShifts);
}

// A block as f32: in place, or copied where it is not whole or of another type.
template <class T>
HWY_INLINE const char* block_of(const char* p, int64_t count, float (&room)[kBlock]) {
  if (std::is_same_v<T, float> && count >= kBlock) return p;
  T in[kBlock] = {};
  std::memcpy(in, p, static_cast<size_t>(HWY_MIN(count, kBlock)) * sizeof(T));
  for (int64_t i = 0; i < kBlock; ++i) room[i] = widen(in[i]);
  return reinterpret_cast<const char*>(room);
}

template <int64_t kRows>
HWY_INLINE void put_block(const char* v, float most, XBlock<kRows>& out, int64_t row) {
  int8_t q[kBlock];
  const float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0.0f;
  const int32_t first = round_half(v, inverse, q);
  const int32_t second = round_half(v + sizeof(float) * kBlock / 2, inverse, q + kBlock / 2);
  for (int64_t i = 0; i < kBlock; i += 4) std::memcpy(out.q + i * kRows + row * 4, q + i, 4);
  out.scale[row] = scale;
  out.sum[row] = scale * static_cast<float>(first + second);
  out.offset[0][row] = -128 * (first + second);
  out.offset[1][row] = -128 * first;
  out.offset[2][row] = -128 * second;
}

template <class T, int64_t kRows>
HWY_INLINE bool quantize_as(const char* x, int64_t k, XBlock<kRows>* out, int64_t row) {
  // Products with weights of f16 stay normal numbers of f32.
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(1e-25f);
  constexpr uint32_t kMost = std::bit_cast<uint32_t>(1e25f);
  bool in_range = true;
  for (int64_t at = 0; at < k; at += kBlock, ++out) {
    float room[kBlock];
    const char* v = block_of<T>(x + at * static_cast<int64_t>(sizeof(T)), k - at, room);
    const uint32_t bits = largest_bits(v);
    if (bits != 0 && (bits < kLeast || bits > kMost)) in_range = false;
    if (!in_range) {  // the row is not used
      std::memset(room, 0, sizeof room);
      v = reinterpret_cast<const char*>(room);
    }
    put_block(v, in_range ? std::bit_cast<float>(bits) : 0.0f, *out, row);
  }
  return in_range;
}

template <int64_t kRows>
HWY_INLINE bool quantize(const char* x, uint32_t dtype, int64_t k, XBlock<kRows>* out,
                         int64_t row) {
  switch (dtype) {
    case YARD_F16: return quantize_as<F16>(x, k, out, row);
    case YARD_BF16: return quantize_as<BF16>(x, k, out, row);
    default: return quantize_as<float>(x, k, out, row);
  }
}

bool quantize_single(const char* x, uint32_t dtype, int64_t k, XRow* out) {
  return quantize(x, dtype, k, out, 0);
}
bool quantize_in_group(const char* x, uint32_t dtype, int64_t k, XGroup* out, int64_t row) {
  return quantize(x, dtype, k, out, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(quantize_single);
HWY_EXPORT(quantize_in_group);

}  // namespace

bool quantize_row(const char* x, uint32_t dtype, int64_t k, XRow* out) {
  return HWY_DYNAMIC_DISPATCH(quantize_single)(x, dtype, k, out);
}
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XGroup* out, int64_t row) {
  return HWY_DYNAMIC_DISPATCH(quantize_in_group)(x, dtype, k, out, row);
}

}  // namespace yard::simd
#endif
