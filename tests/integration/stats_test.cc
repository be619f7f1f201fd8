// SPDX-License-Identifier: Apache-2.0
// The sums of Runtime::stats() equal the calls that were made, from many threads and across
// reloads, unloads and forks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/bound.h>
#include <yard/config.h>
#include <yard/yard.h>

#include <atomic>
#include <thread>

#include "fault.h"
#include "testing.h"

namespace yard::testing {
namespace {

constexpr Op<void(Out, In)> twice{"twice"};

struct World {
  Runtime runtime;
  std::vector<float> in = std::vector<float>(1 << 16, 1.0f), out = std::vector<float>(1 << 16);

  World() {
    static int32_t (*const ok)(yard_call_t*, const yard_value_t*, uint32_t) =
        [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
    static const char* const reads[] = {"n", nullptr};
    yard_kernel_t a = kernel_of("twice", "default.a", 0), b = kernel_of("twice", "default.b", 0);
    a.run = ok, a.priority = 20, b.run = ok, b.priority = 10;
    // Every size has its own class.
    a.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
    a.verify_reads = reads;
    Changes c;
    c.add_backend(backend_of("test"))
        .add_op(op_of("twice(out!: f32[n], x: f32[n])"))
        .add_kernel(a)
        .add_kernel(b);
    runtime.apply(std::move(c)).or_throw();
  }
  Status call(int64_t n) {
    return runtime.call(
        "twice", {TensorView(out.data(), DType::f32, {n}), TensorView(in.data(), DType::f32, {n})});
  }
  // Returns the calls of a kernel, or of all kernels.
  uint64_t calls(std::string_view kernel = {}) const {
    uint64_t sum = 0;
    for (const CallStats& c : runtime.stats().calls)
      if (c.op == "twice" && (kernel.empty() || c.kernel == kernel)) sum += c.calls;
    return sum;
  }
};

TEST(Stats, EveryFormOfCallCounts) {
  World w;
  const TensorView out(w.out.data(), DType::f32, {64}), in(w.in.data(), DType::f32, {64});
  auto bound = bind(twice.on(w.runtime), out, in).value();
  Options options;
  ResultRecord record;
  options.result = &record;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(twice.on(w.runtime)(out, in).ok());
    ASSERT_TRUE(w.call(64).ok());
    ASSERT_TRUE(bound(out, in).ok());
    ASSERT_TRUE(w.runtime.call("twice", {out, in}, options).ok());
  }
  EXPECT_EQ(w.calls(), 2000u);
  const RuntimeStats s = w.runtime.stats();
  ASSERT_EQ(s.calls.size(), 1u);
  EXPECT_THAT(s.calls[0].call, ::testing::StartsWith("twice(f32[64]"));
  EXPECT_EQ(s.calls[0].mode, "dynamic");
  // One in 128 calls is timed at random, so the bounds are wide.
  EXPECT_GE(s.calls[0].latency.count, 5u);
  EXPECT_LE(s.calls[0].latency.count, 60u);
  ASSERT_EQ(s.ops.size(), 1u);
  EXPECT_EQ(s.ops[0].calls, 2000u);
  EXPECT_GE(s.ops[0].misses, 1u);
  EXPECT_LE(s.ops[0].misses, 2u);  // calls with options may have a cache entry of their own
  EXPECT_EQ(s.ops[0].hits + s.ops[0].misses, 2000u);
}

// Breakers and canaries watch the kernels of a plan.
TEST(Stats, WatchedCallsAreTimedAsOftenAsOthers) {
  World w;
  Config rules;
  CanaryRule rule;
  rule.op = "twice", rule.one_in = 1'000'000, rule.check = CanaryRule::Check::kFinite;
  rules.canary.push_back(rule);
  w.runtime.rules().set(rules).or_throw();
  const TensorView out(w.out.data(), DType::f32, {64}), in(w.in.data(), DType::f32, {64});
  for (int i = 0; i < 12800; ++i) ASSERT_TRUE(twice.on(w.runtime)(out, in).ok());
  const RuntimeStats s = w.runtime.stats();
  ASSERT_EQ(s.calls.size(), 1u);
  EXPECT_GE(s.calls[0].latency.count, 80u);
  EXPECT_LE(s.calls[0].latency.count, 120u);
}

TEST(Stats, SumsAreExactWhileRulesReloadAndKernelsChange) {
  World w;
  constexpr int kThreads = 4, kCalls = 5000;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) EXPECT_TRUE(w.call(1 + (i + t) % 40).ok());
    });
  std::thread changer([&] {
    for (int i = 0; !done; ++i) {
      Policy p;
      if (i % 2 == 0) p.deny_kernels = {"default.a"};
      EXPECT_TRUE(w.runtime.set_policy(p).ok());
      EXPECT_LE(w.calls(), static_cast<uint64_t>(kThreads * kCalls));
    }
  });
  for (std::thread& t : threads) t.join();
  done = true;
  changer.join();
  EXPECT_EQ(w.calls(), static_cast<uint64_t>(kThreads * kCalls));
  uint64_t listed = 0;
  const Listing listing = w.runtime.list();
  for (const KernelInfo& k : listing.find_op("twice")->kernels) listed += k.calls;
  EXPECT_EQ(listed, static_cast<uint64_t>(kThreads * kCalls));
}

