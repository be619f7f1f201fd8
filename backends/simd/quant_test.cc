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

std::vector<XPanel> rounded(const std::vector<float>& x) {
  std::vector<XPanel> panels((x.size() + kPanel - 1) / kPanel);
  EXPECT_TRUE(quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32,
                           static_cast<int64_t>(x.size()), panels.data()));
  return panels;
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
    const std::vector<XPanel> panels = rounded(x);
    for (size_t i = 0; i < panels.size() * kPanel; ++i) {
      const XPanel& p = panels[i / kPanel];
      const double scale = p.scale[i % kPanel / 32];
      const double expected = i < x.size() ? x[i] : 0;
      EXPECT_LE(std::abs(p.q[i % kPanel] * scale - expected), scale * 0.50001);
    }
    for (const XPanel& p : panels)
      for (size_t b = 0; b < 4; ++b) {
        int sum = 0, most = 0;
        for (size_t i = 32 * b; i < 32 * b + 32; ++i)
          sum += p.q[i], most = std::max(most, std::abs(int{p.q[i]}));
        EXPECT_FLOAT_EQ(p.sum[b], p.scale[b] * static_cast<float>(sum));
        EXPECT_TRUE(most == 127 || p.scale[b] == 0);
      }
  }
}

TEST(Activations, RefuseWhatInt8CannotHold) {
  for (const float special : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity(), 1e30f, 1e-30f})
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> x(200, 0.0f);
      x[150] = sign * special;
      std::vector<XPanel> panels(2);
      EXPECT_FALSE(
          quantize_row(reinterpret_cast<const char*>(x.data()), YARD_F32, 200, panels.data()));
    }
  EXPECT_EQ(rounded(std::vector<float>(64, 0.0f))[0].scale[1], 0.0f);
}

// The product of a weight row with rounded activations, and how large its terms are.
struct Product {
  double value = 0, size = 0;
};
Product product(const BlockTensor& w, int64_t n, const XPanel* x, int64_t k) {
  Product p;
  for (int64_t i = 0; i < k; ++i) {
    const XPanel& panel = x[i / kPanel];
    const double term =
        w.at(n, i) * panel.q[i % kPanel] * static_cast<double>(panel.scale[i % kPanel / 32]);
    p.value += term, p.size += std::abs(term);
  }
  return p;
}

TEST(Tiles, MultiplyExactly) {
  int sets = 0;
  for (const QuantTile* tile = quant_tiles(); *tile != nullptr; ++tile, ++sets)
    for (const Format format : kFormats)
      for (const int64_t k : lengths(format)) {
        constexpr int64_t kWeights = 3, kRows = 4;
        const BlockTensor w(format, kWeights, k, static_cast<uint32_t>(k + 1), 1);
        const int64_t panels = (k + kPanel - 1) / kPanel;
        std::vector<XPanel> x;
        for (uint32_t r = 0; r < kRows; ++r)
          for (const XPanel& p : rounded(normal_values(k, r))) x.push_back(p);
        const QuantJob job{format, w.row(0), stride_bytes(Tensor(w.c()), 0), k, x.data(),
                           panels, kRows};
        for (int64_t rows = 1; rows <= kRows; ++rows) {
          float found[kWeights * kTileRows];
          (*tile)(job, 0, kWeights, kRows - rows, kRows, found);
          for (int64_t n = 0; n < kWeights; ++n)
            for (int64_t r = 0; r < rows; ++r) {
              const Product p = product(w, n, x.data() + (kRows - rows + r) * panels, k);
              ASSERT_NEAR(static_cast<double>(found[n * kTileRows + r]), p.value, p.size * 1e-5)
                  << "set " << sets << ", format " << static_cast<int>(format) << ", k " << k;
            }
        }
      }
  EXPECT_EQ(quant_tile(), quant_tiles()[0]);
}

// The largest products there are: -128 of weights times 127, and the largest nibbles.
TEST(Tiles, DoNotOverflow) {
  for (const QuantTile* tile = quant_tiles(); *tile != nullptr; ++tile)
    for (const uint8_t pattern : {0x80, 0x7f, 0xff, 0x00}) {
      std::vector<uint8_t> w(kPanel, pattern);
      const std::vector<XPanel> x = rounded(std::vector<float>(kPanel, 127.0f));
      const QuantJob job{Format::kI8, w.data(), kPanel, kPanel, x.data(), 1, 1};
      float found[kTileRows];
      (*tile)(job, 0, 1, 0, 1, found);
      EXPECT_EQ(found[0], 127.0f * kPanel * static_cast<float>(static_cast<int8_t>(pattern)));
    }
}

}  // namespace
}  // namespace yard::simd
