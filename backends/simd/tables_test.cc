// SPDX-License-Identifier: Apache-2.0
// Tests embedding, dequantize, quantize_int8, add, mul, argmax and topk_softmax against their
// definitions: every dtype, odd widths, strides, special values.
#include "testing_blocks.h"

namespace yard::simd {
namespace {

using testing::BlockTensor;
using testing::kFloats;
using testing::kFormats;
using testing::Strides;
using testing::TestTensor;

yard_call_t plain_call() {
  yard_call_t c{};
  c.size = sizeof c;
  return c;
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

constexpr int64_t kTableWidths[] = {0, 1, 7, 8, 9, 16, 31, 33, 64, 100, 257};

TEST(Embedding, LooksUpRowsOfFloats) {
  yard_call_t call = plain_call();
  for (const uint32_t dtype : kFloats)
    for (const uint32_t from : kFloats)
      for (const int64_t width : kTableWidths)
        for (const uint32_t index : {uint32_t{YARD_I32}, uint32_t{YARD_I64}}) {
          TestTensor table(from, {4, width}, Strides{width + 2, 1}), out(dtype, {2, 3, width});
          TestTensor ids(index, {2, 3}, Strides{1, 2});
          fill(table, testing::Contents::kNan, static_cast<uint32_t>(width));
          ids.set({3, 0, 0, 1, 2, 3});
          ASSERT_EQ(embedding(Call(&call), Tensor(out.c()), Tensor(ids.c()), Tensor(table.c())),
                    YARD_OK);
          for (size_t n = 0; n < out.size(); ++n) {
            const auto row = static_cast<size_t>(ids.at(n / static_cast<size_t>(width)));
            const double v =
                table.at(row * static_cast<size_t>(width) + n % static_cast<size_t>(width));
            ASSERT_TRUE(same_number(out.at(n), reference::testing::round_to(dtype, v)))
                << out.at(n) << " of " << v;
          }
          EXPECT_TRUE(out.gaps_intact());
        }
}

TEST(Embedding, LooksUpRowsOfBlocks) {
  yard_call_t call = plain_call();
  for (const Format format : kFormats) {
    if (format == Format::kI8) continue;
    const int64_t width = 3 * block_elements(format);
    for (const uint32_t dtype : kFloats) {
      const BlockTensor table(format, 5, width, 6, 1);
      TestTensor out(dtype, {3, width}), ids(YARD_I32, {3}, {4.0, 0.0, 2.0});
      ASSERT_EQ(embedding(Call(&call), Tensor(out.c()), Tensor(ids.c()), Tensor(table.c())),
                YARD_OK);
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t i = 0; i < width; ++i) {
          const double v = table.at(static_cast<int64_t>(ids.at(static_cast<size_t>(r))), i);
          const double once = reference::testing::round_to(YARD_F32, v);
          ASSERT_EQ(out.at(static_cast<size_t>(r * width + i)),
                    reference::testing::round_to(dtype, once));
        }
    }
  }
}

TEST(Embedding, RefusesIdsThatAreNotThere) {
  TestTensor table(YARD_F32, {4, 8}), out(YARD_F32, {2, 8});
  for (const double id : {-1.0, 4.0}) {
    TestTensor ids(YARD_I64, {2}, {0.0, id});
    const std::vector<uint8_t> before = out.bytes();
    const testing::Outcome outcome = reference::testing::with_call([&](yard_call_t* call) {
      return embedding(Call(call), Tensor(out.c()), Tensor(ids.c()), Tensor(table.c()));
    });
    EXPECT_EQ(outcome.code, YARD_CALLER);
    EXPECT_NE(outcome.message.find("in row 1"), std::string::npos) << outcome.message;
    EXPECT_EQ(out.bytes(), before);
  }
}

TEST(Dequantize, GivesWhatTheFormatMeans) {
  yard_call_t call = plain_call();
  for (const Format format : kFormats)
    for (const uint32_t dtype : kFloats)
      for (const int64_t blocks : {0, 1, 3, 5}) {
        const int64_t width = blocks * block_elements(format), rows = 3;
        const BlockTensor x(format, rows, width, 8, 2);
        TestTensor out(dtype, {rows, width}, Strides{width + 1, 1}),
            scale(YARD_F32, {rows}, Strides{2});
        scale.fill(1);
        const bool scaled = format == Format::kI8;
        ASSERT_EQ(dequantize(Call(&call), Tensor(out.c()), Tensor(x.c()),
                             Tensor(scaled ? scale.c() : nullptr)),
                  YARD_OK);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < width; ++i) {
            const double v = x.at(r, i) * (scaled ? scale.at(static_cast<size_t>(r)) : 1);
            ASSERT_EQ(
                out.at(static_cast<size_t>(r * width + i)),
                reference::testing::round_to(dtype, reference::testing::round_to(YARD_F32, v)));
          }
        EXPECT_TRUE(out.gaps_intact());
      }
}

TEST(Elementwise, AddsAndMultiplies) {
  yard_call_t call = plain_call();
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : kTableWidths)
      for (const testing::Contents contents : testing::kContents) {
        TestTensor a(dtype, {2, 3, width}, Strides{-50 - 3 * width, width, 1});
        TestTensor b(dtype, {2, 3, width}, Strides{0, 0, 1}), out(dtype, {2, 3, width});
        fill(a, contents, 1), fill(b, contents, 2);
        const std::vector<double> x = a.values(), y = b.values();
        const auto check = [&](auto* op, auto combine) {
          ASSERT_EQ(op(Call(&call), Tensor(out.c()), Tensor(a.c()), Tensor(b.c())), YARD_OK);
          for (size_t n = 0; n < out.size(); ++n)
            ASSERT_TRUE(
                same_number(out.at(n), reference::testing::round_to(dtype, combine(x[n], y[n]))))
                << x[n] << " and " << y[n] << ": " << out.at(n);
        };
        check(add, [](double p, double q) { return p + q; });
        check(mul, [](double p, double q) { return p * q; });
      }
}

