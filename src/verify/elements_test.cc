// SPDX-License-Identifier: Apache-2.0
// Tests that elements of every dtype and stride are converted, copied, packed and checked for
// finite values.
#include "verify/elements.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

namespace yard::verification {
namespace {

TEST(Elements, EveryValueRoundTrips) {
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
  EXPECT_EQ(f16(0x1.8p-25), 0x1p-24);  // the smallest subnormal
  EXPECT_EQ(f16(2 - 0x1p-12), 2);      // carries into the exponent
  const auto bf16 = [&](double v) { return store(DType::bf16, &h, v), load(DType::bf16, &h); };
  EXPECT_EQ(bf16(1 + 0x1p-8), 1);
  EXPECT_EQ(bf16(-1.0), -1.0);
  uint8_t b;
  const auto f8 = [&](double v) { return store(DType::f8e4m3, &b, v), load(DType::f8e4m3, &b); };
  EXPECT_EQ(f8(448), 448);
  EXPECT_TRUE(std::isnan(f8(1000)));
}

TEST(Elements, PackingFollowsIndexOrderForAnyStrides) {
  std::vector<float> memory(24), back(24, -1.f);
  std::iota(memory.begin(), memory.end(), 0.f);
  struct Form {
    int64_t first;
    std::vector<int64_t> shape, strides;
    std::vector<float> elements;
  };
  for (const Form& f :
       {Form{0, {2, 3}, {3, 1}, {0, 1, 2, 3, 4, 5}}, Form{0, {2, 3}, {8, 2}, {0, 2, 4, 8, 10, 12}},
        Form{8, {2, 2}, {-8, 1}, {8, 9, 0, 1}}, Form{5, {2, 2}, {0, 1}, {5, 6, 5, 6}},
        Form{7, {}, {}, {7}}, Form{0, {0, 4}, {4, 1}, {}}}) {
    const TensorView v(memory.data() + f.first, DType::f32, std::span(f.shape),
                       std::span(f.strides));
    const std::string bytes = packed_elements(v);
    ASSERT_EQ(bytes.size(), packed_bytes(v));
    ASSERT_EQ(bytes.size(), 4 * f.elements.size());
    if (!bytes.empty()) {
      EXPECT_EQ(std::memcmp(bytes.data(), f.elements.data(), bytes.size()), 0);
    }
    const TensorView to(back.data() + f.first, DType::f32, std::span(f.shape),
                        std::span(f.strides));
    unpack_elements(bytes, to);
    EXPECT_EQ(packed_elements(to), bytes);
    std::fill(back.begin(), back.end(), -1.f);
    copy_elements(v, to);
    EXPECT_EQ(packed_elements(to), bytes);
  }
}

TEST(Elements, NonFiniteValuesAreFoundInEveryFloatType) {
  for (const DType t :
       {DType::f32, DType::f16, DType::bf16, DType::f64, DType::f8e5m2, DType::f8e4m3}) {
    std::vector<char> memory(12 * element_size(t));
    const TensorView v(memory.data(), t, {3, 4});
    for (int i = 0; i < 12; ++i) store(t, memory.data() + i * element_size(t), i % 2 ? 240 : -1.5);
    EXPECT_FALSE(first_not_finite(v)) << to_string(t);
    for (const double bad : {double{HUGE_VALF}, -double{HUGE_VALF}, std::nan("")}) {
      const size_t at = 6 * element_size(t);
      store(t, memory.data() + at, bad);
      ASSERT_TRUE(first_not_finite(v)) << to_string(t) << " " << bad;
      EXPECT_EQ(first_not_finite(v)->index, (std::vector<int64_t>{1, 2}));
      store(t, memory.data() + at, 1);
    }
  }
}

TEST(Elements, GapsBetweenElementsAreNotChecked) {
  std::vector<float> memory = {1, NAN, 2, HUGE_VALF};
  EXPECT_FALSE(first_not_finite(TensorView(memory.data(), DType::f32, {2}, {2})));
  EXPECT_TRUE(first_not_finite(TensorView(memory.data(), DType::f32, {2}, {3})));
  EXPECT_FALSE(first_not_finite(TensorView(memory.data(), DType::f32, {0})));
  std::vector<int32_t> whole = {0x7f800000};
  EXPECT_FALSE(first_not_finite(TensorView(whole.data(), DType::i32, {1})));
}

}  // namespace
}  // namespace yard::verification
