// SPDX-License-Identifier: Apache-2.0
// Tests formats with few bits: unpacking to the last bit, rounding of activations, and dot products
// of every instruction set that this machine has.
#include "quant.h"

#include <algorithm>
#include <limits>

#include "testing_blocks.h"

namespace yard::simd {
namespace {

using testing::BlockTensor;
using testing::kFormats;

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

template <int64_t kRows>
struct Rounded {
  std::vector<XBlock<kRows>> blocks;
  std::vector<XBytes<kRows>> rests;
  explicit Rounded(int64_t k) : blocks(static_cast<size_t>(blocks_of(k))), rests(blocks.size()) {}
};

Rounded<1> rounded(const std::vector<float>& x) {
  const auto k = static_cast<int64_t>(x.size());
  Rounded<1> row(k);
  EXPECT_TRUE(quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32, k, row.blocks.data(),
                           row.rests.data()));
  return row;
}
bool round_to(Rounded<kGroupRows>& group, const std::vector<float>& x, int64_t row, int64_t chunk) {
  return quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32,
                      static_cast<int64_t>(x.size()), group.blocks.data(), group.rests.data(),
                      {row, chunk});
}
// Returns an element in units of the block's scale.
template <int64_t kRows>
double element(const XBlock<kRows>& b, int64_t i, int64_t row, int64_t chunk = kBlock) {
  const int64_t at = (i / chunk * kRows + row) * chunk + i % chunk;
  return b.q[at] + (b.rest != nullptr ? b.rest->q[at] / 128.0 : 0.0);
}

std::vector<float> normal_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = normal(random);
  return x;
}

// Returns values with large ones in some blocks of some rows, as in language models.
std::vector<float> spiky_values(int64_t count, uint32_t seed) {
  std::vector<float> x = normal_values(count, seed);
  for (size_t i = 7 * (seed % 5); i < x.size(); i += 97) x[i] *= seed % 3 == 0 ? 1.0f : 50.0f;
  return x;
}

