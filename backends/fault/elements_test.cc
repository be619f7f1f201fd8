// SPDX-License-Identifier: Apache-2.0
// Tests writing into outputs: every dtype, strides and empty lists.
#include "elements.h"

#include <cmath>
#include <numeric>

#include "testing.h"

namespace yard::fault::testing {
namespace {

constexpr yard_dtype_t kF16{2, 16, 1}, kBF16{4, 16, 1};

template <class T>
std::vector<T> filled(yard_dtype_t dtype, double value, double offset) {
  Tensor<T> t(dtype, {2}, {T{}, T{}});
  fill(plugin::Tensor(&t.t), value);
  add(plugin::Tensor(&t.t), offset);
  return t.data;
}

TEST(Elements, FillAndAddInEveryDtype) {
  EXPECT_EQ(filled<float>(kF32, 42, 1), (std::vector<float>(2, 43)));
  EXPECT_EQ(filled<double>({2, 64, 1}, 42, -0.5), (std::vector<double>(2, 41.5)));
  EXPECT_EQ(filled<uint16_t>(kF16, 42, 0), (std::vector<uint16_t>(2, 0x5140)));
  EXPECT_EQ(filled<uint16_t>(kBF16, 42, 0), (std::vector<uint16_t>(2, 0x4228)));
  EXPECT_EQ(filled<uint16_t>(kF16, -1, -0.5), (std::vector<uint16_t>(2, 0xbe00)));
  EXPECT_EQ(filled<int8_t>({0, 8, 1}, 42, -50), (std::vector<int8_t>(2, -8)));
  EXPECT_EQ(filled<int16_t>({0, 16, 1}, 42, 1), (std::vector<int16_t>(2, 43)));
  EXPECT_EQ(filled<int32_t>({0, 32, 1}, 42, 1), (std::vector<int32_t>(2, 43)));
  EXPECT_EQ(filled<int64_t>({0, 64, 1}, 42, 1), (std::vector<int64_t>(2, 43)));
  EXPECT_EQ(filled<uint8_t>({1, 8, 1}, 42, 1), (std::vector<uint8_t>(2, 43)));
  EXPECT_EQ(filled<uint16_t>({1, 16, 1}, 42, 1), (std::vector<uint16_t>(2, 43)));
  EXPECT_EQ(filled<uint32_t>({1, 32, 1}, 42, 1), (std::vector<uint32_t>(2, 43)));
  EXPECT_EQ(filled<uint64_t>({1, 64, 1}, 42, 1), (std::vector<uint64_t>(2, 43)));
  EXPECT_EQ(filled<uint8_t>({6, 8, 1}, 42, 0), (std::vector<uint8_t>(2, 1)));
}

TEST(Elements, AddingNothingKeepsEvery16BitNumber) {
  std::vector<uint16_t> all(0x10000);
  std::iota(all.begin(), all.end(), uint16_t{0});
  for (const yard_dtype_t dtype : {kF16, kBF16}) {
    Tensor<uint16_t> t(dtype, {0x10000}, all);
    add(plugin::Tensor(&t.t), -0.0);  // keeps the sign of zeros
    const unsigned infinity = dtype.code == 2 ? 0x7c00 : 0x7f80;
    for (unsigned i = 0; i < all.size(); ++i) {
      if ((i & 0x7fff) <= infinity)
        ASSERT_EQ(t.data[i], i);
      else
        ASSERT_GT(t.data[i] & 0x7fff, infinity) << i;
    }
  }
}

TEST(Elements, F16RoundsAndOverflows) {
  EXPECT_EQ(filled<uint16_t>(kF16, 65519, 0)[0], 0x7bff);
  EXPECT_EQ(filled<uint16_t>(kF16, -65520, 0)[0], 0xfc00);
  EXPECT_EQ(filled<uint16_t>(kF16, 2047.75, 0)[0], 0x6800);  // carries into the exponent
  EXPECT_EQ(filled<uint16_t>(kF16, std::ldexp(1.5, -24), 0)[0], 2);
}

TEST(Elements, FollowsStrides) {
  Tensor<float> t(kF32, {2, 2}, Floats(8, 0));
  const int64_t strides[] = {-4, 2};
  t.t.strides = strides;
  t.t.byte_offset = 4 * sizeof(float);
  fill(plugin::Tensor(&t.t), 1);
  EXPECT_EQ(t.data, (Floats{1, 0, 1, 0, 1, 0, 1, 0}));
  scribble_half(plugin::Tensor(&t.t), 0);  // the first row lies behind the second
  EXPECT_EQ(t.data, (Floats{1, 0, 1, 0, 0, 0, 0, 0}));
}

TEST(Elements, EmptyAndScalar) {
  Tensor<float> empty(kF32, {3, 0}, {}), scalar(kF32, {}, {0});
  fill(plugin::Tensor(&empty.t), 1);
  add(plugin::Tensor(&empty.t), 1);
  scribble_half(plugin::Tensor(&empty.t), 1);
  fill(plugin::Tensor(&scalar.t), 3);
  EXPECT_EQ(scalar.data[0], 3);
}

}  // namespace
}  // namespace yard::fault::testing
