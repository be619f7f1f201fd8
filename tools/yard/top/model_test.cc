// SPDX-License-Identifier: Apache-2.0
#include "top/model.h"

#include <gtest/gtest.h>

namespace yard::tool {
namespace {

// A class in an answer to `stats`.
struct Counted {
  const char* op;
  const char* kernel;
  uint64_t calls = 0, sampled = 0, ns = 0;  // each sampled call took `ns`
  uint64_t faults = 0, fallbacks = 0;
  const char* call = "f(f32[8])@cpu";
};
Json stats_of(const std::vector<Counted>& counted) {
  Json calls = Json::array();
  for (const Counted& c : counted) {
    Json buckets = Json::array();
    if (c.sampled > 0) buckets.push_back({{"up_to_ns", c.ns}, {"count", c.sampled}});
    calls.push_back(
        {{"op", c.op},
         {"kernel", c.kernel},
         {"mode", "auto"},
         {"call", c.call},
         {"calls", c.calls},
         {"fallbacks", c.fallbacks},
         {"failures", {{"declined", 0u}, {"fault", c.faults}}},
         {"latency",
          {{"count", c.sampled}, {"sum_ns", c.sampled * c.ns}, {"buckets", std::move(buckets)}}}});
  }
  return {
      {"generation", 3u}, {"since", 90.0}, {"sampled_one_in", 64u}, {"calls", std::move(calls)}};
}
TopSample at(double seconds, const std::vector<Counted>& counted, const Json& health = {}) {
  return read_sample(stats_of(counted), health, seconds, 100);
}
const TopRow& row(const TopModel& m, const std::string& kernel) {
  for (const TopRow& r : m.rows)
    if (r.kernel == kernel) return r;
  throw std::runtime_error("no row of " + kernel);
}

TEST(TopModel, RatesAreOfTheInterval) {
  const TopSample before = at(10, {{"f", "a", 1000}, {"f", "b", 50}});
  const TopModel m = compare(&before, at(12, {{"f", "a", 3000, 0, 0, 8, 4}, {"f", "b", 50}}));
  EXPECT_EQ(m.interval_s, 2);
  EXPECT_EQ(m.calls_per_s, 1000);
  EXPECT_EQ(row(m, "a").calls_per_s, 1000);
  EXPECT_EQ(row(m, "a").failures_per_s, 4);
  EXPECT_EQ(row(m, "a").fallbacks_per_s, 2);
  EXPECT_EQ(row(m, "a").calls, 3000u);
  EXPECT_EQ(row(m, "a").health, TopHealth::kFailing);
  EXPECT_EQ(row(m, "b").calls_per_s, 0);
  EXPECT_EQ(row(m, "b").health, TopHealth::kHealthy);
}

TEST(TopModel, TheFirstAnswerCountsSinceTheProcessStartedToCount) {
  const TopModel m = compare(nullptr, at(5, {{"f", "a", 1000}}));
  EXPECT_EQ(m.interval_s, 10);
  EXPECT_EQ(row(m, "a").calls_per_s, 100);
}

TEST(TopModel, AResetInBetweenCountsFromZero) {
  const TopSample before = at(1, {{"f", "a", 1000, 10, 100}});
  const TopModel m = compare(&before, at(2, {{"f", "a", 30, 2, 700}}));
  EXPECT_EQ(row(m, "a").calls_per_s, 30);
  EXPECT_EQ(row(m, "a").p50_ns, 700);
}

TEST(TopModel, ShareIsMeanLatencyTimesCalls) {
  const TopSample before = at(1, {{"f", "a", 0}, {"g", "b", 0}});
  // Kernel a has 100 calls of 300 ns. Kernel b has 200 of 50 ns and fewer samples.
  const TopModel m = compare(&before, at(2, {{"f", "a", 100, 50, 300}, {"g", "b", 200, 3, 50}}));
  EXPECT_DOUBLE_EQ(row(m, "a").share, 0.75);
  EXPECT_DOUBLE_EQ(row(m, "b").share, 0.25);
}

TEST(TopModel, ClassesOfAKernelCountWithTheirOwnMeans) {
  // Most samples belong to the small class, but most of the time to the large one.
  const TopModel m = compare(nullptr, at(1, {{"f", "a", 100, 90, 10, 0, 0, "f(f32[1])@cpu"},
                                             {"f", "a", 100, 1, 1000, 0, 0, "f(f32[9])@cpu"},
                                             {"g", "b", 100, 10, 1010}}));
  EXPECT_DOUBLE_EQ(row(m, "a").share, 0.5);
  EXPECT_EQ(m.classes.size(), 3u);
  EXPECT_EQ(m.rows.size(), 2u);
}

TEST(TopModel, LatencyIsThatOfTheIntervalIfCallsWereSampledInIt) {
  const TopSample before = at(1, {{"f", "a", 100, 100, 10}, {"f", "b", 10, 5, 20}});
  Json stats = stats_of({{"f", "a", 200, 100, 10}, {"f", "b", 11, 5, 20}});
  stats["calls"][0]["latency"] = {
      {"count", 110u},
      {"sum_ns", 11000u},
      {"buckets", {{{"up_to_ns", 10u}, {"count", 100u}}, {{"up_to_ns", 1000u}, {"count", 10u}}}}};
  const TopModel m = compare(&before, read_sample(stats, {}, 2, 100));
  EXPECT_EQ(row(m, "a").p50_ns, 1000);
  EXPECT_EQ(row(m, "a").mean_ns, 1000);
  EXPECT_EQ(row(m, "b").p50_ns, 20);
}

TEST(TopModel, ABucketWithoutBoundCountsAsTheOneBefore) {
  Json stats = stats_of({{"f", "a", 100}});
  stats["calls"][0]["latency"] = {
      {"count", 100u},
      {"sum_ns", 1u},
      {"buckets",
       {{{"up_to_ns", UINT64_MAX}, {"count", 50u}}, {{"up_to_ns", 10u}, {"count", 50u}}}}};
  const TopModel m = compare(nullptr, read_sample(stats, {}, 1, 100));
  EXPECT_EQ(row(m, "a").p50_ns, 10);
  EXPECT_EQ(row(m, "a").p99_ns, 10);
}

TEST(TopModel, BreakersAreHealthOfTheirKernel) {
  const Json health = {{"breakers",
                        {{{"op", "f"}, {"kernel", "a"}, {"key", "f32"}, {"state", "half_open"}},
                         {{"op", "f"}, {"kernel", "b"}, {"key", ""}, {"state", "open"}}}}};
  const TopModel m = compare(nullptr, at(1, {{"f", "a", 1}, {"f", "b", 1}, {"g", "a", 1}}, health));
  EXPECT_EQ(m.rows[0].health, TopHealth::kHalfOpen);
  EXPECT_EQ(m.rows[1].health, TopHealth::kOpen);
  EXPECT_EQ(m.rows[2].health, TopHealth::kHealthy) << "of another op";
  EXPECT_EQ(m.classes[0].health, TopHealth::kHealthy) << "the breaker is of some classes only";
  EXPECT_EQ(m.classes[1].health, TopHealth::kOpen);
}

TEST(TopModel, HitRate) {
  Json stats = stats_of({});
  stats["ops"] = {{{"op", "f"}, {"hits", 60u}, {"misses", 40u}}};
  const TopSample before = read_sample(stats, {}, 1, 100);
  stats["ops"] = {{{"op", "f"}, {"hits", 150u}, {"misses", 50u}}};
  EXPECT_DOUBLE_EQ(compare(&before, read_sample(stats, {}, 2, 100)).hit_rate, 0.9);
  EXPECT_DOUBLE_EQ(compare(&before, before).hit_rate, 1);
}

TEST(TopModel, AnswersOfAnyShapeAreRead) {
  for (const char* text :
       {"null", "[]", "7", R"({"calls": 1, "ops": {}, "reloads": []})",
        R"({"calls": [1, null, {"op": 2, "calls": -1, "latency": [], "failures": [1]}]})",
        R"({"calls": [{"op": "f", "calls": 1e300, "latency": {"buckets": [3, {"count": "x"}]}}],
            "ops": [3], "since": "yesterday"})"}) {
    const TopSample s = read_sample(Json::parse(text), Json::parse(text), 1, 1);
    to_json(compare(&s, s));
  }
}

TEST(TopModel, RowsAreFilteredAndSorted) {
  const TopModel m = compare(nullptr, at(1, {{"softmax", "vendor.x", 5, 5, 100},
                                             {"rms_norm", "default.simd", 50, 5, 9},
                                             {"rms_norm", "vendor.x", 7, 5, 200, 1}}));
  const auto names = [&](const char* filter, TopSort sort, bool reverse = false) {
    std::string to;
    for (const TopRow& r : chosen_rows(m.rows, filter, sort, reverse))
      to += r.op + "/" + r.kernel + " ";
    return to;
  };
  EXPECT_EQ(names("", TopSort::kShare),
            "rms_norm/vendor.x softmax/vendor.x rms_norm/default.simd ");
  EXPECT_EQ(names("", TopSort::kCalls),
            "rms_norm/default.simd rms_norm/vendor.x softmax/vendor.x ");
  EXPECT_EQ(names("", TopSort::kLatency, true),
            "rms_norm/default.simd softmax/vendor.x rms_norm/vendor.x ");
  EXPECT_EQ(names("SIMD", TopSort::kShare), "rms_norm/default.simd ");
  EXPECT_EQ(names("soft", TopSort::kShare), "softmax/vendor.x ");
  EXPECT_EQ(names("", TopSort::kHealth).substr(0, 17), "rms_norm/vendor.x");
  EXPECT_EQ(names("none", TopSort::kOp), "");
}

TEST(TopModel, AKernelThatIsMuchSlowerThanAnotherOfItsClassIsNamed) {
  const std::vector<Counted> all = {{"f", "fast", 1000, 10, 1000},
                                    {"f", "slow", 100, 10, 30'000},
                                    {"f", "similar", 100, 10, 1500},
                                    {"f", "rare", 100, 2, 90'000},
                                    {"f", "elsewhere", 100, 10, 90'000, 0, 0, "f(f32[9])@cpu"}};
  const TopSample before = at(10, {all[0]}), now = at(12, all);
  const TopModel m = compare(&before, now);
  ASSERT_EQ(m.slower.size(), 1u);
  EXPECT_EQ(m.slower[0].text(),
            "slow takes 30.0 us where fast takes 1.00 us (30 times as long): f(f32[8])@cpu");
  EXPECT_EQ(value_at(to_json(m), "slower")[0]["faster"], "fast");
  // A slower kernel is listed only while it is used.
  EXPECT_TRUE(compare(&now, at(14, all)).slower.empty());
}

}  // namespace
}  // namespace yard::tool