TEST(Elementwise, WorksInPlace) {
  yard_call_t call = plain_call();
  TestTensor a(YARD_BF16, {3, 21}), b(YARD_BF16, {3, 21});
  a.fill(1), b.fill(2);
  const std::vector<double> x = a.values(), y = b.values();
  ASSERT_EQ(add(Call(&call), Tensor(a.c()), Tensor(a.c()), Tensor(b.c())), YARD_OK);
  ASSERT_EQ(mul(Call(&call), Tensor(b.c()), Tensor(b.c()), Tensor(b.c())), YARD_OK);
  for (size_t n = 0; n < x.size(); ++n) {
    EXPECT_EQ(a.at(n), reference::testing::round_to(YARD_BF16, x[n] + y[n]));
    EXPECT_EQ(b.at(n), reference::testing::round_to(YARD_BF16, y[n] * y[n]));
  }
}

// Returns the lowest index of the largest element. A NaN is larger than all numbers.
int64_t expected_argmax(const std::vector<double>& v) {
  size_t best = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(v[i])) return static_cast<int64_t>(i);
    if (v[i] > v[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

TEST(Argmax, FindsTheFirstLargest) {
  yard_call_t call = plain_call();
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : {1, 2, 7, 8, 9, 33, 2048, 2049, 4100})
      for (const testing::Contents contents : testing::kContents)
        for (const uint32_t index : {uint32_t{YARD_I32}, uint32_t{YARD_I64}}) {
          TestTensor x(dtype, {3, width}, Strides{width + 5, 1}), out(index, {3}, Strides{2});
          fill(x, contents, static_cast<uint32_t>(width));
          ASSERT_EQ(argmax(Call(&call), Tensor(out.c()), Tensor(x.c())), YARD_OK);
          const std::vector<double> v = x.values();
          for (int64_t r = 0; r < 3; ++r)
            ASSERT_EQ(static_cast<int64_t>(out.at(static_cast<size_t>(r))),
                      expected_argmax({v.begin() + r * width, v.begin() + (r + 1) * width}));
        }
}

TEST(Argmax, TakesRowsOfMinusInfinityAndNoRows) {
  yard_call_t call = plain_call();
  TestTensor x(YARD_F32, {40}), out(YARD_I32, {});
  x.set(std::vector<double>(40, -HUGE_VAL));
  ASSERT_EQ(argmax(Call(&call), Tensor(out.c()), Tensor(x.c())), YARD_OK);
  EXPECT_EQ(out.at(0), 0);
  TestTensor none(YARD_F32, {0, 4}), nothing(YARD_I32, {0}), empty(YARD_F32, {1, 0}),
      one(YARD_I32, {1});
  EXPECT_EQ(argmax(Call(&call), Tensor(nothing.c()), Tensor(none.c())), YARD_OK);
  EXPECT_EQ(argmax(Call(&call), Tensor(one.c()), Tensor(empty.c())), YARD_CALLER);
}

TEST(TopkSoftmax, AgreesWithTheReference) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t experts : {1, 2, 7, 8, 33, 1024})
      for (const testing::Contents contents : testing::kContents)
        for (const bool renormalize : {false, true}) {
          const int64_t k = std::min<int64_t>(experts, 5);
          TestTensor x(dtype, {3, experts}, Strides{experts + 1, 1});
          fill(x, contents, static_cast<uint32_t>(experts));
          TestTensor weights(YARD_F32, {3, k}), expected(YARD_F32, {3, k});
          TestTensor ids(YARD_I32, {3, k}, Strides{k + 2, 1}), expected_ids(YARD_I32, {3, k});
          ASSERT_EQ(testing::run("topk_softmax", weights, ids, x, renormalize).code, YARD_OK);
          ASSERT_EQ(
              reference::testing::run("topk_softmax", expected, expected_ids, x, renormalize).code,
              YARD_OK);
          ASSERT_EQ(ids.values(), expected_ids.values());
          testing::expect_near("topk_softmax", weights, expected);
        }
}

