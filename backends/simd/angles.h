// SPDX-License-Identifier: Apache-2.0
// Computes the cosines and sines of one token from its position and a base.
//
// An angle in f32 would be off by its own size times 6e-8. So the angle is a number of quarter
// turns in double until whole quarters are taken off. The remainder is small, and the rest is plain
// f32 that the compiler can vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "jobs.h"

namespace yard::simd {

struct Angles {
  // The number of pairs of dimensions at a time. Heads of up to 512 dimensions take one pass.
  static constexpr size_t kMost = 256;
  // Vectors are read whole, so the longest vectors may reach this far past the end.
  static constexpr size_t kRoom = 128;

  float cos[kMost + kRoom] = {}, sin[kMost + kRoom] = {};
  double quarters[kMost];  // quarter turns per step of the position
  double largest = 0;

  // Sets frequencies base^(-i / half) of pairs [from, from + count) of a head that turns `half`.
  void set_frequencies(double base, size_t half, size_t from, size_t count) noexcept {
    constexpr double kQuartersPerRadian = 0.63661977236758134308;
    base_ = base, half_ = half, from_ = from;
    const double ratio = std::pow(base, -1.0 / static_cast<double>(half));
    double f = frequency(0) * kQuartersPerRadian;
    largest = 0;
    for (size_t i = 0; i < count; ++i, f *= ratio) {
      quarters[i] = f;
      largest = f > largest ? f : largest;
    }
  }

  void set_position(int64_t position, size_t count) noexcept {
    const auto at = static_cast<double>(position);
    // For larger angles frequencies are too inexact, and numbers too large for the trick below.
    if (!(std::abs(at) < 0x1p27 && std::abs(at) * largest < 0x1p40)) return set_far(at, count);
    for (size_t i = 0; i < count; ++i) {
      const double q = at * quarters[i];
      // Adding 1.5 * 2^52 rounds to the nearest whole number, whose last bits are the quadrant.
      const double shifted = q + 0x1.8p52;
      const auto quadrant = static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted));
      const auto r = static_cast<float>(q - (shifted - 0x1.8p52));  // [-0.5, 0.5]
      const float z = r * r;
      const float s =
          r * (1.57079632f + z * (-0.645963460f + z * (0.0796800328f + z * -0.00460165789f)));
      const float c =
          1 + z * (-1.23370054f + z * (0.253669226f + z * (-0.0208601651f + z * 0.000903766539f)));
      const bool odd = (quadrant & 1) != 0;
      const float cosine = odd ? s : c, sine = odd ? c : s;
      // The signs by quadrant are + - - + for cos and + + - - for sin.
      const uint32_t cos_sign = ((quadrant + 1) & 2) << 30, sin_sign = (quadrant & 2) << 30;
      cos[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(cosine) ^ cos_sign);
      sin[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(sine) ^ sin_sign);
    }
  }

 private:
  double frequency(size_t i) const noexcept {
    return std::pow(base_, -static_cast<double>(from_ + i) / static_cast<double>(half_));
  }
  void set_far(double at, size_t count) noexcept {
    for (size_t i = 0; i < count; ++i) {
      const double angle = at * frequency(i);
      cos[i] = static_cast<float>(std::cos(angle));
      sin[i] = static_cast<float>(std::sin(angle));
    }
  }

  double base_ = 1;
  size_t half_ = 1, from_ = 0;
};

// Returns the position of a token: the given one, or the token's number if `at` is null.
inline int64_t position_of(const Rotary& job, const char* at, int64_t token) noexcept {
  if (at == nullptr) return token;
  if (job.wide_positions) {
    int64_t position;
    std::memcpy(&position, at, sizeof position);
    return position;
  }
  int32_t position;
  std::memcpy(&position, at, sizeof position);
  return position;
}

}  // namespace yard::simd
