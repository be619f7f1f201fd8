// SPDX-License-Identifier: Apache-2.0
// Tests the attention kernels against sums in double: ranges of keys, groups of heads, masks,
// sinks, strides, special values, pieces.
#include "testing_attention.h"

namespace yard::simd {
namespace {

using namespace testing;

TEST(Attention, AgreesWithTheDefinition) {
  for (const uint32_t dtype : kFloats)
    for (const Sizes s :
         {Sizes{1, 1, 1, 1, 1, 1}, Sizes{2, 3, 5, 4, 2, 7}, Sizes{1, 70, 70, 2, 1, 8},
          Sizes{1, 4, 70, 3, 3, 33}, Sizes{1, 5, 40, 1, 1, 256}})
      for (const Kind kind : kKinds) {
        Sequences call(dtype, s);
        call.window = 6;
        call.check(kind);
      }
}

TEST(Attention, TakesMasksSinksLengthsAndScales) {
  const Sizes s{2, 40, 45, 4, 2, 12};
  for (const uint32_t dtype : kFloats) {
    Sequences call(dtype, s, true);
    TestTensor mask(dtype, {s.batch, s.heads, s.seq, s.kv_seq}), sinks(YARD_F32, {s.heads});
    fill(mask, Contents::kInfinity, 4), fill(sinks, Contents::kNormal, 5);
    std::vector<double> values = mask.values();
    for (double& v : values) v = v == HUGE_VAL ? 0 : v;
    mask.set(values);
    TestTensor lengths(YARD_I64, {s.batch}, {0.0, 37.0});
    call.mask = &mask, call.sinks = &sinks, call.lengths = &lengths;
    call.window = 11, call.scale = 0.5;
    for (const Kind kind : kKinds) call.check(kind);
  }
}

TEST(Attention, AcceptsEmptySizes) {
  for (const Sizes s : {Sizes{0, 3, 4, 2, 1, 8}, Sizes{2, 0, 4, 2, 1, 8}, Sizes{1, 3, 4, 0, 1, 8},
                        Sizes{1, 3, 4, 2, 2, 0}})
    for (const Kind kind : kKinds) {
      Sequences call(YARD_F32, s);
      call.window = 2;
      EXPECT_EQ(call.run(kind), YARD_OK);
    }
  Sequences none(YARD_F32, {1, 3, 0, 2, 1, 8});
  none.check(Kind::kFull), none.check(Kind::kCross);
}

// NaN reaches only the queries that see it, and not through a weight of 0.
TEST(Attention, KeepsSpecialValuesWhereTheyAreSeen) {
  const Sizes s{1, 40, 40, 1, 1, 9};
  for (const double special : {std::nan(""), HUGE_VAL}) {
    Sequences call(YARD_F32, s);
    std::vector<double> values = call.value.values(), keys = call.key.values();
    values[20 * 9 + 2] = special;
    call.value.set(values);
    for (const Kind kind : {Kind::kFull, Kind::kCausal}) call.check(kind);
    keys[30 * 9] = special;
    call.key.set(keys);
    for (const Kind kind : {Kind::kFull, Kind::kCausal}) call.check(kind);
  }
}

TEST(Attention, RefusesInvalidArguments) {
  Sequences call(YARD_F32, {1, 2, 3, 1, 1, 4});
  EXPECT_EQ(call.run(Kind::kWindow), YARD_CALLER);
  TestTensor lengths(YARD_I32, {1}, {4.0});
  call.lengths = &lengths;
  EXPECT_EQ(call.run(Kind::kCross), YARD_CALLER);
}

TEST(Attention, GivesTheSameBitsInPieces) {
  for (const bool pairs : {false, true}) {
    Sequences whole(YARD_BF16, {2, 150, 150, 4, 2, 64}), pieces(YARD_BF16, {2, 150, 150, 4, 2, 64});
    whole.pairs = pieces.pairs = pairs;
    ASSERT_EQ(whole.run(Kind::kCausal), YARD_OK);
    ASSERT_EQ(pieces.run(Kind::kCausal, splitting_host()), YARD_OK);
    EXPECT_TRUE(whole.out.bytes() == pieces.out.bytes());
  }
}

// A call of decode. With a table of blocks, the cache is [capacity / block * batch, block, ...].
struct DecodeCall {
  DecodeCall(uint32_t type, uint32_t cache, Sizes sizes, std::vector<double> length,
             int64_t block_size = 0)
      : s(sizes),
        dtype(type),
        block(block_size),
        lengths_(length),
        out(type, {s.batch, s.heads, s.dim}),
        query(type, {s.batch, s.heads, s.dim}),
        key(cache, cache_shape(), cache_strides()),
        value(cache, cache_shape(), cache_strides()),
        lengths(YARD_I32, {s.batch}),
        table(YARD_I64, {s.batch, blocks()}) {
    fill(query, Contents::kNormal, 1), fill(key, Contents::kNormal, 2);
    fill(value, Contents::kNormal, 3);
    lengths.set(length);
    std::vector<double> entries;
    for (int64_t i = 0; i < s.batch * blocks(); ++i)
      entries.push_back(static_cast<double>(s.batch * blocks() - 1 - i));
    table.set(entries);
  }
  int64_t blocks() const { return block == 0 ? 0 : s.kv_seq / block; }
  std::vector<int64_t> cache_shape() const {
    if (block == 0) return {s.batch, s.kv_seq, s.kv_heads, s.dim};
    return {s.batch * blocks(), block, s.kv_heads, s.dim};
  }
  // Heads come before positions, with gaps.
  Strides cache_strides() const {
    const std::vector<int64_t> shape = cache_shape();
    const int64_t row = s.dim + 5;
    return {row * shape[1] * shape[2], row, row * shape[1], 1};
  }
  size_t place(int64_t b, int64_t j) const {
    if (block == 0) return static_cast<size_t>(b * s.kv_seq + j);
    const double entry = table.at(static_cast<size_t>(b * blocks() + j / block));
    return static_cast<size_t>(static_cast<int64_t>(entry) * block + j % block);
  }

