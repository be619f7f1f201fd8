// SPDX-License-Identifier: Apache-2.0
// Tests every bit of the facts word of plugin.h, on every kind of layout.
#include <gtest/gtest.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

#include <vector>

#include "op/facts.h"

namespace yard {
namespace {

alignas(64) char memory[4096];

uint64_t facts_of(std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                  DType dtype = DType::f32, void* data = memory, uint64_t offset = 0,
                  Device device = {}) {
  yard_tensor_t t{};
  t.data = data;
  t.device = {device.type, device.index};
  t.ndim = static_cast<int32_t>(shape.size());
  t.dtype = to_dlpack(dtype);
  t.shape = shape.data();
  t.strides = strides.empty() ? nullptr : strides.data();
  t.byte_offset = offset;
  return op::facts_of(&t);
}

uint64_t span(uint64_t facts) { return facts >> YARD_FACTS_SPAN_SHIFT; }
uint64_t rank(uint64_t facts) { return (facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT; }
uint64_t align(uint64_t facts) {
  return 1ull << ((facts & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT);
}
constexpr uint64_t kLayout = YARD_FACTS_COMPACT | YARD_FACTS_INNER_DENSE | YARD_FACTS_PLAIN;

TEST(Facts, Compact) {
  const uint64_t f = facts_of({8, 16});
  EXPECT_EQ(f & kLayout, kLayout);
  EXPECT_EQ(f & YARD_FACTS_DTYPE, static_cast<uint64_t>(YARD_F32));
  EXPECT_EQ(rank(f), 2u);
  EXPECT_EQ(span(f), 8u);
  EXPECT_EQ(f, facts_of({8, 16}, {16, 1})) << "strides that say the same change nothing";
  EXPECT_EQ(f, facts_of({8, 16}, {16, 1}, DType::f32, memory, 64));
}

TEST(Facts, DeviceAndDType) {
  const uint64_t f = facts_of({4}, {}, DType::bf16, memory, 0, {2, 7});
  EXPECT_EQ(f & YARD_FACTS_DTYPE, static_cast<uint64_t>(YARD_BF16));
  EXPECT_EQ((f & YARD_FACTS_DEVICE) >> 6, 2u | (7u << 5));
}

TEST(Facts, RowsApart) {
  const uint64_t f = facts_of({4, 16}, {32, 1});
  EXPECT_EQ(f & kLayout, YARD_FACTS_INNER_DENSE | YARD_FACTS_PLAIN);
  EXPECT_EQ(span(f), (3u * 32 + 16) * 4 / 64);
}

TEST(Facts, Transposed) {
  const uint64_t f = facts_of({4, 8}, {1, 4});
  EXPECT_EQ(f & kLayout, 0u);
  EXPECT_EQ(span(f), YARD_FACTS_SPAN_UNKNOWN) << "the quick test knows only nested strides";
}

TEST(Facts, Broadcast) {
  const uint64_t f = facts_of({4, 8}, {0, 1});
  EXPECT_EQ(f & kLayout, YARD_FACTS_INNER_DENSE);
  EXPECT_EQ(span(f), YARD_FACTS_SPAN_UNKNOWN);
}

TEST(Facts, NegativeStrides) {
  const uint64_t f = facts_of({4, 8}, {-8, 1});
  EXPECT_EQ(f & kLayout, YARD_FACTS_INNER_DENSE);
  EXPECT_EQ(span(f), YARD_FACTS_SPAN_UNKNOWN);
}

TEST(Facts, EmptyIsCompactAndSpansNothing) {
  for (const auto& strides : {std::vector<int64_t>{}, {7, 7, 7}, {0, -3, 1}}) {
    const uint64_t f = facts_of({4, 0, 8}, strides);
    EXPECT_EQ(f & kLayout, kLayout);
    EXPECT_EQ(span(f), 0u);
  }
}

TEST(Facts, StridesOfSizeOneSayNothing) {
  EXPECT_EQ(facts_of({1, 16}, {12345, 1}), facts_of({1, 16}));
  EXPECT_EQ(facts_of({16, 1}, {1, -9}), facts_of({16, 1}));
}

TEST(Facts, RankZero) {
  const uint64_t f = facts_of({});
  EXPECT_EQ(f & kLayout, kLayout);
  EXPECT_EQ(rank(f), 0u);
  EXPECT_EQ(span(f), 1u);
}

TEST(Facts, Alignment) {
  for (const uint64_t offset : {1, 2, 4, 8, 16, 32, 64})
    EXPECT_EQ(align(facts_of({4}, {}, DType::i8, memory, offset)), offset);
  EXPECT_EQ(align(facts_of({4}, {}, DType::i8, memory, 128)), 64u) << "facts know no more than 64";
  EXPECT_EQ(align(facts_of({4}, {}, DType::f32, nullptr)), 64u);
}

TEST(Facts, SpanRoundsUpAndSaturates) {
  EXPECT_EQ(span(facts_of({1})), 1u);
  EXPECT_EQ(span(facts_of({17})), 2u);
  EXPECT_EQ(span(facts_of({128}, {}, DType::i4)), 2u) << "small elements count as a byte";
  EXPECT_EQ(span(facts_of({(1ll << 38) - 64}, {}, DType::i8)), YARD_FACTS_SPAN_UNKNOWN);
}

TEST(Facts, WhatCannotBeRead) {
  EXPECT_EQ(facts_of({4}, {}, DType::invalid), 0u);
  EXPECT_EQ(facts_of({4, -1}), 0u);
  EXPECT_EQ(facts_of({1, 1, 1, 1, 1, 1, 1, 1, 1}), 0u);
  EXPECT_EQ(facts_of({1ll << 40, 1ll << 40}), 0u) << "more elements than a number holds";
  EXPECT_EQ(facts_of({2, 2}, {INT64_MAX, 1}), 0u) << "reaches further than a number holds";
  EXPECT_EQ(facts_of({4}, {}, DType::f32, memory, 0, {0, 0}), 0u);
  EXPECT_EQ(facts_of({4}, {}, DType::f32, memory, 0, {32, 0}), 0u);
  EXPECT_EQ(facts_of({4}, {}, DType::f32, memory, 0, {1, 256}), 0u);
  EXPECT_EQ(facts_of({4}, {}, DType::f32, memory, 0, {1, -1}), 0u);
  yard_tensor_t t{};
  t.device = {1, 0};
  t.dtype = to_dlpack(DType::f32);
  t.ndim = 1;
  EXPECT_EQ(op::facts_of(&t), 0u) << "no shape";
  t.ndim = -1;
  EXPECT_EQ(op::facts_of(&t), 0u);
}

TEST(Facts, RankEightIsTheLimit) { EXPECT_EQ(rank(facts_of({1, 2, 1, 2, 1, 2, 1, 2})), 8u); }

}  // namespace
}  // namespace yard
