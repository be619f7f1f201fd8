// SPDX-License-Identifier: Apache-2.0
// Tests products of pairs of bf16, and attention by them, against sums in double.
#include "pairs.h"

#include <cstring>
#include <random>

#include "testing_attention.h"

namespace yard::simd {
namespace {

using namespace testing;

// Tries every PairProducts of this machine, with different orders, sizes and alignments.
TEST(AttentionPairs, AreMultiplied) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto pair = [&] {
    return uint32_t{narrow<BF16>(normal(random)).bits} | uint32_t{narrow<BF16>(normal(random)).bits}
                                                             << 16;
  };
  const auto product = [](uint32_t a, uint32_t b) {
    const auto element = [](uint32_t bits) {
      return double{widen(BF16{static_cast<uint16_t>(bits)})};
    };
    return element(a) * element(b) + element(a >> 16) * element(b >> 16);
  };
  for (const PairProducts* const* p = all_pair_products(); *p != nullptr; ++p)
    for (const size_t rows : {1u, 3u, 16u, 32u, 37u, 128u})
      for (const size_t count : {1u, 16u, 17u, 64u})
        for (const size_t columns : {16u, 48u, 64u})
          for (const bool by_column : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << (*p)->name << ' ' << rows << ' ' << count << ' ' << columns);
            constexpr size_t kStride = 80;
            std::vector<uint32_t> a(rows * count), b(count * kStride);
            for (uint32_t& v : a) v = pair();
            for (uint32_t& v : b) v = pair();
            std::vector<char> bytes(a.size() * 4 + 1);
            std::memcpy(bytes.data() + 1, a.data(), a.size() * 4);
            const auto row = static_cast<int64_t>(by_column ? 1 : count);
            const auto column = static_cast<int64_t>(by_column ? rows : 1);
            std::vector<float> products(rows * kStride, 7.0f), sums = products;
            PairSums s{{bytes.data() + 1, 4 * row, 4 * column},
                       rows,
                       count,
                       b.data(),
                       products.data(),
                       kStride,
                       columns};
            if ((*p)->begin != nullptr) (*p)->begin();
            (*p)->multiply(s, 0.5f);
            s.to = sums.data();
            (*p)->add(s);
            if ((*p)->end != nullptr) (*p)->end();
            for (size_t r = 0; r < rows; ++r)
              for (size_t c = 0; c < kStride; ++c) {
                double expected = 0;
                for (size_t t = 0; t < count; ++t)
                  expected +=
                      product(a[r * static_cast<size_t>(row) + t * static_cast<size_t>(column)],
                              b[t * kStride + c]);
                const size_t at = r * kStride + c;
                ASSERT_NEAR(products[at], c < columns ? expected / 2 : 7, 1e-4);
                ASSERT_NEAR(sums[at], c < columns ? expected + 7 : 7, 1e-4);
              }
          }
}

TEST(AttentionPairs, SquaresAreTurnedOver) {
  for (const PairProducts* const* p = all_pair_products(); *p != nullptr; ++p) {
    constexpr size_t kRow = 20, kColumn = 33;
    std::vector<uint32_t> from(16 * kRow), to(16 * kColumn, 7);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint32_t>(i) + 100;
    (*p)->turn(reinterpret_cast<const char*>(from.data()), kRow * 4,
               reinterpret_cast<char*>(to.data()), kColumn * 4);
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < kColumn; ++j)
        ASSERT_EQ(to[i * kColumn + j], j < 16 ? from[j * kRow + i] : 7u);
  }
}

TEST(AttentionPairs, AgreeWithTheDefinition) {
  for (const Sizes s : {Sizes{1, 1, 1, 1, 1, 2}, Sizes{2, 3, 5, 4, 2, 6}, Sizes{1, 70, 70, 2, 1, 8},
                        Sizes{1, 4, 71, 3, 3, 34}, Sizes{1, 5, 40, 1, 1, 256},
                        Sizes{1, 90, 130, 2, 1, 128}, Sizes{1, 64, 64, 1, 1, 32}})
    for (const bool padded : {false, true})
      for (const Kind kind : kKinds) {
        Sequences call(YARD_BF16, s, padded);
        call.window = 6, call.pairs = true;
        call.check(kind);
      }
}

// Keys that many queries read are copied in blocks of 64.
TEST(AttentionPairs, AgreeWithTheDefinitionForManyQueries) {
  for (const Sizes s : {Sizes{1, 130, 130, 2, 1, 64}, Sizes{2, 65, 200, 2, 2, 10},
                        Sizes{1, 70, 129, 1, 1, 256}, Sizes{1, 33, 97, 4, 2, 34}})
    for (const bool padded : {false, true})
      for (const int64_t window : {1, 50, 100}) {
        Sequences call(YARD_BF16, s, padded);
        TestTensor lengths(YARD_I32, {s.batch});
        lengths.set(std::vector<double>(static_cast<size_t>(s.batch),
                                        static_cast<double>(std::min(window, s.kv_seq))));
        call.window = window, call.pairs = true, call.lengths = &lengths;
        for (const Kind kind : kKinds) call.check(kind);
      }
}

TEST(AttentionPairs, CopyOnlyKeysThatManyQueriesRead) {
  const auto bytes = [](const Sizes& s) {
    const Sequences call(YARD_BF16, s);
    const Tensor none(nullptr);
    return attention_workspace(Tensor(call.out.c()), Tensor(call.query.c()), Tensor(call.key.c()),
                               Tensor(call.value.c()), none, 0);
  };
  EXPECT_EQ(bytes({1, 64, 500, 2, 2, 32}), 0);
  EXPECT_GE(bytes({1, 65, 500, 2, 2, 32}), 2 * 500 * 2 * 32 * 2);
  EXPECT_GT(bytes({1, 40, 500, 2, 1, 32}), 0);
}

TEST(AttentionPairs, TakeMasksSinksLengthsAndScales) {
  const Sizes s{2, 40, 45, 4, 2, 12};
  Sequences call(YARD_BF16, s, true);
  TestTensor mask(YARD_F32, {s.batch, s.heads, s.seq, s.kv_seq}), sinks(YARD_F32, {s.heads});
  fill(mask, Contents::kNormal, 4), fill(sinks, Contents::kNormal, 5);
  TestTensor lengths(YARD_I64, {s.batch}, {0.0, 37.0});
  call.mask = &mask, call.sinks = &sinks, call.lengths = &lengths;
  call.window = 11, call.scale = 0.5, call.pairs = true;
  for (const Kind kind : kKinds) call.check(kind);
}

TEST(AttentionPairs, KeepSpecialValuesWhereTheyAreSeen) {
  for (const int64_t dim : {10, 64})
    for (const double special : {std::nan(""), HUGE_VAL}) {
      Sequences call(YARD_BF16, {1, dim == 10 ? 40 : 80, dim == 10 ? 40 : 80, 1, 1, dim});
      call.pairs = true;
      std::vector<double> values = call.value.values(), keys = call.key.values();
      values[static_cast<size_t>(20 * dim + dim - 1)] = special;
      call.value.set(values);
      for (const Kind kind : {Kind::kFull, Kind::kCausal}) call.check(kind);
      keys[static_cast<size_t>(30 * dim)] = special;
      call.key.set(keys);
      for (const Kind kind : {Kind::kFull, Kind::kCausal}) call.check(kind);
    }
}

}  // namespace
}  // namespace yard::simd
