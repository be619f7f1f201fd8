// SPDX-License-Identifier: Apache-2.0
// Tests the table of metrics and its forms with invented figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/metrics.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace yard {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

CallStats call(std::string op, std::string kernel, uint64_t calls) {
  CallStats c;
  c.op = std::move(op), c.kernel = std::move(kernel), c.mode = "dynamic";
  c.call = c.op + "(f32[8])";
  c.calls = calls;
  return c;
}

const Metric& find(const std::vector<Metric>&& all, std::string_view name) = delete;
const Metric& find(const std::vector<Metric>& all, std::string_view name) {
  for (const Metric& m : all)
    if (m.info->name == name) return m;
  throw std::runtime_error("no metric " + std::string(name));
}

double total(const Metric& m) {
  double sum = 0;
  for (const Metric::Sample& s : m.samples) sum += s.value;
  return sum;
}

TEST(MetricTable, NamesAreUniqueAndFollowTheConventions) {
  std::set<std::string> names;
  for (const MetricInfo& i : metric_infos()) {
    const std::string name = i.name, help = i.help;
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_TRUE(name.starts_with("yard_"));
    EXPECT_EQ(name.ends_with("_total"), i.type == MetricInfo::Type::kCounter) << name;
    EXPECT_TRUE(help.ends_with('.')) << name;
    EXPECT_EQ(help.find_first_of("\\\n\""), std::string::npos) << name;
  }
}

TEST(MetricTable, ClassesOfAKernelAreAddedUp) {
  RuntimeStats stats;
  stats.calls = {call("softmax", "default.simd", 3), call("softmax", "default.simd", 4),
                 call("softmax", "reference.cpp", 5)};
  stats.calls[1].fallbacks = 2;
  stats.calls[0].failures.by_class[static_cast<size_t>(ErrorClass::kFault)] = 6;
  stats.calls[1].failures.by_class[static_cast<size_t>(ErrorClass::kFault)] = 1;
  stats.ops = {{"softmax", 12, 10, 2}};
  const std::vector<Metric> all = metrics(stats, {});
  const Metric& calls = find(all, "yard_calls_total");
  ASSERT_EQ(calls.samples.size(), 2u);
  EXPECT_THAT(calls.samples[0].labels, ElementsAre("softmax", "default.simd", "dynamic"));
  EXPECT_EQ(calls.samples[0].value, 7);
  EXPECT_EQ(total(find(all, "yard_fallbacks_total")), 2);
  const Metric& failures = find(all, "yard_failures_total");
  ASSERT_EQ(failures.samples.size(), 1u);
  EXPECT_THAT(failures.samples[0].labels, ElementsAre("softmax", "default.simd", "fault"));
  EXPECT_EQ(failures.samples[0].value, 7);
  EXPECT_EQ(total(find(all, "yard_cache_hits_total")), 10);
  EXPECT_EQ(total(find(all, "yard_cache_misses_total")), 2);
}

TEST(MetricTable, BucketsOfHistogramsAreCumulative) {
  RuntimeStats stats;
  stats.calls = {call("softmax", "default.simd", 640)};
  stats.calls[0].latency = {10, 123456, {{255, 2}, {1023, 3}, {1279, 1}, {UINT64_MAX, 4}}};
  const std::vector<Metric> all = metrics(stats, {});
  const Metric::Sample& s = find(all, "yard_call_seconds").samples.at(0);
  EXPECT_EQ(s.count, 10u);
  EXPECT_DOUBLE_EQ(s.value, 123456e-9);
  ASSERT_EQ(s.buckets.size(), metric_bounds().size());
  EXPECT_DOUBLE_EQ(metric_bounds()[0], 256e-9);
  EXPECT_EQ(s.buckets[0], 2u);  // 256 ns
  EXPECT_EQ(s.buckets[1], 2u);  // 512 ns
  EXPECT_EQ(s.buckets[2], 5u);  // 1024 ns
  EXPECT_EQ(s.buckets[3], 6u);
  EXPECT_EQ(s.buckets.back(), 6u);  // the infinite bound is not listed
}

