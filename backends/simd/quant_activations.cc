// SPDX-License-Identifier: Apache-2.0
// Rounds activations to int8 in blocks of 32, and computes the rests of blocks with large values.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quant_activations.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "jobs.h"
#include "lanes.inc"
#include "quant.h"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// At most 16 lanes, so that half a block is whole vectors.
using DX = hn::CappedTag<float, 16>;
using DXU = hn::RebindToUnsigned<DX>;

// Returns the bits of the largest absolute value. The bits of a NaN are larger still.
HWY_INLINE uint32_t largest_bits(const char* v) {
  const DXU d;
  auto most = hn::Zero(d);
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto bits = load(d, v + i * sizeof(float));
    most = hn::Max(most, hn::And(bits, hn::Set(d, 0x7fffffffu)));
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// Returns the sum of squares of a block, in a unit in which squares do not overflow.
constexpr float kUnit = 1.0f / (1 << 30);
HWY_INLINE float sum_of_squares(const char* v) {
  const DX d;
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto x = hn::Mul(load(d, v + i * sizeof(float)), hn::Set(d, kUnit));
    sum = hn::MulAdd(x, x, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Rounds half a block, or the rounding errors of half a block. Returns the sum.
template <bool kIsRest>
HWY_INLINE int32_t round_half(const char* v, float inverse, int8_t* q) {
  // The last bits of a number near 1.5 * 2^23 are the bits of the integer that was added.
  constexpr float kShift = 12582912.0f;
  const DX d;
  const DXU du;
  const hn::Rebind<uint8_t, DX> bytes;
  const auto shift = hn::Set(d, kShift), factor = hn::Set(d, inverse);
  auto sum = hn::Zero(du);
  for (size_t i = 0; i < kBlock / 2; i += hn::Lanes(d)) {
    const auto x = load(d, v + i * sizeof(float));
    auto rounded = hn::MulAdd(x, factor, shift);
    if constexpr (kIsRest) {
      const auto rest = hn::MulAdd(x, factor, hn::Sub(shift, rounded));
      rounded = hn::MulAdd(rest, hn::Set(d, float{1 << kRestBits}), shift);
    }
    const auto bits = hn::BitCast(du, rounded);
    hn::StoreU(hn::TruncateTo(bytes, bits), bytes, reinterpret_cast<uint8_t*>(q) + i);
    sum = hn::Add(sum, bits);
  }
  constexpr uint32_t kShifts = static_cast<uint32_t>(kBlock / 2) * std::bit_cast<uint32_t>(kShift);
  return static_cast<int32_t>(hn::GetLane(hn::SumOfLanes(du, sum)) - kShifts);
}

// Returns a block as f32, in place, or copied if the block is partial or of another type.
template <class T>
HWY_INLINE const char* block_of(const char* p, int64_t count, float (&room)[kBlock]) {
  if (std::is_same_v<T, float> && count >= kBlock) return p;
  T in[kBlock] = {};
  std::memcpy(in, p, static_cast<size_t>(HWY_MIN(count, kBlock)) * sizeof(T));
  for (int64_t i = 0; i < kBlock; ++i) room[i] = widen(in[i]);
  return reinterpret_cast<const char*>(room);
}

template <int64_t kChunk>
HWY_INLINE void put_chunks(const int8_t* q, int64_t rows, int64_t row, int8_t* out) {
  for (int64_t i = 0; i < kBlock; i += kChunk)
    std::memcpy(out + i * rows + row * kChunk, q + i, kChunk);
}

template <bool kIsRest, int64_t kRows>
HWY_INLINE int32_t put_bytes(const char* v, float inverse, XBytes<kRows>& out, InGroup place) {
  int8_t q[kBlock];
  const char* const half = v + sizeof(float) * kBlock / 2;
  const int32_t first = round_half<kIsRest>(v, inverse, q);
  const int32_t second = round_half<kIsRest>(half, inverse, q + kBlock / 2);
  const int64_t row = place.row;
  place.chunk == 8 ? put_chunks<8>(q, kRows, row, out.q) : put_chunks<4>(q, kRows, row, out.q);
  out.offset[0][row] = -128 * (first + second);
  out.offset[1][row] = -128 * first;
  out.offset[2][row] = -128 * second;
  out.used[row] = true;
  return first + second;
}

template <int64_t kRows>
HWY_INLINE void put_block(const char* v, float most, float large, XBlock<kRows>& out,
                          XBytes<kRows>& rest, InGroup place) {
  const int64_t row = place.row;
  const float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0.0f;
  auto sum = static_cast<float>(put_bytes<false>(v, inverse, out, place));
  if (row == 0) out.rest = nullptr;
  if (most > large) {
    if (out.rest == nullptr && kRows > 1) std::memset(&rest, 0, sizeof rest);
    out.rest = &rest;
    sum += kRestStep * static_cast<float>(put_bytes<true>(v, inverse, rest, place));
  }
  out.scale[row] = scale;
  out.sum[row] = scale * sum;
}

template <class T, int64_t kRows>
HWY_INLINE bool quantize_as(const char* x, int64_t k, XBlock<kRows>* out, XBytes<kRows>* rests,
                            InGroup place) {
  const int64_t row = place.row;
  constexpr auto kStep = kBlock * static_cast<int64_t>(sizeof(T));
  float room[kBlock];
  bool in_range = true;
  float squares = 0;
  for (int64_t at = 0, b = 0; at < k; at += kBlock, ++b) {
    const char* const v = block_of<T>(x + b * kStep, k - at, room);
    const uint32_t bits = largest_bits(v);
    if (bits != 0 && (bits < kLeastBits || bits > kMostBits)) in_range = false;
    // The block's maximum, until put_block() stores the scale.
    out[b].scale[row] = std::bit_cast<float>(bits);
    squares += sum_of_squares(v);
  }
  const float large = kLargeBlock * std::sqrt(squares / static_cast<float>(k)) / kUnit;
  if (!in_range) std::memset(room, 0, sizeof room);  // the row is not used
  for (int64_t at = 0, b = 0; at < k; at += kBlock, ++b) {
    const char* const v =
        in_range ? block_of<T>(x + b * kStep, k - at, room) : reinterpret_cast<const char*>(room);
    put_block(v, in_range ? out[b].scale[row] : 0.0f, in_range ? large : 0.0f, out[b], rests[b],
              place);
  }
  return in_range;
}

template <int64_t kRows>
HWY_INLINE bool quantize(const char* x, uint32_t dtype, int64_t k, XBlock<kRows>* out,
                         XBytes<kRows>* rests, InGroup place) {
  switch (dtype) {
    case YARD_F16: return quantize_as<F16>(x, k, out, rests, place);
    case YARD_BF16: return quantize_as<BF16>(x, k, out, rests, place);
    default: return quantize_as<float>(x, k, out, rests, place);
  }
}

bool quantize_single(const char* x, uint32_t dtype, int64_t k, XRow* out, XRowRest* rests) {
  return quantize(x, dtype, k, out, rests, {0, kBlock});
}
bool quantize_in_group(const char* x, uint32_t dtype, int64_t k, XGroup* out, XGroupRest* rests,
                       InGroup place) {
  return quantize(x, dtype, k, out, rests, place);
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

bool quantize_row(const char* x, uint32_t dtype, int64_t k, XRow* out, XRowRest* rests) {
  return HWY_DYNAMIC_DISPATCH(quantize_single)(x, dtype, k, out, rests);
}
bool quantize_row(const char* x, uint32_t dtype, int64_t k, XGroup* out, XGroupRest* rests,
                  InGroup place) {
  return HWY_DYNAMIC_DISPATCH(quantize_in_group)(x, dtype, k, out, rests, place);
}

}  // namespace yard::simd
#endif
