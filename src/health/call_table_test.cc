// SPDX-License-Identifier: Apache-2.0
#include "health/call_table.h"

#include <gtest/gtest.h>
#include <yard/call_spec.h>

#include <thread>

namespace yard::health {
namespace {

TEST(Buckets, EveryTimeIsInTheBucketWhoseBoundsHoldIt) {
  for (int shift = 0; shift < 40; ++shift) {
    for (int64_t by = -1; by <= 1; ++by) {
      const uint64_t ns = (uint64_t{1} << shift) + static_cast<uint64_t>(by);
      const uint32_t i = LatencyBuckets::index(ns);
      EXPECT_LE(ns, LatencyBuckets::up_to_ns(i)) << ns;
      if (i > 0) {
        EXPECT_GT(ns, LatencyBuckets::up_to_ns(i - 1)) << ns;
      }
    }
  }
  EXPECT_EQ(LatencyBuckets::index(UINT64_MAX), LatencyBuckets::kCount - 1);
}

TEST(Buckets, AreAtMostAQuarterWide) {
  for (uint32_t i = 2; i < LatencyBuckets::kCount - 1; ++i) {
    const auto low = static_cast<double>(LatencyBuckets::up_to_ns(i - 1) + 1);
    EXPECT_LE(static_cast<double>(LatencyBuckets::up_to_ns(i) + 1), 1.25 * low + 1) << i;
  }
}

class Tables : public ::testing::Test {
 protected:
  op::Call call(int64_t n) const {
    const TensorView out(reinterpret_cast<void*>(1ull << 36), DType::f32, {n});
    const TensorView x(reinterpret_cast<void*>(2ull << 36), DType::f32, {n});
    const yard_value_t args[] = {Value(out).c(), Value(x).c()};
    return op::Call::capture(*program_, args);
  }
  const CallClass& class_of(int64_t n, const std::string& op = "op") {
    return table_.class_of(op, program_, call(n));
  }
  RuntimeStats read() const {
    RuntimeStats to;
    table_.read(to);
    return to;
  }
  std::shared_ptr<const op::Program> program_ = std::make_shared<const op::Program>(
      op::Program::compile("op(out!: f32[n], x: f32[n])").value());
  CallTable table_;
};

TEST_F(Tables, CountsByClassKernelAndMode) {
  Series* const a = class_of(8).series("default.a", Mode::kDynamic);
  Series* const b = class_of(8).series("default.b", Mode::kConfig);
  ASSERT_NE(a, b);
  EXPECT_EQ(class_of(8).series("default.a", Mode::kDynamic), a);
  EXPECT_NE(class_of(16).series("default.a", Mode::kDynamic), a);
  for (int i = 0; i < 3; ++i) base::count(base::this_thread(), a->calls.id());
  base::count(base::this_thread(), b->calls.id());
  b->add_fallback(), a->add_failure(ErrorClass::kFault), a->add_sample(100), a->add_sample(900);
  class_of(8).misses.fetch_add(1);
  const RuntimeStats s = read();
  ASSERT_EQ(s.calls.size(), 2u);
  EXPECT_EQ(s.calls[0].call, "op(f32[8])@cpu");
  EXPECT_EQ(s.calls[0].kernel, "default.a");
  EXPECT_EQ(s.calls[0].calls, 3u);
  EXPECT_EQ(s.calls[0].failures.of(ErrorClass::kFault), 1u);
  EXPECT_EQ(s.calls[0].latency.count, 2u);
  EXPECT_EQ(s.calls[0].latency.sum_ns, 1000u);
  EXPECT_EQ(s.calls[0].latency.quantile_ns(0.5),
            LatencyBuckets::up_to_ns(LatencyBuckets::index(100)));
  EXPECT_EQ(s.calls[0].latency.quantile_ns(1),
            LatencyBuckets::up_to_ns(LatencyBuckets::index(900)));
  EXPECT_EQ(s.calls[1].mode, "config");
  EXPECT_EQ(s.calls[1].fallbacks, 1u);
  ASSERT_EQ(s.ops.size(), 1u);
  EXPECT_EQ(s.ops[0].calls, 4u);
  EXPECT_EQ(s.ops[0].misses, 1u);
  EXPECT_EQ(s.ops[0].hits, 3u);
}

TEST_F(Tables, AResetStartsAtZeroAndKeepsTotals) {
  Series* const a = class_of(8).series("default.a", Mode::kDynamic);
  base::count(base::this_thread(), a->calls.id());
  a->add_sample(100), a->add_failure(ErrorClass::kDeclined);
  table_.reset();
  EXPECT_TRUE(read().calls.empty());
  base::count(base::this_thread(), a->calls.id());
  a->add_sample(100), a->add_sample(5000);
  const RuntimeStats s = read();
  ASSERT_EQ(s.calls.size(), 1u);
  EXPECT_EQ(s.calls[0].calls, 1u);
  EXPECT_EQ(s.calls[0].failures.total(), 0u);
  EXPECT_EQ(s.calls[0].latency.count, 2u);
  EXPECT_EQ(s.calls[0].latency.sum_ns, 5100u);
  EXPECT_EQ(table_.totals("op", "default.a").calls, 2u);
  EXPECT_EQ(table_.totals().at({"op", "default.a"}).failures, 1u);
}

TEST_F(Tables, FurtherClassesAreCountedTogether) {
  for (int64_t n = 1; n <= static_cast<int64_t>(kMaxCallClasses) + 10; ++n)
    base::count(base::this_thread(), class_of(n).series("default.a", Mode::kDynamic)->calls.id());
  const RuntimeStats s = read();
  ASSERT_EQ(s.calls.size(), kMaxCallClasses + 1);
  uint64_t sum = 0, other = 0;
  for (const CallStats& c : s.calls) sum += c.calls, other += c.call == "other" ? c.calls : 0;
  EXPECT_EQ(sum, kMaxCallClasses + 10);
  EXPECT_EQ(other, 10u);
  EXPECT_EQ(&class_of(1 << 20), &class_of(1 << 21));
}

TEST_F(Tables, NamesOfOpsAndKernelsAreBoundedToo) {
  for (int64_t n = 1; n <= static_cast<int64_t>(kMaxCallClasses); ++n) class_of(n);
  const CallClass* last = nullptr;
  for (int i = 0; i < 2000; ++i) last = &class_of(1 << 20, "op" + std::to_string(i));
  EXPECT_EQ(last->op, "other");
  Series* s = nullptr;
  for (size_t i = 0; i < 5 * kMaxCallClasses; ++i)
    s = class_of(1).series("plugin.k" + std::to_string(i), Mode::kDynamic);
  EXPECT_EQ(s->kernel, "other");
}

TEST_F(Tables, ManyThreadsAddUp) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        Series* const s = class_of(i % 8).series("default.a", Mode::kDynamic);
        base::count(base::this_thread(), s->calls.id());
        s->add_sample(static_cast<uint64_t>(i));
        if (i % 100 == 0) read();
      }
    });
  for (std::thread& t : threads) t.join();
  uint64_t calls = 0, samples = 0;
  for (const CallStats& c : read().calls) calls += c.calls, samples += c.latency.count;
  EXPECT_EQ(calls, 4000u);
  EXPECT_EQ(samples, 4000u);
}

TEST(Stats, JsonHasEveryMember) {
  RuntimeStats s;
  s.calls.push_back({"a\"b", "k", "dynamic", "op(f32[8])", 3, 1, {}, {2, 30, {{31, 2}}}});
  s.reloads.last_error = "line\n2";
  const std::string text = to_json(s);
  EXPECT_NE(text.find(R"("op": "a\"b")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("buckets": [{"up_to_ns": 31, "count": 2}])"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("last_error": "line\u000a2")"), std::string::npos) << text;
}

TEST(LatencyHistogram, AddsBucketsOfAnother) {
  LatencyHistogram a{3, 60, {{10, 1}, {30, 2}}};
  a.add({2, 45, {{20, 1}, {30, 1}}});
  EXPECT_EQ(a.count, 5u);
  ASSERT_EQ(a.buckets.size(), 3u);
  EXPECT_EQ(a.buckets[1].up_to_ns, 20u);
  EXPECT_EQ(a.buckets[2].count, 3u);
  EXPECT_EQ(a.mean_ns(), 21);
}

}  // namespace
}  // namespace yard::health
