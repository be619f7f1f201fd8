// SPDX-License-Identifier: Apache-2.0
// Compares softmax with the reference for ordinary rows and for rows that oneDNN alone gets wrong.
#include <limits>

#include "testing.h"

namespace yard::onednn {
namespace {

using testing::Case;
using testing::expect_as_reference;
using testing::kInf;
using testing::kMostElements;
using testing::kNan;
using testing::normal;

TEST(OnednnSoftmax, OrdinaryRowsOfManyShapes) {
  for (int64_t rows : {1, 2, 7, 64, 300})
    for (int64_t width : {1, 2, 3, 16, 17, 100, 1024, 4097})
      for (float scale : {0.1f, 1.0f, 30.0f})
        if (rows * width <= kMostElements)
          expect_as_reference(
              {"softmax", rows, width, normal(size_t(rows * width), scale), {}, {}});
}

TEST(OnednnSoftmax, RowsOfNanAndInfinity) {
  for (std::vector<float> row : {std::vector<float>{1, kNan, 2},
                                 {-kNan, 1, 2},
                                 {1, 2, kNan},
                                 {kInf, 1, 2},
                                 {kInf, kInf, 1},
                                 {-kInf, -kInf, -kInf},
                                 {-kInf, 1, -kInf},
                                 {-kInf, -kInf, 3},
                                 {kInf, -kInf, 0},
                                 {3e38f, -3e38f, 0},
                                 {1e-40f, -1e-40f, 0},
                                 {0, -0.0f, 0}})
    expect_as_reference({"softmax", 1, 3, row, {}, {}});
}

TEST(OnednnSoftmax, ARowOfNanDoesNotAffectOthers) {
  std::vector<float> x = normal(9 * 33);
  x[2 * 33 + 5] = kNan;
  x[4 * 33] = kInf;
  std::fill_n(x.begin() + 7 * 33, 33, -kInf);
  const Case c{"softmax", 9, 33, x, {}, {}};
  expect_as_reference(c);
  const auto [status, out] = c.run("vendor.onednn");
  ASSERT_TRUE(status.ok());
  for (size_t r = 0; r < 9; ++r)
    EXPECT_EQ(std::isnan(out[r * 33]), r == 2 || r == 4 || r == 7) << "row " << r;
}

// f32 sums lose these elements, because each is less than half a unit of the largest.
TEST(OnednnSoftmax, ManySmallElementsBesideALargeOne) {
  for (int64_t width : {4096, 65536}) {
    std::vector<float> x(static_cast<size_t>(width), -17.5f);
    x[0] = 0;
    expect_as_reference({"softmax", 1, width, x, {}, {}});
  }
}

TEST(OnednnSoftmax, LongRows) {
  expect_as_reference({"softmax", 1, 1 << 20, normal(1 << 20, 8), {}, {}});
  expect_as_reference({"softmax", 1, 1 << 20, std::vector<float>(1 << 20, 0.25f), {}, {}});
}

TEST(OnednnSoftmax, EmptyTensors) {
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{0, 8}, {8, 0}, {0, 0}})
    expect_as_reference({"softmax", rows, width, {}, {}, {}});
}

}  // namespace
}  // namespace yard::onednn
