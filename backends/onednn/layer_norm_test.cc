// SPDX-License-Identifier: Apache-2.0
// Compares layer_norm with the reference for ordinary rows and for rows that f32 sums do not suit.
#include <limits>

#include "kernels.h"
#include "testing.h"

namespace yard::onednn {
namespace {

using testing::Case;
using testing::expect_as_reference;
using testing::kInf;
using testing::kMostElements;
using testing::kNan;
using testing::normal;

void expect_all_mixes(int64_t rows, int64_t width, const std::vector<float>& x, double eps = 1e-5) {
  const auto w = normal(size_t(width), 1, 0, 2), b = normal(size_t(width), 1, 0, 3);
  expect_as_reference({"layer_norm", rows, width, x, {}, {}, eps});
  expect_as_reference({"layer_norm", rows, width, x, w, {}, eps});
  expect_as_reference({"layer_norm", rows, width, x, {}, b, eps});
  expect_as_reference({"layer_norm", rows, width, x, w, b, eps});
}

TEST(OnednnLayerNorm, OrdinaryRowsOfManyShapes) {
  for (int64_t rows : {1, 2, 7, 64, 300})
    for (int64_t width : {2, 3, 16, 17, 100, 1024, 4097})
      if (rows * width <= kMostElements)
        expect_all_mixes(rows, width, normal(size_t(rows * width)));
}

TEST(OnednnLayerNorm, LongestRows) {
  expect_all_mixes(2, kLongestNormRow, normal(2 * kLongestNormRow));
  expect_all_mixes(2, kLongestNormRow, normal(2 * kLongestNormRow, 1, 4));
}

TEST(OnednnLayerNorm, ALargeOffsetWithSmallDifferences) {
  for (float offset : {1.0f, 10.0f, 1e3f, 1e6f, -3e4f})
    expect_all_mixes(3, 512, normal(3 * 512, 1, offset));
  for (float constant : {0.0f, 1.0f, 0.1f, -1e20f}) {
    expect_all_mixes(2, 100, std::vector<float>(200, constant));
    expect_all_mixes(2, 100, std::vector<float>(200, constant), 0);
  }
}

TEST(OnednnLayerNorm, ValuesWhoseSquaresOverflow) {
  for (float scale : {1e-42f, 1e-30f, 1e-18f, 1e12f, 1e18f, 1e25f, 3e37f})
    for (double eps : {0.0, 1e-5, 1e-12, 1e-40, 1e35})
      expect_all_mixes(3, 129, normal(3 * 129, scale), eps);
}

TEST(OnednnLayerNorm, RowsOfNanAndInfinityDoNotAffectOthers) {
  std::vector<float> x = normal(8 * 40);
  x[40 + 3] = kNan;
  x[2 * 40] = kInf;
  x[3 * 40 + 39] = -kInf;
  std::fill_n(x.begin() + 5 * 40, 40, 7.5f);
  expect_all_mixes(8, 40, x);
  const auto [status, out] = Case{"layer_norm", 8, 40, x, {}, {}}.run("vendor.onednn");
  ASSERT_TRUE(status.ok());
  for (size_t r = 0; r < 8; ++r)
    EXPECT_EQ(std::isnan(out[r * 40]), r == 1 || r == 2 || r == 3) << "row " << r;
}

TEST(OnednnLayerNorm, WeightsThatAreNotFiniteOrVeryLarge) {
  for (float odd : {kNan, kInf, -kInf, 3e38f, 0.0f, 1e-44f}) {
    std::vector<float> w = normal(16), b = normal(16);
    w[3] = odd;
    expect_as_reference({"layer_norm", 4, 16, normal(64), w, b});
    std::swap(w, b);
    expect_as_reference({"layer_norm", 4, 16, normal(64), w, b});
  }
}

TEST(OnednnLayerNorm, OneElementAndNone) {
  expect_all_mixes(3, 1, {1, -2, 0});
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{0, 8}, {8, 0}})
    expect_as_reference({"layer_norm", rows, width, {}, {}, {}});
}

}  // namespace
}  // namespace yard::onednn