  int32_t run(const yard_host_t* host = nullptr) const {
    yard_call_t c{};
    c.size = sizeof c, c.host = host;
    const Tensor o(out.c()), q(query.c()), k(key.c()), v(value.c()), l(lengths.c()), t(table.c()),
        m(mask != nullptr ? mask->c() : nullptr);
    const int64_t bytes = block != 0 ? attention_paged_decode_workspace(o, q, k, v, t, l, 0.0)
                                     : attention_decode_workspace(o, q, k, v, l, m, 0.0);
    // Allocate exactly this size, so that sanitizers see accesses outside.
    std::vector<char> workspace(static_cast<size_t>(bytes));
    c.workspace = workspace.data(), c.workspace_size = workspace.size();
    if (block != 0) return attention_paged_decode(Call(&c), o, q, k, v, t, l, 0.0);
    return attention_decode(Call(&c), o, q, k, v, l, m, 0.0);
  }

  void check() const {
    SCOPED_TRACE(::testing::Message() << "dtypes " << dtype << ", " << key.dtype() << ", heads "
                                      << s.heads << " of " << s.kv_heads << ", dim " << s.dim);
    ASSERT_EQ(run(), YARD_OK);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h) {
        const int64_t g = h / (s.heads / s.kv_heads);
        const auto row = static_cast<size_t>((b * s.heads + h) * s.dim);
        std::vector<double> q;
        for (size_t d = 0; d < static_cast<size_t>(s.dim); ++d)
          q.push_back(query.at(row + d) / std::sqrt(static_cast<double>(s.dim)));
        const auto of = [&](const TestTensor& t) {
          return [&t, this, b, g](int64_t j, int64_t d) {
            return t.at((place(b, j) * static_cast<size_t>(s.kv_heads) + static_cast<size_t>(g)) *
                            static_cast<size_t>(s.dim) +
                        static_cast<size_t>(d));
          };
        };
        const auto added = [&](int64_t j) {
          return mask == nullptr ? 0
                                 : mask->at(static_cast<size_t>((b * s.heads + h) * s.kv_seq + j));
        };
        const auto length = static_cast<int64_t>(lengths_[static_cast<size_t>(b)]);
        const std::vector<double> expected =
            attend(q, 0, length, of(key), of(value), added, kNothing);
        for (size_t d = 0; d < expected.size(); ++d)
          expect_close(dtype, out.at(row + d), expected[d]);
      }
  }