TEST(Activations, AreOffByHalfAStepAtMost) {
  for (const int64_t k : {1, 5, 32, 33, 127, 128, 300}) {
    const std::vector<float> x = normal_values(k, 3);
    const std::vector<XRow> blocks = rounded(x).blocks;
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

// A block with a value that is large beside the rest of the row is exact to a 256th of a step.
TEST(Activations, HaveARestBesideLargeValues) {
  std::vector<float> x = normal_values(320, 3);
  x[70] = -80;
  const Rounded<1> row = rounded(x);
  for (size_t b = 0; b < row.blocks.size(); ++b) {
    const XRow& block = row.blocks[b];
    EXPECT_EQ(block.rest != nullptr, b == 2) << "block " << b;
    double sum = 0;
    const double scale = block.scale[0], step = block.rest != nullptr ? scale / 128 : scale;
    for (int64_t i = 0; i < kBlock; ++i) {
      const double found = element(block, i, 0) * scale;
      EXPECT_LE(std::abs(found - x[b * kBlock + static_cast<size_t>(i)]), step * 0.501);
      sum += found;
    }
    EXPECT_NEAR(block.sum[0], sum, 1e-5 * scale * 127);
  }
  int first = 0, second = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    EXPECT_LE(std::abs(int{row.rests[2].q[i]}), 64);
    (i < kBlock / 2 ? first : second) += row.rests[2].q[i];
  }
  EXPECT_EQ(row.rests[2].offset[0][0], -128 * (first + second));
  EXPECT_EQ(row.rests[2].offset[1][0], -128 * first);
  EXPECT_EQ(row.rests[2].offset[2][0], -128 * second);
  // The least and the largest values that have products. Their squares leave the range of f32.
  for (const float factor : {1e-23f, 1e22f}) {
    std::vector<float> scaled = x;
    for (float& v : scaled) v *= factor;
    EXPECT_NE(rounded(scaled).blocks[2].rest, nullptr) << factor;
  }
}

// Groups hold four or eight elements of each row in turn, with the numbers that a row alone has.
class InterleavedActivations : public ::testing::TestWithParam<int64_t> {};

TEST_P(InterleavedActivations, HaveTheNumbersOfEachRow) {
  constexpr int64_t kK = 70;
  Rounded<kGroupRows> of_group(kK);
  std::memset(of_group.rests.data(), 1, of_group.rests.size() * sizeof(XGroupRest));
  for (int64_t r = 0; r < kGroupRows; ++r)
    ASSERT_TRUE(round_to(of_group, spiky_values(kK, static_cast<uint32_t>(r)), r, GetParam()));
  const std::vector<XGroup>& group = of_group.blocks;
  EXPECT_NE(group[0].rest, nullptr);
  EXPECT_EQ(group[1].rest, nullptr);
  for (int64_t r = 0; r < kGroupRows; ++r) {
    const Rounded<1> alone = rounded(spiky_values(kK, static_cast<uint32_t>(r)));
    const std::vector<XRow>& row = alone.blocks;
    for (size_t b = 0; b < row.size(); ++b) {
      for (int64_t i = 0; i < kBlock; ++i)
        EXPECT_EQ(element(group[b], i, r, GetParam()), element(row[b], i, 0));
      EXPECT_EQ(group[b].scale[r], row[b].scale[0]);
      EXPECT_EQ(group[b].sum[r], row[b].sum[0]);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(group[b].offset[i][r], row[b].offset[i][0]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Chunks, InterleavedActivations, ::testing::Values(4, 8));

TEST(Activations, RefuseWhatInt8CannotHold) {
  for (const float special : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 1e30f, 1e-30f})
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(200, 0.0f);
      x[150] = sign * special;
      Rounded<1> row(200);
      EXPECT_FALSE(quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32, 200,
                                row.blocks.data(), row.rests.data()));
    }
  EXPECT_EQ(rounded(std::vector<float>(64, 0.0f)).blocks[1].scale[0], 0.0f);
}

// The product of a weight row with rounded activations, and the size of its terms.
struct Product {
  double value = 0, size = 0;
};
Product product(const BlockTensor& w, int64_t n, const XRow* x, int64_t k) {
  Product p;
  for (int64_t i = 0; i < k; ++i) {
    const XRow& block = x[i / kBlock];
    const double term =
        w.at(n, i) * element(block, i % kBlock, 0) * static_cast<double>(block.scale[0]);
    p.value += term, p.size += std::abs(term);
  }
  return p;
}

// A panel of weights, some rows of activations, and their products by an instruction set.
struct Products {
  static constexpr int64_t kRows = 11;  // two groups and a part of one
  Format format;
  int64_t weights, k;
  BlockTensor w;
  std::vector<Rounded<1>> x;
  std::vector<Rounded<kGroupRows>> in_groups;
  std::vector<XGroup> groups;  // of all rows

  Products(Format f, int64_t n, int64_t length, int64_t chunk)
      : format(f), weights(n), k(length), w(f, n, length, static_cast<uint32_t>(length + n), 1) {
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> values = spiky_values(k, static_cast<uint32_t>(r));
      x.push_back(rounded(values));
      if (r % kGroupRows == 0) in_groups.emplace_back(k);
      EXPECT_TRUE(round_to(in_groups.back(), values, r % kGroupRows, chunk));
    }
    for (const auto& g : in_groups) groups.insert(groups.end(), g.blocks.begin(), g.blocks.end());
  }
  QuantWeight weight() const { return {format, w.row(0), stride_bytes(Tensor(w.c()), 0), k}; }
  std::vector<float> of_row(const QuantKernels& kernels, int64_t row) const {
    std::vector<float> out(kPanelRows);
    kernels.row(weight(), 0, weights, x[static_cast<size_t>(row)].blocks.data(), out.data());
    return out;
  }
  // Multiplies 8 blocks at a time, as the kernel does with long rows.
  std::vector<float> of_tile(const QuantKernels& kernels, int64_t rows) const {
    std::vector<float> sums(static_cast<size_t>(rows * kPanelRows));
    WBlock panel[8];
    for (int64_t first = 0; first < blocks_of(k); first += 8) {
      const int64_t last = std::min(first + 8, blocks_of(k));
      kernels.unpack(weight(), 0, weights, first, last, panel);
      kernels.tile(kind_of(format), 1, panel, last - first, groups.data() + first, blocks_of(k),
                   rows, sums.data());
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
          const Products products(format, weights, k, (*set)->chunk);
          for (int64_t rows = 1; rows <= Products::kRows; ++rows) {
            const std::vector<float> tile = products.of_tile(**set, rows);
            const std::vector<float> row = products.of_row(**set, rows - 1);
            for (int64_t n = 0; n < weights; ++n) {
              const Product p = product(products.w, n,
                                        products.x[static_cast<size_t>(rows - 1)].blocks.data(), k);
              const float found = row[static_cast<size_t>(n)];
              ASSERT_NEAR(static_cast<double>(found), p.value, p.size * 1e-5);
              ASSERT_EQ(found, tile[static_cast<size_t>((rows - 1) * kPanelRows + n)]);
            }
          }
        }
  EXPECT_EQ(&quant_kernels(), all_quant_kernels()[0]);
}

// Packs the weight of `products`, between guards that must stay as they are.
struct PackedPanel {
  static constexpr size_t kGuard = 64;
  std::vector<uint8_t> bytes;
  PackedPanel(const PackedKernels& kernels, const Products& products)
      : bytes(2 * kGuard +
                  static_cast<size_t>(kernels.panel_bytes(products.format, blocks_of(products.k))),
              0xa5) {
    pack_panel(kernels, products.weight(), 0, products.weights, bytes.data() + kGuard);
  }
  const uint8_t* data() const { return bytes.data() + kGuard; }
  bool guards_intact() const {
    const auto is_guard = [](uint8_t b) { return b == 0xa5; };
    return std::all_of(bytes.begin(), bytes.begin() + kGuard, is_guard) &&
           std::all_of(bytes.end() - kGuard, bytes.end(), is_guard);
  }
};

TEST(Products, HaveTheSameBitsWithPackedWeights) {
  int sets = 0;
  for (const QuantKernels* const* set = all_quant_kernels(); *set != nullptr; ++set) {
    const PackedKernels& packed = (*set)->packed;
    if (packed.strip_rows == 0) continue;
    ++sets;
    for (const Format format : kFormats) {
      if (!is_packed(format)) continue;
      for (const int64_t k : lengths(format))
        for (const int64_t weights : {1, 6, 11, 16}) {
          SCOPED_TRACE(::testing::Message()
                       << "set " << sets << ", format " << static_cast<int>(format) << ", k " << k);
          const Products products(format, weights, k, (*set)->chunk);
          const PackedPanel panel(packed, products);
          ASSERT_TRUE(panel.guards_intact());
          const int64_t blocks = blocks_of(k);
          std::vector<XRow> x;
          for (int64_t r = 0; r < kFewPackedRows; ++r) {
            const std::vector<XRow>& row = products.x[static_cast<size_t>(r)].blocks;
            x.insert(x.end(), row.begin(), row.end());
          }
          for (int64_t rows = 1; rows <= kFewPackedRows; ++rows) {
            float found[kFewPackedRows * kPanelRows];
            packed.rows(format, panel.data(), blocks, x.data(), blocks, rows, found);
            for (int64_t r = 0; r < rows; ++r) {
              const std::vector<float> row = products.of_row(**set, r);
              for (int64_t n = 0; n < weights; ++n)
                ASSERT_EQ(found[r * kPanelRows + n], row[static_cast<size_t>(n)])
                    << "row " << r << " of " << rows << ", weight " << n;
              for (int64_t n = weights; n < kPanelRows; ++n)
                ASSERT_EQ(found[r * kPanelRows + n], 0);
            }
          }
          std::vector<float> sums(Products::kRows * kPanelRows);
          for (int64_t first = 0; first < blocks; first += 3) {
            const int64_t last = std::min(first + 3, blocks);
            WBlock unpacked[3];
            packed.unpack(format, panel.data(), blocks, first, last, unpacked);
            (*set)->tile(kind_of(format), 1, unpacked, last - first, products.groups.data() + first,
                         blocks, Products::kRows, sums.data());
          }
          const std::vector<float> expected = products.of_tile(**set, Products::kRows);
          for (size_t i = 0; i < sums.size(); ++i)
            if (static_cast<int64_t>(i) % kPanelRows < weights) {
              ASSERT_EQ(sums[i], expected[i]) << "sum " << i;
            }
        }
    }
  }
  EXPECT_EQ(sets > 0, quant_kernels_avx2() != nullptr || quant_kernels_neon() != nullptr);
}

TEST(Products, OfSeveralPanelsAreThoseOfEach) {
  constexpr int64_t kK = 416, kBlocks = kK / kBlock, kRows = 7;
  for (const QuantKernels* const* set = all_quant_kernels(); *set != nullptr; ++set)
    for (const Format format : {Format::kQ8_0, Format::kQ4_1, Format::kI8}) {
      const int64_t panels = (*set)->panels;
      ASSERT_LE(panels, kMostPanels);
      const BlockTensor w(format, panels * kPanelRows, kK, 3);
      const Products products(format, kPanelRows, kK, (*set)->chunk);
      const QuantWeight weight{format, w.row(0), stride_bytes(Tensor(w.c()), 0), kK};
      std::vector<WBlock> panel(static_cast<size_t>(panels * kPanelBlocks));
      std::vector<float> together(static_cast<size_t>(panels * kRowsAtATime * kPanelRows));
      std::vector<float> alone = together;
      constexpr int64_t kSums = kRowsAtATime * kPanelRows;
      for (int64_t p = 0; p < panels; ++p) {
        WBlock* const to = panel.data() + p * kPanelBlocks;
        (*set)->unpack(weight, p * kPanelRows, (p + 1) * kPanelRows, 0, kBlocks, to);
        (*set)->tile(kind_of(format), 1, to, kBlocks, products.groups.data(), kBlocks, kRows,
                     alone.data() + p * kSums);
      }
      (*set)->tile(kind_of(format), panels, panel.data(), kBlocks, products.groups.data(), kBlocks,
                   kRows, together.data());
      EXPECT_EQ(together, alone) << "format " << static_cast<int>(format);
      EXPECT_NE(together[static_cast<size_t>((panels - 1) * kSums)], 0);
    }
}

#if defined(__aarch64__)
// `sdot` and `smmla` give the same bits for a panel.
TEST(Products, HaveTheSameBitsWithSdotAndSmmla) {
  const QuantKernels *const sdot = quant_kernels_neon(), *const smmla = quant_kernels_i8mm();
  if (smmla == nullptr) GTEST_SKIP() << "this processor has no i8mm";
  EXPECT_EQ(&quant_kernels(), smmla);
  for (const Format format : kFormats)
    for (const int64_t k : lengths(format)) {
      const Products with_sdot(format, 16, k, sdot->chunk), with_smmla(format, 16, k, smmla->chunk);
      for (int64_t rows = 1; rows <= Products::kRows; ++rows)
        ASSERT_EQ(with_sdot.of_tile(*sdot, rows), with_smmla.of_tile(*smmla, rows))
            << "format " << static_cast<int>(format) << ", k " << k << ", rows " << rows;
    }
}
#endif

// Uses the largest possible products: weights of -128 times 127, and the largest nibbles.
TEST(Products, DoNotOverflow) {
  constexpr int64_t kLength = 128;
  const std::vector<float> values(kLength, 127.0f);
  for (const QuantKernels* const* set = all_quant_kernels(); *set != nullptr; ++set)
    for (const uint8_t pattern : {0x80, 0x7f, 0xff, 0x00}) {
      const std::vector<uint8_t> w(kLength, pattern);
      const QuantWeight weight{Format::kI8, w.data(), kLength, kLength};
      float row[kPanelRows], tile[kPanelRows] = {};
      (*set)->row(weight, 0, 1, rounded(values).blocks.data(), row);
      Rounded<kGroupRows> x(kLength);
      WBlock panel[4];
      ASSERT_TRUE(round_to(x, values, 0, (*set)->chunk));
      (*set)->unpack(weight, 0, 1, 0, 4, panel);
      (*set)->tile(BlockKind::kScale, 1, panel, 4, x.blocks.data(), 4, 1, tile);
      const float expected = 127.0f * kLength * static_cast<float>(static_cast<int8_t>(pattern));
      EXPECT_EQ(row[0], expected);
      EXPECT_EQ(tile[0], expected);
    }
}

}  // namespace
}  // namespace yard::simd