TEST(MetricTable, StatesOfBreakers) {
  RuntimeStats stats;
  stats.calls = {call("a", "k", 1), call("b", "k", 1), call("c", "k", 1)};
  HealthReport health;
  health.kernels.resize(2);
  health.kernels[0].op = "b", health.kernels[0].kernel = "k";
  health.kernels[0].open.resize(2);
  health.kernels[0].open[1].state = BreakerState::kHalfOpen;
  health.kernels[1].op = "c", health.kernels[1].kernel = "k";
  health.kernels[1].open.resize(1);
  health.kernels[1].open[0].state = BreakerState::kHalfOpen;
  const std::vector<Metric> all = metrics(stats, health);
  const Metric& m = find(all, "yard_breaker_state");
  ASSERT_EQ(m.samples.size(), 3u);
  EXPECT_EQ(m.samples[0].value, 0);
  EXPECT_EQ(m.samples[1].value, 2);
  EXPECT_EQ(m.samples[2].value, 1);
}

TEST(MetricTable, SeriesBeyondTheLimitAreCountedAsOther) {
  RuntimeStats stats;
  for (int i = 0; i < 500; ++i) {
    stats.calls.push_back(call("op" + std::to_string(i), "k", 1 + i));
    stats.calls.back().failures.by_class[static_cast<size_t>(ErrorClass::kFault)] = 1;
    stats.calls.back().latency = {1, 300, {{319, 1}}};
    stats.ops.push_back({"op" + std::to_string(i), 1, 1, 1});
  }
  for (const std::vector<Metric>& all : {metrics(stats, {}), metrics(stats, {}, 10)}) {
    EXPECT_EQ(total(find(all, "yard_calls_total")), 500 * 501 / 2);
    EXPECT_EQ(total(find(all, "yard_failures_total")), 500);
    EXPECT_EQ(total(find(all, "yard_cache_hits_total")), 500);
  }
  const std::vector<Metric> few = metrics(stats, {}, 10);
  for (const char* name : {"yard_calls_total", "yard_call_seconds", "yard_cache_hits_total",
                           "yard_breaker_state", "yard_failures_total"}) {
    const Metric& m = find(few, name);
    EXPECT_EQ(m.samples.size(), 11u) << name;
    EXPECT_EQ(m.samples.back().labels[0], "other") << name;
  }
  EXPECT_EQ(find(few, "yard_call_seconds").samples.back().count, 490u);
  EXPECT_THAT(find(few, "yard_failures_total").samples.back().labels,
              ElementsAre("other", "other", "fault"));
}

RuntimeStats hostile() {
  RuntimeStats stats;
  stats.calls = {call("a\"} 1\nevil_total{x=\"", "back\\slash", 1),
                 call("null\0byte\x1b[31m"s + "\xff\xfe", "\xed\xa0\x80", 2),
                 call(std::string(100000, 'x'), "\xc3\xa9t\xc3\xa9", 3)};
  stats.reloads.last_error = "\n# TYPE yard_calls_total gauge\n";
  return stats;
}

TEST(MetricForms, HostileNamesDoNotBreakJson) {
  const std::string json = metrics_json(metrics(hostile(), {}));
  EXPECT_LT(json.size(), 20000u);
  for (const unsigned char c : json) EXPECT_GE(c, 0x20);
  EXPECT_THAT(json, HasSubstr(R"("op": "a\"} 1?evil_total{x=\"")"));
  EXPECT_THAT(json, HasSubstr(R"("kernel": "back\\slash")"));
  EXPECT_THAT(json, HasSubstr("\"kernel\": \"???\""));
  EXPECT_THAT(json, HasSubstr("\xc3\xa9t\xc3\xa9"));
  EXPECT_THAT(json, Not(HasSubstr("\xff")));
}

TEST(MetricForms, HostileNamesDoNotBreakTheTextFormat) {
  const Result<std::string> text = metrics_text(metrics(hostile(), {}));
  if (!text.ok() && text.status().code() == Code::kUnsupported)
    GTEST_SKIP() << text.status().message();
  ASSERT_TRUE(text.ok());
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.starts_with("# HELP yard_") || line.starts_with("# TYPE yard_") ||
                line.starts_with("yard_"))
        << line;
}

// docs/reference/metrics.md must have exactly one row for each metric.
TEST(MetricTable, IsThatOfTheDocs) {
  std::ifstream file(YARD_SOURCE_DIR "/docs/reference/metrics.md");
  ASSERT_TRUE(file);
  std::vector<std::string> rows, expected;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `yard_")) rows.push_back(line);
  for (const MetricInfo& i : metric_infos()) {
    std::string labels;
    for (const char* l : i.labels) labels += (labels.empty() ? "`" : ", `") + std::string(l) + "`";
    expected.push_back("| `" + std::string(i.name) + "` | " + to_string(i.type) + " | " + labels +
                       (labels.empty() ? "| " : " | ") + i.help + " |");
  }
  EXPECT_EQ(rows, expected);
}

}  // namespace
}  // namespace yard
