// SPDX-License-Identifier: Apache-2.0
// Compares attention of oneDNN with the reference kernel.
#include <gtest/gtest.h>
#include <yard/runtime.h>
#include <yard/verify.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cost.h"
#include "weigh.h"

namespace yard::onednn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Takes many seconds, and the conformance tests run it there.
#ifndef YARD_UNDER_ASAN
TEST(OnednnAttention, IsVerified) {
  for (const char* op : {"attention.full", "attention.causal"})
    for (const char* kernel : {"vendor.onednn", "vendor.onednn_bf16"}) {
      VerifyOptions options;
      options.op = op, options.kernel = kernel, options.cases = 150;
      const auto report = verify(Runtime::shared(), options);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      ASSERT_EQ(report->kernels.size(), 1u);
      const KernelReport& k = report->kernels[0];
      EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
      const bool bf16 = std::string(kernel) == "vendor.onednn_bf16";
      EXPECT_TRUE(k.verified() || (bf16 && k.ran() == 0)) << op;  // it needs avx512bf16
    }
}
#endif

// Covers whole and partial blocks of queries and keys, grouped heads and gaps between rows.
struct Sequence {
  const char* op;
  int64_t seq, kv_seq, heads, kv_heads, dim;
  int64_t gap = 0;
};

class Compared {
 public:
  explicit Compared(const Sequence& c) : c_(c) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (auto* data : {&query, &key, &value})
      data->resize(static_cast<size_t>(std::max(c.seq, c.kv_seq) * c.heads * (c.dim + c.gap)));
    for (auto* data : {&query, &key, &value})
      for (float& f : *data) f = normal(random);
  }
  TensorView view(std::vector<float>& data, int64_t seq, int64_t heads) const {
    const int64_t row = c_.dim + c_.gap;
    return TensorView(data.data(), DType::f32, {1, seq, heads, c_.dim},
                      {seq * heads * row, heads * row, row, 1});
  }
  std::vector<float> run(const char* kernel, std::string* served = nullptr) {
    std::vector<float> out(query.size(), -7);
    ResultRecord record;
    Options o;
    if (served == nullptr) o.force = kernel;
    if (served != nullptr) o.deny = {"default.*"}, o.result = &record;
    if (served != nullptr) o.policy.emplace().prefer = Kind::kVendor;
    const Status s = Runtime::shared().call(
        c_.op,
        {view(out, c_.seq, c_.heads), view(query, c_.seq, c_.heads),
         view(key, c_.kv_seq, c_.kv_heads), view(value, c_.kv_seq, c_.kv_heads)},
        o);
    EXPECT_TRUE(s.ok()) << s.to_string();
    if (served != nullptr) *served = record.kernel;
    return out;
  }
  void expect_equal() {
    const std::vector<float> expected = run("reference.cpp"), found = run("vendor.onednn");
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
      ASSERT_NEAR(found[i], expected[i], 1e-4) << c_.op << ' ' << c_.seq << ' ' << c_.kv_seq
                                               << " heads " << c_.heads << ", element " << i;
    }
  }
  std::vector<float> query, key, value;

 private:
  Sequence c_;
};

TEST(OnednnAttention, OfSeveralBlocksEqualsTheReference) {
  for (const Sequence& c : {Sequence{"attention.causal", 300, 300, 2, 1, 24},
                            Sequence{"attention.causal", 130, 1100, 4, 2, 16},
                            Sequence{"attention.full", 129, 513, 2, 2, 33, 3},
                            Sequence{"attention.full", 1, 512, 1, 1, 64},
                            Sequence{"attention.causal", 128, 512, 1, 1, 128},
                            Sequence{"attention.full", 256, 1024, 1, 1, 17}})
    Compared(c).expect_equal();
}

