// SPDX-License-Identifier: Apache-2.0
// Tests the walk over leading dimensions: order, offsets, absent tensors and empty tensors.
#include "rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing.h"

namespace yard::reference {
namespace {

using testing::Strides;
using testing::TestTensor;
using Offsets = std::vector<std::array<int64_t, 2>>;

Offsets walk(const std::vector<int64_t>& shape, Tensor a, Tensor b) {
  Offsets seen;
  for_each_index<2>(shape, {a, b}, [&](const auto& at) { seen.push_back(at); });
  return seen;
}

TEST(Rows, WalksInRowMajorOrderWithEachTensorsStrides) {
  const TestTensor a(YARD_F32, {2, 3, 4}), b(YARD_F32, {2, 3, 4}, Strides{-100, 7, 1});
  EXPECT_EQ(walk({2, 3}, Tensor(a.c()), Tensor(b.c())),
            (Offsets{{0, 0}, {4, 7}, {8, 14}, {12, -100}, {16, -93}, {20, -86}}));
}

TEST(Rows, NoLeadingDimensionIsOneIndex) {
  const TestTensor a(YARD_F32, {4});
  EXPECT_EQ(walk({}, Tensor(a.c()), Tensor(nullptr)), (Offsets{{0, 0}}));
}

TEST(Rows, AnAbsentTensorStaysAtZero) {
  const TestTensor a(YARD_F32, {3, 2});
  EXPECT_EQ(walk({3}, Tensor(a.c()), Tensor(nullptr)), (Offsets{{0, 0}, {2, 0}, {4, 0}}));
}

TEST(Rows, NothingInAnEmptyShape) {
  const TestTensor a(YARD_F32, {3, 0, 2});
  EXPECT_TRUE(walk({3, 0}, Tensor(a.c()), Tensor(nullptr)).empty());
}

TEST(Rows, AllDimensionsThatATensorMayHave) {
  const TestTensor a(YARD_F16, {2, 1, 2, 1, 2, 1, 2, 3});
  const std::vector<int64_t> lead{2, 1, 2, 1, 2, 1, 2};
  const Offsets seen = walk(lead, Tensor(a.c()), Tensor(a.c()));
  ASSERT_EQ(seen.size(), 16u);
  for (size_t n = 0; n < seen.size(); ++n) EXPECT_EQ(seen[n][0], static_cast<int64_t>(3 * n));
}

TEST(Rows, ARowReadsAndRoundsThroughItsStride) {
  TestTensor a(YARD_BF16, {3}, Strides{-2});
  a.set({1, 2, 3});
  const Row<BF16> row(Tensor(a.c()), 0);
  EXPECT_EQ(row.size(), 3);
  EXPECT_EQ(row[2], 3);
  row.set(1, 1.00390625);  // a tie rounds to even
  EXPECT_EQ(a.values(), (std::vector<double>{1, 1, 3}));
  EXPECT_TRUE(a.gaps_intact());
}

}  // namespace
}  // namespace yard::reference
