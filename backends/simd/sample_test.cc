// SPDX-License-Identifier: Apache-2.0
// Tests that `sample` chooses the reference's index for all options, values and divisions of rows.
#include "testing_reference.h"

namespace yard::simd {
namespace {

using testing::Contents;
using testing::fill;
using testing::kContents;
using testing::kFloats;
using testing::Strides;
using testing::TestTensor;

struct SampleOptions {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  int64_t seed = 0;
};

void compare_choices(const TestTensor& x, int64_t rows, const SampleOptions& o) {
  TestTensor found(YARD_I32, {rows}), expected(YARD_I32, {rows});
  ASSERT_EQ(testing::run("sample", found, x, o.temperature, o.top_k, o.top_p, o.seed).code,
            YARD_OK);
  ASSERT_EQ(
      reference::testing::run("sample", expected, x, o.temperature, o.top_k, o.top_p, o.seed).code,
      YARD_OK);
  ASSERT_EQ(found.values(), expected.values())
      << "dtype " << x.dtype() << ", " << x.size() / static_cast<size_t>(rows)
      << " elements, temperature " << o.temperature << ", top_k " << o.top_k << ", top_p "
      << o.top_p << ", seed " << o.seed;
}

void compare_options(const TestTensor& x, int64_t rows, int64_t seed) {
  for (const double temperature : {0.0, 1e-3, 0.7, 1.0, 20.0, 1e300})
    for (const int64_t top_k : {0, 1, 2, 7, 40, 1000})
      for (const double top_p : {-1.0, 0.0, 0.1, 0.5, 0.95, 0.9999999, 1.0})
        compare_choices(x, rows, {temperature, top_k, top_p, seed++});
}

TEST(Sample, ChoosesAsTheReferenceAtAnyWidth) {
  for (const uint32_t dtype : kFloats)
    for (const int64_t width : {1, 2, 3, 7, 16, 33, 127, 128, 129, 300}) {
      TestTensor x(dtype, {4, width});
      fill(x, Contents::kNormal, static_cast<uint32_t>(width));
      compare_options(x, 4, width);
    }
}

// Rows have few different values, and zeros of both signs. The lower index comes first.
TEST(Sample, ChoosesAsTheReferenceAmongEqualElements) {
  for (const uint32_t dtype : kFloats)
    for (const int levels : {1, 2, 5}) {
      TestTensor x(dtype, {4, 200});
      std::vector<double> values;
      for (int i = 0; i < 800; ++i) {
        const double v = (i * 37 + i / 7) % levels - levels / 2;
        values.push_back(v == 0 && i % 3 == 0 ? -0.0 : v);
      }
      x.set(values);
      compare_options(x, 4, levels);
    }
}

TEST(Sample, ChoosesAsTheReferenceOnSpecialValues) {
  for (const uint32_t dtype : kFloats)
    for (const Contents contents : kContents) {
      TestTensor x(dtype, {6, 90});
      fill(x, contents, 5);
      compare_options(x, 6, 11);
    }
  TestTensor none(YARD_F32, {2, 50});
  none.set(std::vector<double>(100, -HUGE_VAL));
  compare_options(none, 2, 3);
}

// In a vocabulary a few logits stand out. With flat logits nearly all elements are kept.
TEST(Sample, ChoosesAsTheReferenceInAVocabulary) {
  constexpr int64_t kVocabulary = 20011;
  for (const uint32_t dtype : kFloats)
    for (const double spread : {0.01, 2.5}) {
      TestTensor x(dtype, {2, kVocabulary});
      std::mt19937 random(7);
      std::normal_distribution<double> normal;
      std::vector<double> values(x.size());
      for (double& v : values) v = spread * normal(random) + (random() % 997 == 0 ? 8 * spread : 0);
      x.set(values);
      int64_t seed = 100;
      for (const int64_t top_k : {0, 40, 5000})
        for (const double top_p : {0.3, 0.95, 1.0})
          compare_choices(x, 2, {0.8, top_k, top_p, seed++});
    }
}

TEST(Sample, TakesRowsAnywhereAndNumbersThem) {
  TestTensor x(YARD_F32, {3, 7, 40}, Strides{50, 200, 1}), x64(YARD_F32, {21, 40});
  fill(x, Contents::kNormal, 1);
  x64.set(x.values());
  TestTensor found(YARD_I64, {3, 7}, Strides{1, 3}), expected(YARD_I64, {21}),
      pieces(YARD_I64, {21});
  ASSERT_EQ(testing::run("sample", found, x, 1.0, int64_t{20}, 0.9, int64_t{4}).code, YARD_OK);
  ASSERT_EQ(
      reference::testing::run("sample", expected, x64, 1.0, int64_t{20}, 0.9, int64_t{4}).code,
      YARD_OK);
  ASSERT_EQ(testing::run_on(testing::splitting_host(), "sample", pieces, x64, 1.0, int64_t{20}, 0.9,
                            int64_t{4})
                .code,
            YARD_OK);
  EXPECT_EQ(found.values(), expected.values());
  EXPECT_EQ(pieces.values(), expected.values());
  EXPECT_TRUE(found.gaps_intact());
}

TEST(Sample, RefusesWhatTheReferenceRefuses) {
  TestTensor x(YARD_F32, {1, 4}), out(YARD_I32, {1});
  x.fill(1);
  const double nan = std::nan("");
  const SampleOptions refused[] = {
      {-1, 0, 1, 0}, {HUGE_VAL, 0, 1, 0}, {nan, 0, 1, 0}, {1, -1, 1, 0}, {1, 0, nan, 0}};
  for (const SampleOptions& o : refused) {
    const auto ours = testing::run("sample", out, x, o.temperature, o.top_k, o.top_p, o.seed);
    const auto theirs =
        reference::testing::run("sample", out, x, o.temperature, o.top_k, o.top_p, o.seed);
    EXPECT_EQ(ours.code, YARD_CALLER);
    EXPECT_EQ(ours.message, theirs.message);
  }
}

}  // namespace
}  // namespace yard::simd
