// SPDX-License-Identifier: Apache-2.0
// Tests block-quantised types, from blocks that are written byte by byte, and ops that read them.
#include "blocks.h"

#include <random>

#include "testing.h"

namespace yard::reference::testing {
namespace {

using Vector = std::vector<double>;
using Bytes = std::vector<uint8_t>;

constexpr uint32_t kBlocks[] = {YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K};

yard_dtype_t block_type(uint32_t dtype) {
  switch (dtype) {
    case YARD_Q8_0: return {0x81, 34, 32};
    case YARD_Q4_0: return {0x82, 18, 32};
    case YARD_Q4_1: return {0x83, 20, 32};
    case YARD_Q4_K: return {0x84, 144, 256};
    default: return {0x85, 210, 256};
  }
}

Vector decoded(uint32_t dtype, const Bytes& block) {
  Vector to(block_type(dtype).lanes);
  EXPECT_EQ(block.size(), block_type(dtype).bits);
  block_decoder(dtype)(block.data(), to.data());
  return to;
}

// 1.5 and -0.25 in f16.
constexpr uint8_t kOneAndAHalf[] = {0x00, 0x3e}, kMinusAQuarter[] = {0x00, 0xb4};

void append(Bytes& to, const uint8_t (&two)[2]) { to.insert(to.end(), two, two + 2); }

TEST(Blocks, Q8_0) {
  Bytes block;
  append(block, kOneAndAHalf);
  for (int i = 0; i < 32; ++i) block.push_back(static_cast<uint8_t>(i * 8 - 128));
  const Vector found = decoded(YARD_Q8_0, block);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(found[static_cast<size_t>(i)], 1.5 * (i * 8 - 128));
}

TEST(Blocks, Q4_0) {
  Bytes block;
  append(block, kMinusAQuarter);
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<uint8_t>(i | (15 - i) << 4));
  const Vector found = decoded(YARD_Q4_0, block);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(found[static_cast<size_t>(i)], -0.25 * (i - 8));
    EXPECT_EQ(found[static_cast<size_t>(i + 16)], -0.25 * (15 - i - 8));
  }
}

TEST(Blocks, Q4_1) {
  Bytes block;
  append(block, kOneAndAHalf), append(block, kMinusAQuarter);
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<uint8_t>((15 - i) | i << 4));
  const Vector found = decoded(YARD_Q4_1, block);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(found[static_cast<size_t>(i)], 1.5 * (15 - i) - 0.25);
    EXPECT_EQ(found[static_cast<size_t>(i + 16)], 1.5 * i - 0.25);
  }
}

