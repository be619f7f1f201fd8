// SPDX-License-Identifier: Apache-2.0
// Tests embedding, quantize_int8 and dequantize: strides, invalid ids, rounding, special values.
#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;

class Tables : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Tables, ::testing::ValuesIn(kFloats));

TEST_P(Tables, EmbeddingCopiesRows) {
  for (const uint32_t type : kFloats)
    for (const uint32_t index : {YARD_I32, YARD_I64}) {
      TestTensor table(type, {4, 3}, Strides{-5, 1}), ids(index, {2, 2}, Strides{1, 3});
      TestTensor out(GetParam(), {2, 2, 3}, Strides{10, 4, 1});
      table.fill(1), ids.set({3, 0, 2, 3});
      ASSERT_EQ(run("embedding", out, ids, table).code, YARD_OK);
      Vector expected;
      for (const size_t row : {3, 0, 2, 3})
        for (size_t i = 0; i < 3; ++i) expected.push_back(table.at(row * 3 + i));
      expect_rounded(out, expected);
      EXPECT_TRUE(out.gaps_intact());
    }
}

TEST(Tables, EmbeddingRoundsAndKeepsSpecialValues) {
  TestTensor table(YARD_F32, {1, 4}, {kNan, -kInf, 1 + 0x1p-8 + 0x1p-20, 1e30});
  TestTensor ids(YARD_I32, {1}, {0}), out(YARD_BF16, {1, 4}), half(YARD_F16, {1, 4});
  ASSERT_EQ(run("embedding", out, ids, table).code, YARD_OK);
  expect_rounded(out, table.values());
  ASSERT_EQ(run("embedding", half, ids, table).code, YARD_OK);
  EXPECT_EQ(half.at(3), kInf);
}

TEST(Tables, InvalidIdsAreRefusedBeforeAnythingIsWritten) {
  TestTensor table(YARD_F32, {4, 3}), ids(YARD_I64, {2, 2}, {0, 1, 4, 9}), out(YARD_F32, {2, 2, 3});
  table.fill(1), out.fill(2);
  const auto before = out.bytes();
  expect_caller_error(run("embedding", out, ids, table), "which is 4, got 4 in row 2");
  ids.set({0, 0, 0, -1});
  expect_caller_error(run("embedding", out, ids, table), "got -1 in row 3");
  EXPECT_EQ(out.bytes(), before);
}

TEST_P(Tables, EmptyTensors) {
  TestTensor table(GetParam(), {0, 3}), ids(YARD_I32, {0}), out(GetParam(), {0, 3});
  EXPECT_EQ(run("embedding", out, ids, table).code, YARD_OK);
  TestTensor q(YARD_I8, {2, 0}), scale(YARD_F32, {2}), x(GetParam(), {2, 0});
  EXPECT_EQ(run("quantize_int8", q, scale, x).code, YARD_OK);
  EXPECT_EQ(scale.values(), (Vector{0, 0}));
  EXPECT_EQ(run("dequantize", x, q, scale).code, YARD_OK);
}

TEST_P(Tables, QuantizeRoundsHalfToEven) {
  // The largest element is 127 steps, so the step is exactly 0.5.
  TestTensor x(GetParam(), {2, 5}, {63.5, 0.25, 0.75, -0.25, -1.25, 0, 0, 0, 0, 0});
  TestTensor q(YARD_I8, {2, 5}, Strides{-7, 1}), scale(YARD_F32, {2}, Strides{2});
  ASSERT_EQ(run("quantize_int8", q, scale, x).code, YARD_OK);
  EXPECT_EQ(q.values(), (Vector{127, 0, 2, 0, -2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(scale.values(), (Vector{0.5, 0}));
  EXPECT_TRUE(q.gaps_intact() && scale.gaps_intact());
}

TEST_P(Tables, QuantizeAgainstTheFormula) {
  TestTensor x(GetParam(), {3, 2, 7}, Strides{1, 3, 6}), q(YARD_I8, {3, 2, 7});
  TestTensor scale(YARD_F32, {3, 2});
  x.fill(5);
  ASSERT_EQ(run("quantize_int8", q, scale, x).code, YARD_OK);
  for (size_t row = 0; row < 6; ++row) {
    double largest = 0;
    for (size_t i = 0; i < 7; ++i) largest = std::max(largest, std::abs(x.at(row * 7 + i)));
    EXPECT_EQ(scale.at(row), static_cast<float>(largest / 127));
    for (size_t i = 0; i < 7; ++i) {
      EXPECT_NEAR(q.at(row * 7 + i) * scale.at(row), x.at(row * 7 + i), scale.at(row) * 0.5001);
      EXPECT_LE(std::abs(q.at(row * 7 + i)), 127);
    }
  }
}

TEST_P(Tables, QuantizeSpecialValues) {
  TestTensor x(GetParam(), {3, 3}, {kNan, 1, kInf, -kInf, 1, 2, 1, 1, -1}), q(YARD_I8, {3, 3});
  TestTensor scale(YARD_F32, {3}), back(GetParam(), {3, 3});
  ASSERT_EQ(run("quantize_int8", q, scale, x).code, YARD_OK);
  EXPECT_EQ(q.values(), (Vector{0, 0, 0, 0, 0, 0, 127, 127, -127}));
  expect_rounded(scale, {kNan, kInf, 1.0 / 127});
  ASSERT_EQ(run("dequantize", back, q, scale).code, YARD_OK);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(back.at(i)));
}

TEST(Tables, QuantizeWhatIsTooSmallForAScale) {
  TestTensor x(YARD_F32, {1, 2}, {0x1p-149, -0x1p-149}), q(YARD_I8, {1, 2}), scale(YARD_F32, {1});
  ASSERT_EQ(run("quantize_int8", q, scale, x).code, YARD_OK);
  EXPECT_EQ(q.values(), (Vector{0, 0}));
  EXPECT_EQ(scale.at(0), 0);
}

TEST_P(Tables, DequantizeMultiplies) {
  TestTensor q(YARD_I8, {2, 2, 3}, Strides{6, -3, 1}), scale(YARD_F32, {2, 2}, {0.5, 3, -0.1, 0});
  TestTensor out(GetParam(), {2, 2, 3});
  q.set({1, 2, -128, 127, 0, -1, 100, 7, -7, 5, 5, 5});
  ASSERT_EQ(run("dequantize", out, q, scale).code, YARD_OK);
  Vector expected;
  for (size_t i = 0; i < 12; ++i) expected.push_back(q.at(i) * scale.at(i / 3));
  expect_rounded(out, expected);
}

TEST(Tables, UnknownDtypesAreDeclined) {
  TestTensor x(YARD_I32, {1, 2}), out(YARD_F32, {1, 2}), ids(YARD_I32, {1}, {0});
  EXPECT_EQ(run("dequantize", out, x, nullptr).code, YARD_DECLINED);
  EXPECT_EQ(run("embedding", out, ids, x).code, YARD_DECLINED);
}

}  // namespace
}  // namespace yard::reference::testing
