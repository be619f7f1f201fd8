// SPDX-License-Identifier: Apache-2.0
// Tests which rows oneDNN computes and which are computed in double.
#include "rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "testing.h"

namespace yard::onednn {
namespace {

using testing::kInf;
using testing::kNan;

Range range(const std::vector<float>& v) { return range_of(v.data(), int64_t(v.size())); }

TEST(OnednnRows, RangeIsThatOfTheNumbers) {
  const Range r = range({3, -2.5f, 0, 1e-45f, 7});
  EXPECT_EQ(r.least(), -2.5f);
  EXPECT_EQ(r.greatest(), 7);
  EXPECT_TRUE(r.finite());
  EXPECT_TRUE(range({0, -0.0f, 3.4e38f, -3.4e38f}).finite());
  for (float odd : {kInf, -kInf, kNan, -kNan}) EXPECT_FALSE(range({1, odd, -1}).finite()) << odd;
}

TEST(OnednnRows, WhichSoftmaxesAreNan) {
  EXPECT_FALSE(softmax_is_nan(range({1, 2, 3})));
  EXPECT_FALSE(softmax_is_nan(range({-kInf, 2, -kInf})));
  EXPECT_TRUE(softmax_is_nan(range({-kInf, -kInf})));
  EXPECT_TRUE(softmax_is_nan(range({1, kInf})));
  EXPECT_TRUE(softmax_is_nan(range({kNan, 1})));
  EXPECT_TRUE(softmax_is_nan(range({1, -kNan})));
  EXPECT_TRUE(softmax_is_nan(range({-kNan, -kInf})));
}

TEST(OnednnRows, WhichRowsSuitTheNorm) {
  EXPECT_TRUE(suits_layer_norm(range({-1, 0.5f, 2}), 1e-5));
  EXPECT_TRUE(suits_layer_norm(range({0, 0, 3}), 0));
  EXPECT_FALSE(suits_layer_norm(range({100, 101}), 1e-5));
  EXPECT_FALSE(suits_layer_norm(range({4, 4}), 1e-5));
  EXPECT_FALSE(suits_layer_norm(range({-1e20f, 1e20f}), 1e-5));
  EXPECT_FALSE(suits_layer_norm(range({-1e-20f, 1e-20f}), 0));
  EXPECT_TRUE(suits_layer_norm(range({-1e-20f, 1e-20f}), 1e-5));
  EXPECT_FALSE(suits_layer_norm(range({kNan, 1}), 1e-5));
}

TEST(OnednnRows, SumsAreSettledOnlyWhereTheyDrifted) {
  std::vector<float> right = {0.25f, 0.5f, 0.25f};
  settle_sum(right.data(), 3);
  EXPECT_EQ(right, (std::vector<float>{0.25f, 0.5f, 0.25f}));
  std::vector<float> drifted(19, 1.0f / 16);
  settle_sum(drifted.data(), 19);
  for (float v : drifted) EXPECT_FLOAT_EQ(v, 1.0f / 19);
}

}  // namespace
}  // namespace yard::onednn