Bytes packed_scales(const std::vector<int>& s, const std::vector<int>& m) {
  Bytes to(12);
  for (size_t j = 0; j < 4; ++j) {
    to[j] = static_cast<uint8_t>(s[j] | (s[j + 4] >> 4) << 6);
    to[j + 4] = static_cast<uint8_t>(m[j] | (m[j + 4] >> 4) << 6);
    to[j + 8] = static_cast<uint8_t>((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
  }
  return to;
}

TEST(Blocks, Q4_K) {
  const std::vector<int> s{0, 1, 33, 63, 16, 47, 62, 5}, m{63, 32, 1, 0, 15, 48, 31, 60};
  Bytes block;
  append(block, kOneAndAHalf), append(block, kMinusAQuarter);
  for (const uint8_t b : packed_scales(s, m)) block.push_back(b);
  const auto q = [](int e) { return (e * 7 + e / 32) % 16; };
  for (int g = 0; g < 4; ++g)
    for (int l = 0; l < 32; ++l)
      block.push_back(static_cast<uint8_t>(q(64 * g + l) | q(64 * g + 32 + l) << 4));
  const Vector found = decoded(YARD_Q4_K, block);
  for (int e = 0; e < 256; ++e) {
    const auto j = static_cast<size_t>(e / 32);
    EXPECT_EQ(found[static_cast<size_t>(e)], 1.5 * s[j] * q(e) + 0.25 * m[j]) << e;
  }
}

TEST(Blocks, Q6_K) {
  const auto q = [](int e) { return (e * 5 + e / 64) % 64; };
  Bytes block(210);
  for (size_t half = 0; half < 2; ++half)
    for (size_t l = 0; l < 32; ++l) {
      const int e = static_cast<int>(half * 128 + l);
      block[half * 64 + l] = static_cast<uint8_t>((q(e) & 15) | (q(e + 64) & 15) << 4);
      block[half * 64 + 32 + l] = static_cast<uint8_t>((q(e + 32) & 15) | (q(e + 96) & 15) << 4);
      block[128 + half * 32 + l] = static_cast<uint8_t>(q(e) >> 4 | q(e + 32) >> 4 << 2 |
                                                        q(e + 64) >> 4 << 4 | q(e + 96) >> 4 << 6);
    }
  for (size_t j = 0; j < 16; ++j) block[192 + j] = static_cast<uint8_t>(j * 16 - 128);
  block[208] = kMinusAQuarter[0], block[209] = kMinusAQuarter[1];
  const Vector found = decoded(YARD_Q6_K, block);
  for (int e = 0; e < 256; ++e)
    EXPECT_EQ(found[static_cast<size_t>(e)], -0.25 * (e / 16 * 16 - 128) * (q(e) - 32)) << e;
}

TEST(Blocks, OthersHaveNoDecoder) {
  for (const uint32_t t : {YARD_F32, YARD_I8, YARD_U4}) EXPECT_EQ(block_decoder(t), nullptr);
}

// A matrix of random blocks at an odd address, with gaps of one block between rows.
class BlockTensor {
 public:
  BlockTensor(uint32_t dtype, int64_t rows, int64_t blocks, unsigned seed)
      : type_(block_type(dtype)), dtype_(dtype), shape_{rows, blocks * type_.lanes} {
    strides_ = {(blocks + 1) * type_.lanes, 1};
    std::mt19937 random(seed);
    bytes_.resize(static_cast<size_t>((rows * (blocks + 1)) * type_.bits + 1));
    for (uint8_t& b : bytes_) b = static_cast<uint8_t>(random());
    for (size_t at = 1; at + type_.bits <= bytes_.size(); at += type_.bits)
      for (const size_t scale : scales()) {  // between 1/8 and 1/4, of both signs
        bytes_[at + scale + 1] = static_cast<uint8_t>(0x30 | (random() & 0x83));
      }
    t_.data = bytes_.data();
    t_.byte_offset = 1;
    t_.device = {1, 0};
    t_.ndim = 2;
    t_.dtype = type_;
    t_.shape = shape_.data();
    t_.strides = strides_.data();
  }

  const yard_tensor_t* c() const { return &t_; }
  Vector values() const {
    Vector to, block(type_.lanes);
    for (int64_t r = 0; r < shape_[0]; ++r)
      for (int64_t b = 0; b < shape_[1] / type_.lanes; ++b) {
        const int64_t at = r * strides_[0] / type_.lanes + b;
        block_decoder(dtype_)(bytes_.data() + 1 + at * type_.bits, block.data());
        to.insert(to.end(), block.begin(), block.end());
      }
    return to;
  }

 private:
  std::vector<size_t> scales() const {
    if (dtype_ == YARD_Q6_K) return {208};
    return dtype_ == YARD_Q4_1 || dtype_ == YARD_Q4_K ? std::vector<size_t>{0, 2}
                                                      : std::vector<size_t>{0};
  }
  yard_dtype_t type_;
  uint32_t dtype_;
  std::vector<int64_t> shape_, strides_;
  Bytes bytes_;
  yard_tensor_t t_{};
};

yard_value_t value(const BlockTensor& t) {
  yard_value_t v{YARD_TAG_TENSOR, 0, {}};
  v.u.tensor = t.c();
  return v;
}

class BlockOps : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Types, BlockOps, ::testing::ValuesIn(kBlocks));

TEST_P(BlockOps, DequantizeRoundsOnce) {
  const BlockTensor x(GetParam(), 3, 2, 1);
  const Vector expected = x.values();
  const auto columns = static_cast<int64_t>(expected.size() / 3);
  for (const uint32_t t : kFloats) {
    TestTensor out(t, {3, columns}, Strides{-columns - 3, 1});
    ASSERT_EQ(run("dequantize", out, x, nullptr).code, YARD_OK);
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(out.at(i), round_to(t, expected[i])) << i;
    EXPECT_TRUE(out.gaps_intact());
  }
}

TEST_P(BlockOps, EmbeddingReadsRows) {
  const BlockTensor table(GetParam(), 4, 3, 2);
  const Vector rows = table.values();
  const size_t columns = rows.size() / 4;
  TestTensor ids(YARD_I32, {3}, {2, 0, 3}), out(YARD_BF16, {3, static_cast<int64_t>(columns)});
  ASSERT_EQ(run("embedding", out, ids, table).code, YARD_OK);
  for (size_t i = 0; i < 3 * columns; ++i) {
    const size_t row = static_cast<size_t>(ids.at(i / columns));
    ASSERT_EQ(out.at(i), round_to(YARD_BF16, rows[row * columns + i % columns])) << i;
  }
}

TEST_P(BlockOps, LinearSumsTheElements) {
  const BlockTensor weight(GetParam(), 5, 3, 3);
  const Vector w = weight.values();
  const size_t k = w.size() / 5;
  TestTensor x(YARD_F32, {2, static_cast<int64_t>(k)}), bias(YARD_F32, {5});
  TestTensor out(YARD_F32, {2, 5});
  x.fill(1), bias.fill(2);
  ASSERT_EQ(run("linear", out, x, weight, nullptr, bias).code, YARD_OK);
  Vector expected;
  for (size_t row = 0; row < 2; ++row)
    for (size_t n = 0; n < 5; ++n) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += x.at(row * k + i) * w[n * k + i];
      expected.push_back(sum + bias.at(n));
    }
  expect_rounded(out, expected, 1e-9);
}

TEST_P(BlockOps, EmptyTensors) {
  const BlockTensor none(GetParam(), 2, 0, 4), no_rows(GetParam(), 0, 1, 5);
  TestTensor out(YARD_F32, {2, 0}), x(YARD_F32, {3, 0}), zeros(YARD_F32, {3, 2});
  EXPECT_EQ(run("dequantize", out, none, nullptr).code, YARD_OK);
  ASSERT_EQ(run("linear", zeros, x, none, nullptr, nullptr).code, YARD_OK);
  EXPECT_EQ(zeros.values(), Vector(6, 0));
  TestTensor empty(YARD_F32, {0, no_rows.c()->shape[1]});
  EXPECT_EQ(run("dequantize", empty, no_rows, nullptr).code, YARD_OK);
}

}  // namespace
}  // namespace yard::reference::testing