  Sizes s;
  uint32_t dtype;
  int64_t block;
  std::vector<double> lengths_;
  TestTensor out, query, key, value, lengths, table;
  const TestTensor* mask = nullptr;
};

TEST(Decode, AgreesWithTheDefinition) {
  for (const uint32_t dtype : kFloats)
    for (const uint32_t cache : kFloats)
      for (const Sizes s : {Sizes{1, 1, 70, 1, 1, 5}, Sizes{2, 1, 40, 6, 2, 16},
                            Sizes{1, 1, 33, 9, 1, 100}, Sizes{2, 1, 40, 4, 1, 256}}) {
        const auto last = static_cast<double>(s.kv_seq);
        std::vector<double> lengths{last};
        if (s.batch == 2) lengths = {last - 3, 0};
        DecodeCall(dtype, cache, s, lengths).check();
      }
}

TEST(Decode, ReadsBlocksThroughATable) {
  for (const uint32_t cache : kFloats)
    for (const int64_t block : {1, 4, 16})
      DecodeCall(YARD_F32, cache, {2, 1, 48, 4, 2, 24}, {45.0, 17.0}, block).check();
}

TEST(Decode, TakesMasks) {
  const Sizes s{2, 1, 50, 6, 2, 16};
  for (const uint32_t dtype : kFloats) {
    DecodeCall call(YARD_F32, YARD_BF16, s, {50.0, 41.0});
    TestTensor mask(dtype, {s.batch, s.heads, s.kv_seq});
    fill(mask, Contents::kInfinity, 4);
    std::vector<double> values = mask.values();
    for (double& v : values) v = v == HUGE_VAL ? 0 : v;
    mask.set(values);
    call.mask = &mask;
    call.check();
  }
}

// Keys past the length, or with a weight of 0, are not seen.
TEST(Decode, IgnoresWhatItDoesNotSee) {
  const Sizes s{1, 1, 40, 3, 1, 8};
  DecodeCall call(YARD_F32, YARD_F32, s, {20.0});
  TestTensor mask(YARD_F32, {1, 3, 40});
  std::vector<double> masked(120, 0.0), values = call.value.values(), keys = call.key.values();
  masked[7] = masked[47] = kNothing;
  mask.set(masked);
  values[7 * 8 + 1] = std::nan("");
  values[25 * 8] = keys[30 * 8] = std::nan("");
  call.value.set(values), call.key.set(keys);
  call.mask = &mask;
  call.check();
  EXPECT_FALSE(std::isnan(call.out.at(1)) || std::isnan(call.out.at(9)));
  EXPECT_TRUE(std::isnan(call.out.at(17)));
}

TEST(Decode, RefusesLengthsAndBlocksThatAreNotThere) {
  EXPECT_EQ(DecodeCall(YARD_F32, YARD_F32, {1, 1, 8, 1, 1, 4}, {9.0}).run(), YARD_CALLER);
  EXPECT_EQ(DecodeCall(YARD_F32, YARD_F32, {1, 1, 8, 1, 1, 4}, {-1.0}).run(), YARD_CALLER);
  DecodeCall call(YARD_F32, YARD_F32, {1, 1, 8, 1, 1, 4}, {5.0}, 4);
  call.table.set({0.0, 2.0});
  EXPECT_EQ(call.run(), YARD_CALLER);
  call.table.set({1.0, -1.0});
  EXPECT_EQ(call.run(), YARD_CALLER);
  DecodeCall reached(YARD_F32, YARD_F32, {1, 1, 8, 1, 1, 4}, {4.0}, 4);
  reached.table.set({1.0, 77.0});  // the length does not reach it
  EXPECT_EQ(reached.run(), YARD_OK);
}

// Parts are whole blocks of keys. The last one has fewer keys, and short rows have empty parts.
TEST(Decode, MergesPartsOfALongCache) {
  for (const auto& [dtype, cache] : {std::pair{YARD_F32, YARD_F32}, std::pair{YARD_F32, YARD_BF16},
                                     std::pair{YARD_BF16, YARD_F16}}) {
    DecodeCall(dtype, cache, {2, 1, 1050, 6, 2, 20}, {1050.0, 300.0}).check();
    DecodeCall(dtype, cache, {1, 1, 600, 5, 5, 33}, {599.0}).check();
    DecodeCall(dtype, cache, {3, 1, 640, 6, 1, 8}, {0.0, 640.0, 1.0}, 16).check();
  }
}

TEST(Decode, UsesParts) {
  const auto split = [](int64_t dim, int64_t longest) {
    const decltype(DecodeCall::query) query(YARD_F32, {1, 32, dim}), key(YARD_F32, {1, 2, 8, dim});
    return DecodeSplit(Tensor(query.c()), Tensor(key.c()), longest);
  };
  const DecodeSplit near = split(16, 4096);
  EXPECT_EQ(near.units, 8);
  EXPECT_EQ(near.groups(), 8);
  EXPECT_EQ(near.parts, 8);
  EXPECT_EQ(near.keys, 512);
  const DecodeSplit far = split(64, 4096);  // rows of a key head lie 2 KiB apart
  EXPECT_EQ(far.groups(), 2);
  EXPECT_EQ(far.parts, 32);
  EXPECT_EQ(far.keys, 128);
  const DecodeSplit few = split(16, 127);
  EXPECT_EQ(few.parts, 1);
  EXPECT_EQ(few.keys, 127);
}

// In a part, a NaN reaches the result, but an infinite value with a masked key does not.
TEST(Decode, KeepsSpecialValuesOfParts) {
  const Sizes s{1, 1, 1024, 1, 1, 8};
  for (const size_t at : {size_t{3}, size_t{500}, size_t{1023}}) {
    DecodeCall nan(YARD_F32, YARD_F32, s, {1024.0});
    std::vector<double> values(1024 * 8, 1.0);
    values[at * 8 + 2] = std::nan("");
    nan.value.set(values);
    nan.check();
    EXPECT_TRUE(std::isnan(nan.out.at(2)));
    EXPECT_NEAR(nan.out.at(1), 1, 1e-4);

    DecodeCall masked(YARD_F32, YARD_F32, s, {1024.0});
    TestTensor mask(YARD_F32, {1, 1, 1024});
    std::vector<double> added(1024, 0.0);
    added[at] = kNothing, values[at * 8 + 2] = HUGE_VAL;
    mask.set(added), masked.value.set(values), masked.mask = &mask;
    masked.check();
    EXPECT_NEAR(masked.out.at(2), 1, 1e-4);
  }
}

// A part with much lower scores than another counts for nothing, even with infinite values.
TEST(Decode, LeavesOutPartsWithoutWeight) {
  DecodeCall call(YARD_F32, YARD_F32, {1, 1, 1024, 1, 1, 8}, {1024.0});
  TestTensor mask(YARD_F32, {1, 1, 1024});
  std::vector<double> added(1024, -1000.0), values(1024 * 8, HUGE_VAL);
  for (size_t j = 512; j < 600; ++j) {
    added[j] = 0;
    for (size_t i = 0; i < 8; ++i) values[j * 8 + i] = 2;
  }
  mask.set(added), call.value.set(values), call.mask = &mask;
  ASSERT_EQ(call.run(), YARD_OK);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(call.out.at(i), 2, 1e-4);
}

TEST(Decode, GivesTheSameBitsInPartsAndPieces) {
  const Sizes s{1, 1, 2000, 12, 3, 64};
  DecodeCall whole(YARD_F32, YARD_BF16, s, {2000.0}), pieces(YARD_F32, YARD_BF16, s, {2000.0});
  ASSERT_EQ(whole.run(), YARD_OK);
  ASSERT_EQ(pieces.run(splitting_host()), YARD_OK);
  EXPECT_TRUE(whole.out.bytes() == pieces.out.bytes());
}

TEST(Decode, GivesTheSameBitsInPieces) {
  const Sizes s{3, 1, 300, 12, 3, 64};
  DecodeCall whole(YARD_F32, YARD_F16, s, {300.0, 299.0, 5.0}),
      pieces(YARD_F32, YARD_F16, s, {300.0, 299.0, 5.0});
  ASSERT_EQ(whole.run(), YARD_OK);
  ASSERT_EQ(pieces.run(splitting_host()), YARD_OK);
  EXPECT_TRUE(whole.out.bytes() == pieces.out.bytes());
}

}  // namespace
}  // namespace yard::simd