TEST(Stats, ManyClassesAreCountedAsOther) {
  World w;
  constexpr int64_t kClasses = static_cast<int64_t>(kMaxCallClasses) + 500;
  for (int64_t n = 1; n <= kClasses; ++n) ASSERT_TRUE(w.call(n).ok());
  const RuntimeStats s = w.runtime.stats();
  EXPECT_EQ(s.calls.size(), kMaxCallClasses + 1);
  EXPECT_EQ(w.calls(), static_cast<uint64_t>(kClasses));
  const auto other = std::find_if(s.calls.begin(), s.calls.end(),
                                  [](const CallStats& c) { return c.call == "other"; });
  ASSERT_NE(other, s.calls.end());
  EXPECT_EQ(other->calls, 500u);
}

TEST(Stats, FailuresAndFallbacksAreCountedByClass) {
  fault::FaultBackend faults;
  fault::FaultKernel kernel({.op = "rms_norm", .id = "vendor.bad", .priority = 1000});
  kernel.set({.code = YARD_TRANSIENT});
  Runtime runtime;
  Changes changes;
  changes.add_backend(faults.descriptor()).add_kernel(kernel.descriptor());
  runtime.apply(std::move(changes)).or_throw();
  std::vector<float> x(64, 1), w(16, 1), out(64);
  const TensorView rows(x.data(), DType::f32, {4, 16}), to(out.data(), DType::f32, {4, 16});
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(runtime.call("rms_norm", {to, rows, TensorView(w.data(), DType::f32, {16})}).ok());
  uint64_t fallbacks = 0, transient = 0;
  for (const CallStats& c : runtime.stats().calls) {
    fallbacks += c.fallbacks;
    if (c.kernel == "vendor.bad") transient += c.failures.of(ErrorClass::kTransient);
  }
  EXPECT_EQ(fallbacks, 3u);
  EXPECT_EQ(transient, 3u);
}

TEST(Stats, AResetStartsAtZero) {
  World w;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(w.call(8).ok());
  ASSERT_TRUE(w.runtime.rules().set(Config()).ok());
  EXPECT_EQ(w.runtime.stats().reloads.applied, 1u);
  const auto before = std::chrono::system_clock::now();
  w.runtime.reset_stats();
  EXPECT_EQ(w.calls(), 0u);
  EXPECT_EQ(w.runtime.stats().reloads.applied, 0u);
  EXPECT_GE(w.runtime.stats().since, before);
  ASSERT_TRUE(w.call(8).ok());
  EXPECT_EQ(w.calls(), 1u);
  EXPECT_EQ(w.runtime.list().find_op("twice")->kernels[0].calls, 11u);
}

TEST(Stats, ReloadsAreCountedWithTheirErrors) {
  World w;
  EXPECT_FALSE(w.runtime.rules().load("/nonexistent/rules.yaml").ok());
  const RuntimeStats::Reloads s = w.runtime.stats().reloads;
  EXPECT_EQ(s.refused, 1u);
  EXPECT_EQ(s.applied, 0u);
  EXPECT_THAT(s.last_error, ::testing::HasSubstr("/nonexistent/rules.yaml"));
}

#if !defined(YARD_UNDER_TSAN)  // TSan does not follow forks
TEST(Stats, AForkedChildStartsAtZero) {
  World w;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(w.call(8).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    bool ok = w.calls() == 0;
    for (int i = 0; i < 200; ++i) ok &= w.call(8 + i % 2).ok();
    ok &= w.calls() == 200 && w.calls("default.a") == 200;
    ok &= w.runtime.stats().calls.size() == 2;
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(w.calls(), 100u);
}
#endif

}  // namespace
}  // namespace yard::testing
