// SPDX-License-Identifier: Apache-2.0
#include "weigh.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace yard::onednn {
namespace {

// Independent sums and maxima of a row: at least as many as a vector has lanes.
constexpr int kLanes = 16;
constexpr float kLeast = -std::numeric_limits<float>::infinity();

// Loops over lanes are vectorised: they have no branches, and do not sum across lanes.
#define YARD_INLINE [[gnu::always_inline]] inline

// Computes exp(x) for x <= 0 or NaN. Returns 0 below -87.
YARD_INLINE float exp_of(float x) noexcept {
  const float y = x < -87.0f ? -87.0f : x;
  const float shifted = y * 1.44269504f + 12582912.0f;  // 1.5 * 2^23 rounds to an integer
  const float n = shifted - 12582912.0f;
  const float r = (y - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  const int32_t exponent = (std::bit_cast<int32_t>(shifted) - 0x4b400000 + 127) << 23;
  return x < -87.0f ? 0.0f : p * std::bit_cast<float>(exponent);
}

YARD_INLINE uint16_t bf16_of(float f) noexcept {
  const auto u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}
YARD_INLINE void put(float* to, float f) noexcept { *to = f; }
YARD_INLINE void put(uint16_t* to, float f) noexcept { *to = bf16_of(f); }

template <class T>
YARD_INLINE void weigh(float* scores, T* weights, int64_t seen, int64_t count, float scale,
                       float& top, float& sum, float* result, int64_t dim) noexcept {
  const int64_t whole = seen / kLanes * kLanes;
  float most[kLanes], sums[kLanes] = {};
  std::fill_n(most, kLanes, top);
  for (int64_t j = 0; j < whole; j += kLanes)
    for (int i = 0; i < kLanes; ++i) {
      const float s = scores[j + i] * scale;
      scores[j + i] = s;
      most[i] = s > most[i] ? s : most[i];
    }
  for (int64_t j = whole; j < seen; ++j) {
    scores[j] *= scale;
    most[0] = scores[j] > most[0] ? scores[j] : most[0];
  }
  float largest = most[0];
  for (int i = 1; i < kLanes; ++i) largest = std::max(largest, most[i]);
  // If all scores so far are -inf, subtracting 0 from them gives weights of 0.
  const float reference = largest == kLeast ? 0.0f : largest;
  if (largest > top && top != kLeast) {
    const float factor = exp_of(top - reference);
    for (int64_t i = 0; i < dim; ++i) result[i] *= factor;
    sum *= factor;
  }
  top = largest;
  for (int64_t j = 0; j < whole; j += kLanes)
    for (int i = 0; i < kLanes; ++i) {
      const float w = exp_of(scores[j + i] - reference);
      sums[i] += w;
      put(weights + j + i, w);
    }
  for (int64_t j = whole; j < seen; ++j) {
    const float w = exp_of(scores[j] - reference);
    sums[0] += w;
    put(weights + j, w);
  }
  for (int64_t j = seen; j < count; ++j) weights[j] = T{};
  for (int i = 0; i < kLanes; ++i) sum += sums[i];
}

template <class T>
YARD_INLINE void finish(const float* result, float sum, int64_t dim, T* out) noexcept {
  const float factor = sum == 0 ? 0.0f : 1 / sum;
  for (int64_t i = 0; i < dim; ++i) put(out + i, sum == 0 ? 0.0f : result[i] * factor);
}

YARD_INLINE void weigh_any(bool bf16, float* scores, void* weights, int64_t seen, int64_t count,
                           float scale, float& top, float& sum, float* result,
                           int64_t dim) noexcept {
  if (bf16)
    weigh(scores, static_cast<uint16_t*>(weights), seen, count, scale, top, sum, result, dim);
  else
    weigh(scores, static_cast<float*>(weights), seen, count, scale, top, sum, result, dim);
}

using Weigh = void (*)(bool, float*, void*, int64_t, int64_t, float, float&, float&, float*,
                       int64_t) noexcept;

void weigh_plain(bool bf16, float* scores, void* weights, int64_t seen, int64_t count, float scale,
                 float& top, float& sum, float* result, int64_t dim) noexcept {
  weigh_any(bf16, scores, weights, seen, count, scale, top, sum, result, dim);
}

#if defined(__x86_64__)
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,fma")]] void weigh_avx512(
    bool bf16, float* scores, void* weights, int64_t seen, int64_t count, float scale, float& top,
    float& sum, float* result, int64_t dim) noexcept {
  weigh_any(bf16, scores, weights, seen, count, scale, top, sum, result, dim);
}
[[gnu::target("avx2,fma")]] void weigh_avx2(bool bf16, float* scores, void* weights, int64_t seen,
                                            int64_t count, float scale, float& top, float& sum,
                                            float* result, int64_t dim) noexcept {
  weigh_any(bf16, scores, weights, seen, count, scale, top, sum, result, dim);
}
Weigh widest() noexcept {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return weigh_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return weigh_avx2;
  return weigh_plain;
}
#else
Weigh widest() noexcept { return weigh_plain; }
#endif

}  // namespace

void weigh_row(bool bf16, float* scores, void* weights, int64_t seen, int64_t count, float scale,
               float& top, float& sum, float* result, int64_t dim) noexcept {
  static const Weigh run = widest();
  run(bf16, scores, weights, seen, count, scale, top, sum, result, dim);
}

void finish_row(bool bf16, const float* result, float sum, int64_t dim, void* out) noexcept {
  if (bf16)
    finish(result, sum, dim, static_cast<uint16_t*>(out));
  else
    finish(result, sum, dim, static_cast<float*>(out));
}

bool all_finite(bool bf16, const void* rows, int64_t count, int64_t dim, int64_t stride) noexcept {
  uint32_t wrong = 0;
  for (int64_t r = 0; r < count; ++r) {
    if (bf16) {
      const uint16_t* const row = static_cast<const uint16_t*>(rows) + r * stride;
      for (int64_t i = 0; i < dim; ++i) wrong |= (row[i] & 0x7f80u) == 0x7f80u ? 1u : 0u;
    } else {
      const uint32_t* const row = static_cast<const uint32_t*>(rows) + r * stride;
      for (int64_t i = 0; i < dim; ++i) wrong |= (row[i] & 0x7f800000u) == 0x7f800000u ? 1u : 0u;
    }
  }
  return wrong == 0;
}

#undef YARD_INLINE

}  // namespace yard::onednn
