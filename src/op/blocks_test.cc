// SPDX-License-Identifier: Apache-2.0
// Tests block-quantised dtypes: which tensors can be read, and where their memory lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

#include <vector>

#include "op/facts.h"
#include "op/overlap.h"
#include "op/testing.h"

namespace yard::op {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<char>& block_memory() {
  static std::vector<char> bytes(1 << 16);
  return bytes;
}
TensorView blocks(DType t, Sizes shape, Sizes strides = {}, size_t at = 0) {
  return TensorView(block_memory().data() + at, t, shape, strides);
}
TEST(Blocks, HaveTheSizesOfTheirFormat) {
  for (const auto& [dtype, elements, bytes] : {std::tuple{DType::q8_0, 32, 34},
                                               {DType::q4_0, 32, 18},
                                               {DType::q4_1, 32, 20},
                                               {DType::q4_k, 256, 144},
                                               {DType::q6_k, 256, 210}}) {
    EXPECT_EQ(block_elements(dtype), elements) << to_string(dtype);
    EXPECT_EQ(bits(dtype), 8 * bytes) << to_string(dtype);
  }
  EXPECT_EQ(block_elements(DType::bf16), 1);
}

TEST(Blocks, AreReadOnlyWhole) {
  EXPECT_TRUE(blocks(DType::q4_1, {3, 64}).valid());
  EXPECT_TRUE(blocks(DType::q4_1, {3, 64}, {96, 1}).valid());  // rows that are padded
  EXPECT_TRUE(blocks(DType::q4_1, {0, 64}).valid());
  EXPECT_TRUE(blocks(DType::q4_1, {3, 0}).valid());
  EXPECT_TRUE(blocks(DType::q4_k, {2, 3, 256}).valid());
  EXPECT_FALSE(blocks(DType::q4_1, {3, 48}).valid());           // half a block
  EXPECT_FALSE(blocks(DType::q4_k, {3, 64}).valid());           // a quarter
  EXPECT_FALSE(blocks(DType::q4_1, {3, 64}, {80, 1}).valid());  // rows that begin inside of one
  EXPECT_FALSE(blocks(DType::q4_1, {3, 64}, {1, 32}).valid());
  EXPECT_FALSE(blocks(DType::q4_1, {}).valid());
  for (const yard_dtype_t other : {yard_dtype_t{0x83, 18, 32}, yard_dtype_t{0x83, 20, 1},
                                   yard_dtype_t{0x86, 20, 32}, yard_dtype_t{0x80, 20, 32}})
    EXPECT_EQ(yard_dtype_index(other), 0u);
}

TEST(Blocks, SpanTheirBytes) {
  // Two rows of two 20-byte blocks, with 3 blocks from row to row, span 5 blocks.
  const TensorView v = blocks(DType::q4_1, {2, 64}, {96, 1});
  EXPECT_EQ(facts_of(&v.c()) >> YARD_FACTS_SPAN_SHIFT, (100 + 63) / 64u);
  const TensorView bytes = ByteTensor::bytes_of(v.c());
  EXPECT_EQ(bytes.dtype(), DType::u8);
  EXPECT_THAT(bytes.shape(), ElementsAre(2, 40));
  EXPECT_THAT(bytes.strides(), ElementsAre(60, 1));
}

TEST(Blocks, OverlapWhereTheirBytesDo) {
  const TensorView rows = blocks(DType::q4_1, {2, 32}, {64, 1}, 1000);  // 20 of 40 bytes each
  const yard_tensor_t& v = with_facts(rows);
  const auto with = [&](int64_t at, int64_t n) {
    const TensorView bytes(block_memory().data() + at, DType::u8, {n});
    return overlap(v, with_facts(bytes));
  };
  EXPECT_EQ(with(980, 20), Overlap::kNone);
  EXPECT_EQ(with(980, 21), Overlap::kPartial);
  EXPECT_EQ(with(1020, 20), Overlap::kNone);  // between its rows
  EXPECT_EQ(with(1020, 21), Overlap::kPartial);
  EXPECT_EQ(with(1059, 1), Overlap::kPartial);
  EXPECT_EQ(with(1060, 40), Overlap::kNone);
  EXPECT_EQ(overlap(v, v), Overlap::kSame);
}

TEST(Blocks, AreNamedInSchemasAndMessages) {
  const Program program = Program::compile(
                              "linear(out!: T[*rows, n], x: T[*rows, k], weight: W[n, k]) "
                              "where T in {f32}, W in {f32, q4_1}")
                              .value();
  Values values;
  const auto explain = [&](DType dtype, int64_t k) {
    const yard_value_t args[] = {values.f32({2, 4}), values.f32({2, k}),
                                 values.tensor(dtype, {4, k})};
    return std::string(program.explain_mismatch(args, 3).message());
  };
  EXPECT_EQ(explain(DType::q4_1, 64), "");
  EXPECT_THAT(explain(DType::q8_0, 64), HasSubstr("{f32, q4_1}"));
  EXPECT_THAT(explain(DType::q4_1, 40),
              HasSubstr("of q4_1 the last dimension is a multiple of 32"));
}

}  // namespace
}  // namespace yard::op
