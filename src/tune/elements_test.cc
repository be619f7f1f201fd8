// SPDX-License-Identifier: Apache-2.0
// Elements of every dtype.
#include "tune/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace yard::tune {
namespace {

TEST(Elements, EveryNumberSurvivesARoundTrip) {
  for (const auto& [type, bits] : {std::pair{DType::f16, 16}, std::pair{DType::bf16, 16},
                                   std::pair{DType::f8e4m3, 8}, std::pair{DType::f8e5m2, 8}}) {
    std::set<double> seen;
    for (uint32_t i = 0; i < (1u << bits); ++i) {
      const double v = load(type, &i);
      uint32_t back = 0;
      store(type, &back, v);
      if (std::isnan(v))
        EXPECT_TRUE(std::isnan(load(type, &back)));
      else
        EXPECT_EQ(back, i) << to_string(type);
      seen.insert(v);
    }
    EXPECT_GT(seen.size(), (1u << bits) * 9 / 10);
  }
}

TEST(Elements, RoundsToNearestEven) {
  uint16_t h;
  const auto f16 = [&](double v) { return store(DType::f16, &h, v), load(DType::f16, &h); };
  EXPECT_EQ(f16(1 + 0x1p-11), 1);  // a tie goes to the even neighbour
  EXPECT_EQ(f16(1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(f16(65519.9), 65504);
  EXPECT_EQ(f16(65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(f16(0x1p-25), 0);
  EXPECT_EQ(f16(0x1.8p-25), 0x1p-24);  // the smallest there is
  EXPECT_EQ(f16(2 - 0x1p-12), 2);      // carries into the exponent
  const auto bf16 = [&](double v) { return store(DType::bf16, &h, v), load(DType::bf16, &h); };
  EXPECT_EQ(bf16(1 + 0x1p-8), 1);
  EXPECT_EQ(bf16(-1.0), -1.0);
  uint8_t b;
  const auto f8 = [&](double v) { return store(DType::f8e4m3, &b, v), load(DType::f8e4m3, &b); };
  EXPECT_EQ(f8(448), 448);
  EXPECT_TRUE(std::isnan(f8(1000)));
}

}  // namespace
}  // namespace yard::tune
