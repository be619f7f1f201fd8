// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace yard::onednn {
namespace {

// Turns the bit pattern of a float into an integer that compares like the float, and back.
constexpr int32_t ordered(int32_t bits) noexcept { return bits ^ ((bits >> 31) & 0x7fffffff); }
constexpr int32_t kInfinity = 0x7f800000;
constexpr int32_t kNegativeInfinity = ordered(std::bit_cast<int32_t>(0xff800000u));

}  // namespace

bool Range::finite() const noexcept { return low > kNegativeInfinity && high < kInfinity; }
bool Range::negative_only_infinity() const noexcept {
  return low == kNegativeInfinity && high == kNegativeInfinity;
}
bool Range::has_nan_or_infinity() const noexcept {
  return low < kNegativeInfinity || high >= kInfinity;
}
float Range::least() const noexcept { return std::bit_cast<float>(ordered(low)); }
float Range::greatest() const noexcept { return std::bit_cast<float>(ordered(high)); }

Range range_of(const float* row, int64_t width) noexcept {
  int32_t low = 0x7fffffff, high = -0x7fffffff - 1;
  for (int64_t i = 0; i < width; ++i) {
    const int32_t at = ordered(std::bit_cast<int32_t>(row[i]));
    low = std::min(low, at);
    high = std::max(high, at);
  }
  return {low, high};
}

bool softmax_is_nan(const Range& r) noexcept {
  return r.has_nan_or_infinity() || r.negative_only_infinity();
}

bool suits_layer_norm(const Range& r, double eps) noexcept {
  if (!r.finite()) return false;
  const double least = r.least(), greatest = r.greatest();
  const double largest = std::max(std::abs(least), std::abs(greatest));
  const double spread = greatest - least;
  // 2^50 squared, times the longest row, is still a finite float. If the mean is large against the
  // spread, its rounding error spoils every difference. Squares of values below 2^-40 may leave the
  // normal numbers, which shows unless eps covers them.
  return largest <= 0x1p50 && largest <= 1.25 * spread && (spread >= 0x1p-40 || eps >= 1e-12);
}

bool suits_scaling(const Range& r) noexcept {
  return r.finite() && r.least() >= -0x1p60f && r.greatest() <= 0x1p60f;
}

void settle_sum(float* row, int64_t width) noexcept {
  double parts[8] = {};
  int64_t i = 0;
  for (; i + 8 <= width; i += 8)
    for (int j = 0; j < 8; ++j) parts[j] += static_cast<double>(row[i + j]);
  for (; i < width; ++i) parts[0] += static_cast<double>(row[i]);
  double sum = 0;
  for (double p : parts) sum += p;
  if (!(std::abs(sum - 1) > 1e-6) || !(sum > 0)) return;
  for (i = 0; i < width; ++i) row[i] = static_cast<float>(static_cast<double>(row[i]) / sum);
}

void layer_norm_row(float* out, const float* x, const float* weight, const float* bias,
                    int64_t width, double eps) noexcept {
  const auto count = static_cast<double>(width);
  double mean = 0, variance = 0;
  for (int64_t i = 0; i < width; ++i) mean += static_cast<double>(x[i]);
  mean /= count;
  for (int64_t i = 0; i < width; ++i) {
    const double d = static_cast<double>(x[i]) - mean;
    variance += d * d;
  }
  const double deviation = std::sqrt(variance / count + eps);
  for (int64_t i = 0; i < width; ++i) {
    double y = (static_cast<double>(x[i]) - mean) / deviation;
    if (weight != nullptr) y *= static_cast<double>(weight[i]);
    if (bias != nullptr) y += static_cast<double>(bias[i]);
    out[i] = static_cast<float>(y);
  }
}

}  // namespace yard::onednn
