// SPDX-License-Identifier: Apache-2.0
// Formats of few bits: unpacking to the last bit, the rounding of activations, and dot products of every instruction set that
// this machine has.
#include "quant.h"

#include <limits>

#include "testing_blocks.h"

namespace yard::simd {
namespace {

using testing::BlockTensor;
using testing::kFormats;

// Lengths of rows around those of panels.
std::vector<int64_t> lengths(Format format) {
  if (is_super_block(format)) return {256, 512, 1024};
  if (format == Format::kI8) return {1, 31, 32, 100, 128, 129, 400};
  return {32, 64, 96, 128, 160, 256, 416};
}

TEST(Formats, UnpackToTheLastBit) {
  for (const Format format : kFormats)
    for (const int64_t k : lengths(format)) {
      const BlockTensor w(format, 3, k, static_cast<uint32_t>(k));
      for (int64_t r = 0; r < 3; ++r) {
        std::vector<float> found(static_cast<size_t>(k));
        dequantize_row(format, w.row(r), 0, k, found.data());
        for (int64_t i = 0; i < k; ++i)
          ASSERT_EQ(found[static_cast<size_t>(i)], static_cast<float>(w.at(r, i)))
              << "format " << static_cast<int>(format) << ", element " << i << " of " << k;
      }
    }
}

TEST(Formats, UnpackParts) {
  for (const Format format : kFormats) {
    const int64_t k = is_super_block(format) ? 512 : 416;
    const BlockTensor w(format, 1, k, 7);
    for (const int64_t begin : {0, 32, 96, 128, 224})
      for (const int64_t count : {32, 64, 160}) {
        std::vector<float> found(static_cast<size_t>(count));
        dequantize_row(format, w.row(0), begin, count, found.data());
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(found[static_cast<size_t>(i)], static_cast<float>(w.at(0, begin + i)));
      }
  }
}

std::vector<XRow> rounded(const std::vector<float>& x) {
  std::vector<XRow> blocks(static_cast<size_t>(blocks_of(static_cast<int64_t>(x.size()))));
  EXPECT_TRUE(quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32,
                           static_cast<int64_t>(x.size()), blocks.data()));
  return blocks;
}

std::vector<float> normal_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

TEST(Activations, AreOffByHalfAStepAtMost) {
  for (const int64_t k : {1, 5, 32, 33, 127, 128, 300}) {
    const std::vector<float> x = normal_values(k, 3);
    const std::vector<XRow> blocks = rounded(x);
    for (size_t i = 0; i < blocks.size() * kBlock; ++i) {
      const XRow& b = blocks[i / kBlock];
      const double scale = b.scale[0], expected = i < x.size() ? x[i] : 0;
      EXPECT_LE(std::abs(b.q[i % kBlock] * scale - expected), scale * 0.50001);
    }
    for (const XRow& b : blocks) {
      int sum = 0, first = 0, most = 0;
      for (int64_t i = 0; i < kBlock; ++i) {
        sum += b.q[i], most = std::max(most, std::abs(int{b.q[i]}));
        if (i < kBlock / 2) first += b.q[i];
      }
      EXPECT_EQ(b.offset[0][0], -128 * sum);
      EXPECT_EQ(b.offset[1][0], -128 * first);
      EXPECT_EQ(b.offset[2][0], -128 * (sum - first));
      EXPECT_FLOAT_EQ(b.sum[0], b.scale[0] * static_cast<float>(sum));
      EXPECT_TRUE(most == 127 || b.scale[0] == 0);
    }
  }
}

// Four elements of each row in turn, with the numbers that a row alone has.
TEST(Activations, OfAGroupAreInterleaved) {
  constexpr int64_t kK = 70;
  std::vector<XGroup> group(static_cast<size_t>(blocks_of(kK)));
  for (int64_t r = 0; r < kGroupRows; ++r) {
    const std::vector<float> x = normal_values(kK, static_cast<uint32_t>(r));
    ASSERT_TRUE(
        quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32, kK, group.data(), r));
  }
  for (int64_t r = 0; r < kGroupRows; ++r) {
    const std::vector<XRow> row = rounded(normal_values(kK, static_cast<uint32_t>(r)));
    for (size_t b = 0; b < row.size(); ++b) {
      for (int64_t i = 0; i < kBlock; ++i)
        EXPECT_EQ(group[b].q[(i / 4 * kGroupRows + r) * 4 + i % 4], row[b].q[i]);
      EXPECT_EQ(group[b].scale[r], row[b].scale[0]);
      EXPECT_EQ(group[b].sum[r], row[b].sum[0]);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(group[b].offset[i][r], row[b].offset[i][0]);
    }
  }
}

TEST(Activations, RefuseWhatInt8CannotHold) {
  for (const float special : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 1e30f, 1e-30f})
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(200, 0.0f);
      x[150] = sign * special;
      std::vector<XRow> blocks(7);
      EXPECT_FALSE(
          quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32, 200, blocks.data()));
    }
  EXPECT_EQ(rounded(std::vector<float>(64, 0.0f))[1].scale[0], 0.0f);
}

