// SPDX-License-Identifier: Apache-2.0
// Tests conversions bit by bit, and functions to the last place, through the kernels that use them.
#include <bit>
#include <limits>

#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::kFloats;
using testing::TestTensor;

// Turning (1, 0) by a table gives the table: T(cos) in the first half, T(sin) in the second.
std::vector<double> through_rotation(uint32_t dtype, uint32_t table_dtype, int64_t style,
                                     const std::vector<double>& values) {
  const auto half = static_cast<int64_t>(values.size());
  TestTensor query(dtype, {1, 1, 2 * half}), cos(table_dtype, {1, half}),
      sin(table_dtype, {1, half});
  std::vector<double> ones(values.size() * 2);
  for (size_t i = 0; i < values.size(); ++i) ones[style == 0 ? i : 2 * i] = 1;
  query.set(ones);
  cos.set(values);
  sin.set(std::vector<double>(values.size(), 0));
  EXPECT_EQ(
      testing::run("rotary_embedding", query, nullptr, nullptr, cos, sin, int64_t{0}, 1e4, style)
          .code,
      YARD_OK);
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) out.push_back(query.at(style == 0 ? i : 2 * i));
  return out;
}

bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

// Returns f32 numbers on both sides of every rounding decision.
std::vector<double> hard_to_round() {
  std::vector<double> v;
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (const uint32_t mantissa :
         {0u,        1u,        0x7fffu,   0x8000u,   0x8001u,   0x17fffu, 0x18000u,  0x18001u,
          0xfffu,    0x1000u,   0x1001u,   0x2fffu,   0x3000u,   0x3001u,  0x7fe000u, 0x7fefffu,
          0x7ff000u, 0x7f7fffu, 0x7f8000u, 0x7fffffu, 0x400000u, 0x555555u})
      for (const uint32_t sign : {0u, 0x80000000u})
        v.push_back(std::bit_cast<float>(sign | exponent << 23 | mantissa));
  return v;
}

TEST(Narrowing, RoundsToNearestEvenAndKeepsNan) {
  const std::vector<double> values = hard_to_round();
  for (const uint32_t dtype : kFloats)
    for (const int64_t style : {0, 1}) {
      const std::vector<double> found = through_rotation(dtype, YARD_F32, style, values);
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_TRUE(same(found[i], reference::testing::round_to(dtype, values[i])))
            << values[i] << " became " << found[i] << ", dtype " << dtype;
    }
}

TEST(Widening, IsExactForEveryPattern) {
  for (const uint32_t dtype : {uint32_t{YARD_F16}, uint32_t{YARD_BF16}}) {
    std::vector<double> values;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      values.push_back(dtype == YARD_F16
                           ? reference::to_double(reference::F16{static_cast<uint16_t>(bits)})
                           : reference::to_double(reference::BF16{static_cast<uint16_t>(bits)}));
    const std::vector<double> found = through_rotation(YARD_F32, dtype, 0, values);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_TRUE(same(found[i], values[i])) << values[i];
  }
}

// Returns the distance in f32 units in the last place.
double ulps(double found, double expected) {
  const auto e = static_cast<float>(std::abs(expected));
  const double unit = std::nextafter(e, std::numeric_limits<float>::infinity()) - e;
  return std::abs(found - expected) / unit;
}

// Returns the largest error over [low, high] where the result is a normal number.
template <class F>
double worst(const char* op, int64_t approximate, double low, double high, const F& exact) {
  constexpr size_t kCount = 100000;
  TestTensor x(YARD_F32, {1, 2 * kCount}), out(YARD_F32, {1, kCount});
  std::vector<double> values(2 * kCount, 1.0);
  for (size_t i = 0; i < kCount; ++i)
    values[i] = static_cast<float>(low + (high - low) * static_cast<double>(i) / (kCount - 1));
  x.set(values);
  if (std::string_view(op) == "silu_and_mul")
    EXPECT_EQ(testing::run(op, out, x).code, YARD_OK);
  else
    EXPECT_EQ(testing::run(op, out, x, approximate).code, YARD_OK);
  double most = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double e = exact(values[i]);
    if (std::abs(e) >= 2 * static_cast<double>(std::numeric_limits<float>::min()))
      most = std::max(most, ulps(out.at(i), e));
  }
  return most;
}

TEST(Functions, AreExactToAFewUnitsInTheLastPlace) {
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  EXPECT_LE(worst("silu_and_mul", 0, -85, 20, silu), 4);
  EXPECT_LE(worst("silu_and_mul", 0, -1, 1, silu), 4);
  const auto gelu = [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); };
  EXPECT_LE(worst("gelu_and_mul", 0, -2, 20, gelu), 8);
  const auto tanh = [](double v) {
    return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  EXPECT_LE(worst("gelu_and_mul", 1, -1, 20, tanh), 6);
  // In this range, the exponential magnifies the rounding of its argument. In the first case this
  // happens only if the machine cannot multiply and add in one step.
  EXPECT_LE(worst("gelu_and_mul", 0, -12.5, -2, gelu), 80);
  EXPECT_LE(worst("gelu_and_mul", 1, -8, -1, tanh), 120);
}

}  // namespace
}  // namespace yard::simd