TEST(TopkSoftmax, TakesTheFirstOfEqualOnesAndNoRows) {
  TestTensor x(YARD_F32, {1, 4}, {1.0, -0.0, 1.0, 0.0}), weights(YARD_F32, {1, 4}),
      ids(YARD_I32, {1, 4});
  ASSERT_EQ(testing::run("topk_softmax", weights, ids, x, false).code, YARD_OK);
  EXPECT_EQ(ids.values(), (std::vector<double>{0, 2, 1, 3}));
  TestTensor none(YARD_F32, {0, 4}), no_weights(YARD_F32, {0, 2}), no_ids(YARD_I32, {0, 2});
  EXPECT_EQ(testing::run("topk_softmax", no_weights, no_ids, none, false).code, YARD_OK);
}

TEST(QuantizeInt8, AgreesWithTheReference) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : kTableWidths)
      for (const testing::Contents contents : testing::kContents) {
        TestTensor x(dtype, {4, width}, Strides{width + 3, 1});
        fill(x, contents, static_cast<uint32_t>(width + 1));
        TestTensor q(YARD_I8, {4, width}, Strides{width + 1, 1}), scale(YARD_F32, {4}, Strides{2});
        TestTensor expected(YARD_I8, {4, width}), expected_scale(YARD_F32, {4});
        ASSERT_EQ(testing::run("quantize_int8", q, scale, x).code, YARD_OK);
        ASSERT_EQ(reference::testing::run("quantize_int8", expected, expected_scale, x).code,
                  YARD_OK);
        for (size_t r = 0; r < 4; ++r)
          ASSERT_TRUE(same_number(scale.at(r), expected_scale.at(r))) << scale.at(r);
        for (size_t n = 0; n < q.size(); ++n) ASSERT_NEAR(q.at(n), expected.at(n), 1);
        EXPECT_TRUE(q.gaps_intact() && scale.gaps_intact());
      }
}

}  // namespace
}  // namespace yard::simd