// The product of a weight row with rounded activations, and how large its terms are.
struct Product {
  double value = 0, size = 0;
};
Product product(const BlockTensor& w, int64_t n, const XRow* x, int64_t k) {
  Product p;
  for (int64_t i = 0; i < k; ++i) {
    const XRow& block = x[i / kBlock];
    const double term = w.at(n, i) * block.q[i % kBlock] * static_cast<double>(block.scale[0]);
    p.value += term, p.size += std::abs(term);
  }
  return p;
}

// A panel of weights, some rows of activations, and the products by one instruction set.
struct Products {
  static constexpr int64_t kRows = 11;  // two groups and a part of one
  Format format;
  int64_t weights, k;
  BlockTensor w;
  std::vector<XRow> x[kRows];
  std::vector<XGroup> groups;

  Products(Format f, int64_t n, int64_t length)
      : format(f),
        weights(n),
        k(length),
        w(f, n, length, static_cast<uint32_t>(length + n), 1),
        groups(static_cast<size_t>(3 * blocks_of(length))) {
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> values = normal_values(k, static_cast<uint32_t>(r));
      x[r] = rounded(values);
      EXPECT_TRUE(quantize_row(reinterpret_cast<const char*>(values.data()), YARD_F32, k,
                               groups.data() + r / kGroupRows * blocks_of(k), r % kGroupRows));
    }
  }
  QuantWeight weight() const { return {format, w.row(0), stride_bytes(Tensor(w.c()), 0), k}; }
  std::vector<float> of_row(const QuantKernels& kernels, int64_t row) const {
    std::vector<float> out(kPanelRows);
    kernels.row(weight(), 0, weights, x[row].data(), out.data());
    return out;
  }
  // In steps of 8 blocks, as a long row is done in parts.
  std::vector<float> of_tile(const QuantKernels& kernels, int64_t rows) const {
    std::vector<float> sums(static_cast<size_t>(rows * kPanelRows));
    WBlock panel[8];
    for (int64_t first = 0; first < blocks_of(k); first += 8) {
      const int64_t last = std::min(first + 8, blocks_of(k));
      kernels.unpack(weight(), 0, weights, first, last, panel);
      kernels.tile(kind_of(format), panel, last - first, groups.data() + first, blocks_of(k), rows,
                   sums.data());
    }
    return sums;
  }
};

TEST(Products, AreExactAndHaveTheSameBitsInTiles) {
  int sets = 0;
  for (const QuantKernels* const* set = all_quant_kernels(); *set != nullptr; ++set, ++sets)
    for (const Format format : kFormats)
      for (const int64_t k : lengths(format))
        for (const int64_t weights : {1, 6, 16}) {
          SCOPED_TRACE(::testing::Message()
                       << "set " << sets << ", format " << static_cast<int>(format) << ", k " << k);
          const Products products(format, weights, k);
          for (int64_t rows = 1; rows <= Products::kRows; ++rows) {
            const std::vector<float> tile = products.of_tile(**set, rows);
            const std::vector<float> row = products.of_row(**set, rows - 1);
            for (int64_t n = 0; n < weights; ++n) {
              const Product p = product(products.w, n, products.x[rows - 1].data(), k);
              const float found = row[static_cast<size_t>(n)];
              ASSERT_NEAR(static_cast<double>(found), p.value, p.size * 1e-5);
              ASSERT_EQ(found, tile[static_cast<size_t>((rows - 1) * kPanelRows + n)]);
            }
          }
        }
  EXPECT_EQ(&quant_kernels(), all_quant_kernels()[0]);
}

// The largest products there are: -128 of weights times 127, and the largest nibbles.
TEST(Products, DoNotOverflow) {
  constexpr int64_t kLength = 128;
  const std::vector<float> values(kLength, 127.0f);
  for (const QuantKernels* const* set = all_quant_kernels(); *set != nullptr; ++set)
    for (const uint8_t pattern : {0x80, 0x7f, 0xff, 0x00}) {
      const std::vector<uint8_t> w(kLength, pattern);
      const QuantWeight weight{Format::kI8, w.data(), kLength, kLength};
      float row[kPanelRows], tile[kPanelRows] = {};
      (*set)->row(weight, 0, 1, rounded(values).data(), row);
      XGroup x[4];
      WBlock panel[4];
      ASSERT_TRUE(
          quantize_row(reinterpret_cast<const char*>(values.data()), YARD_F32, kLength, x, 0));
      (*set)->unpack(weight, 0, 1, 0, 4, panel);
      (*set)->tile(BlockKind::kScale, panel, 4, x, 4, 1, tile);
      const float expected = 127.0f * kLength * static_cast<float>(static_cast<int8_t>(pattern));
      EXPECT_EQ(row[0], expected);
      EXPECT_EQ(tile[0], expected);
    }
}

}  // namespace
}  // namespace yard::simd
