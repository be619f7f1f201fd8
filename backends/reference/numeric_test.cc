// SPDX-License-Identifier: Apache-2.0
// Tests the 16-bit floats: every pattern, and rounding at, below and above every midpoint, against
// values made from the definition of the formats.
#include "numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace yard::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
struct Format;
template <>
struct Format<F16> {
  static constexpr int kExponent = 5, kMantissa = 10;
};
template <>
struct Format<BF16> {
  static constexpr int kExponent = 8, kMantissa = 7;
};

template <class T>
class SmallFloat : public ::testing::Test {
 public:
  static constexpr int kMantissa = Format<T>::kMantissa;
  static constexpr int kBias = (1 << (Format<T>::kExponent - 1)) - 1;
  static constexpr unsigned kInfinity = ((1u << Format<T>::kExponent) - 1) << kMantissa;

  // By definition. Patterns at and past infinity continue the finite range.
  static double meaning(unsigned pattern) {
    const int exponent = static_cast<int>((pattern & 0x7fff) >> kMantissa);
    const double fraction = std::ldexp(pattern & ((1u << kMantissa) - 1), -kMantissa);
    const double size = exponent == 0 ? std::ldexp(fraction, 1 - kBias)
                                      : std::ldexp(1 + fraction, exponent - kBias);
    return pattern & 0x8000 ? -size : size;
  }
};
using SmallFloats = ::testing::Types<F16, BF16>;
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, EveryPatternMeansWhatItShouldAndComesBack) {
  for (unsigned pattern = 0; pattern < 0x10000; ++pattern) {
    const double v = to_double(TypeParam{static_cast<uint16_t>(pattern)});
    const unsigned magnitude = pattern & 0x7fff;
    if (magnitude > this->kInfinity) {
      EXPECT_TRUE(std::isnan(v)) << pattern;
      const unsigned quiet = pattern | (1u << (this->kMantissa - 1));
      EXPECT_EQ(from_double<TypeParam>(v).bits, quiet) << pattern;
      continue;
    }
    const double expected = magnitude < this->kInfinity ? this->meaning(pattern)
                            : pattern & 0x8000          ? -kInf
                                                        : kInf;
    ASSERT_EQ(v, expected) << pattern;
    ASSERT_EQ(std::signbit(v), (pattern & 0x8000) != 0) << pattern;
    ASSERT_EQ(from_double<TypeParam>(v).bits, pattern);
  }
}

TYPED_TEST(SmallFloat, RoundsToNearestEvenAroundEveryMidpoint) {
  for (unsigned low = 0; low < this->kInfinity; ++low) {
    const unsigned high = low + 1;  // the last one is infinity
    const double middle = (this->meaning(low) + this->meaning(high)) / 2;
    const unsigned even = low % 2 == 0 ? low : high;
    ASSERT_EQ(from_double<TypeParam>(middle).bits, even) << low;
    ASSERT_EQ(from_double<TypeParam>(-middle).bits, even | 0x8000) << low;
    // These lie one double beside the middle. Rounding to float first would lose the difference.
    ASSERT_EQ(from_double<TypeParam>(std::nextafter(middle, 0)).bits, low);
    ASSERT_EQ(from_double<TypeParam>(std::nextafter(middle, kInf)).bits, high);
  }
}

TYPED_TEST(SmallFloat, EndsOfTheRange) {
  const auto bits = [](double v) { return from_double<TypeParam>(v).bits; };
  EXPECT_EQ(bits(0.0), 0);
  EXPECT_EQ(bits(-0.0), 0x8000);
  EXPECT_EQ(bits(kInf), this->kInfinity);
  EXPECT_EQ(bits(-kInf), this->kInfinity | 0x8000);
  EXPECT_EQ(bits(std::numeric_limits<double>::max()), this->kInfinity);
  EXPECT_EQ(bits(std::numeric_limits<double>::denorm_min()), 0);
  EXPECT_EQ(bits(-std::numeric_limits<double>::min()), 0x8000);
  EXPECT_TRUE(std::isnan(to_double(from_double<TypeParam>(kNan))));
  // A NaN whose payload bits do not fit must not become infinity.
  const auto low_payload = std::bit_cast<double>((uint64_t{0x7ff} << 52) | 1);
  EXPECT_TRUE(std::isnan(to_double(from_double<TypeParam>(low_payload))));
  const auto negative = std::bit_cast<double>((uint64_t{0xfff} << 52) | 1);
  EXPECT_TRUE(std::signbit(to_double(from_double<TypeParam>(negative))));
}

TEST(Numeric, KnownPatterns) {
  EXPECT_EQ(from_double<F16>(1.0).bits, 0x3c00);
  EXPECT_EQ(from_double<F16>(-2.5).bits, 0xc100);
  EXPECT_EQ(from_double<F16>(65504.0).bits, 0x7bff);
  EXPECT_EQ(from_double<F16>(65519.999).bits, 0x7bff);
  EXPECT_EQ(from_double<F16>(65520.0).bits, 0x7c00);
  EXPECT_EQ(from_double<F16>(std::ldexp(1, -24)).bits, 1);
  EXPECT_EQ(from_double<F16>(std::ldexp(1, -25)).bits, 0);
  EXPECT_EQ(from_double<BF16>(1.0).bits, 0x3f80);
  EXPECT_EQ(from_double<BF16>(3.140625).bits, 0x4049);
  EXPECT_EQ(from_double<BF16>(std::ldexp(1, -133)).bits, 1);
  EXPECT_EQ(from_double<float>(1e300), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace yard::reference