// Keys that a query does not see contribute nothing, whatever they hold.
TEST(OnednnAttention, NaNAndInfinitiesAreTheReferences) {
  const Sequence c{"attention.causal", 200, 700, 1, 1, 16};
  Compared last_key(c), one_key(c), infinite(c), least(c);
  last_key.key[699 * 16] = NAN;
  last_key.expect_equal();
  one_key.key[550 * 16] = NAN;
  one_key.expect_equal();
  infinite.key[550 * 16] = kInfinity;
  infinite.expect_equal();
  for (float& f : least.key) f = -kInfinity;
  for (float& f : least.query) f = 1;
  least.expect_equal();
}

// A product cannot leave out values of weight 0.
TEST(OnednnAttention, LeavesValuesThatAreNotFiniteToOthers) {
  Compared c({"attention.causal", 100, 600, 1, 1, 16});
  c.value[599 * 16] = NAN;
  std::string served;
  const std::vector<float> found = c.run("", &served), expected = c.run("reference.cpp");
  EXPECT_EQ(served, "reference.cpp");
  EXPECT_FALSE(std::isnan(found[0]));
  EXPECT_TRUE(std::isnan(found[99 * 16]));
}

TEST(OnednnWeights, AreThoseOfASoftmaxWhateverTheBlocks) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 20);
  for (const bool bf16 : {false, true})
    for (const int64_t seen : {1, 15, 16, 17, 64, 100}) {
      std::vector<float> scores(100), result = {1, 2};
      for (float& s : scores) s = normal(random);
      std::vector<double> expected;
      for (const float s : scores) expected.push_back(double{s} * 0.5);
      float top = 3, sum = 2;
      std::vector<float> weights(100, -1);
      weigh_row(bf16, scores.data(), weights.data(), seen, 100, 0.5f, top, sum, result.data(), 2);
      double most = 3, total = 0;
      for (int64_t j = 0; j < seen; ++j) most = std::max(most, expected[static_cast<size_t>(j)]);
      EXPECT_FLOAT_EQ(top, static_cast<float>(most));
      for (size_t j = 0; j < 100; ++j) {
        const float found =
            bf16 ? std::bit_cast<float>(
                       uint32_t{reinterpret_cast<const uint16_t*>(weights.data())[j]} << 16)
                 : weights[j];
        const double w = static_cast<int64_t>(j) < seen ? std::exp(expected[j] - most) : 0;
        total += w;
        EXPECT_NEAR(found, w, w * (bf16 ? 4e-3 : 5e-6) + 1e-37) << j;
      }
      EXPECT_NEAR(sum, total + 2 * std::exp(3 - most), 1e-5 * sum);
      EXPECT_NEAR(result[1], 2 * std::exp(3 - most), 1e-5);
    }
}

TEST(OnednnWeights, RoundToTheNearestInBf16) {
  const float result[] = {1.00390625f, 1.01171875f, -3.0e38f, 0, NAN, 1.0f};
  uint16_t out[6];
  finish_row(true, result, 1, 6, out);
  const uint16_t expected[] = {0x3f80, 0x3f82, 0xff62, 0, 0x7fc0, 0x3f80};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out[i], expected[i]) << i;
  finish_row(true, result, 0, 2, out);  // no key was seen
  EXPECT_EQ(out[0], 0);
}

TEST(OnednnWeights, FindsWhatIsNotFinite) {
  std::vector<float> rows(3 * 40, 1);
  EXPECT_TRUE(all_finite(false, rows.data(), 3, 33, 40));
  rows[33] = NAN;  // between rows
  EXPECT_TRUE(all_finite(false, rows.data(), 3, 33, 40));
  rows[112] = -kInfinity;
  EXPECT_FALSE(all_finite(false, rows.data(), 3, 33, 40));
  std::vector<uint16_t> half(64, 0x3f80);
  EXPECT_TRUE(all_finite(true, half.data(), 1, 64, 64));
  half[63] = 0x7f81;
  EXPECT_FALSE(all_finite(true, half.data(), 1, 64, 64));
}

TEST(OnednnAttention, StatesAnEstimate) {
  const double one = attention_ns(false, 1e6, 128, 1), more = attention_ns(false, 1e7, 128, 1);
  EXPECT_GT(one, 0);
  EXPECT_GT(more, one);
}

}  // namespace
}  // namespace yard::onednn
