// SPDX-License-Identifier: Apache-2.0
// Known defects of LayerZero's dispatch and of vllm-plugin-FL's failure tracking and fork handling.
// Each has a test which shows that it does not exist here. For defects of reloading see
// reload_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "fault.h"
#include "testing.h"

namespace yard::testing {
namespace {

using fault::FaultKernel;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr const char* kAttend =
    "attend(out!: T[batch, seq_len], x: T[batch, seq_len], causal: bool = false)";
constexpr Op<void(Out, In, bool)> attend{"attend"};

class KnownDefects : public ::testing::Test {
 protected:
  KnownDefects() : bare_(kAttend) {
    Changes c;
    c.add_backend(backend_.descriptor());
    c.add_kernel(first_.descriptor()).add_kernel(kernel_of("attend", "second", 2, 200));
    yard_kernel_t third = kernel_of("attend", "third", 3, 100);
    third.flags = YARD_KERNEL_DETERMINISTIC;
    c.add_kernel(third);
    bare_.runtime.apply(std::move(c)).or_throw();
  }
  ~KnownDefects() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  // Returns the kernel that served the call (1, 2 or 3), or the negative code of the failure.
  intptr_t ran(int64_t seq_len = 8, const Options& o = {}) {
    std::vector<float> to(static_cast<size_t>(2 * seq_len), -1), from(to.size());
    t_ran = 0;
    const Status s = attend.on(bare_.runtime)
                         .with(o)(TensorView(to.data(), DType::f32, {2, seq_len}),
                                  TensorView(from.data(), DType::f32, {2, seq_len}), false);
    if (!s.ok()) return -static_cast<intptr_t>(s.code());
    return t_ran != 0 ? t_ran : 1;
  }
  void rules(const std::string& text) {
    const auto r = parse_config("version: \"1.0\"\n" + text, "rules.yaml");
    for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
    const Status s = bare_.runtime.rules().set(r.config);
    ASSERT_TRUE(s.ok()) << s.to_string();
  }
  KernelHealth health_of(const std::string& id) {
    for (const KernelHealth& k : bare_.runtime.health().report().kernels)
      if (k.kernel == id) return k;
    return {};
  }
  bool soon(const std::function<bool()>& f) {
    for (int i = 0; i < 20000; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }

  fault::FaultBackend backend_;
  FaultKernel first_{{.op = "attend", .id = "fault.first", .priority = 300}, {.rate = 0}};
  Bare bare_;
};

// ---- Modes, rules and the cache ----

TEST_F(KnownDefects, ANonDeterministicKernelAnswersADeterministicRequest) {
  EXPECT_EQ(ran(), 1);  // now cached
  Options o;
  o.deterministic = true;
  EXPECT_EQ(ran(8, o), 3);
  EXPECT_EQ(ran(), 1);
  const ScopedPolicy scope(Scope().deterministic());
  EXPECT_EQ(ran(), 3);
}

TEST_F(KnownDefects, MvccIsOneVersionUnderALock) {
  first_.set({.blocks = true});
  // Continues under the version that it started with.
  std::thread caller([&] { EXPECT_EQ(ran(), 1); });
  ASSERT_TRUE(first_.wait_for_waiters(1, milliseconds(20000)));
  rules("kernel_denies: [fault.first]\n");  // does not wait for the call
  EXPECT_EQ(ran(), 2);
  first_.release();
  caller.join();
}

TEST_F(KnownDefects, ASelectionThatStraddlesAnInvalidationIsStoredAsFresh) {
  static std::atomic<int> asked{0};
  static std::atomic<bool> go{false};
  asked = 0, go = false;
  yard_kernel_t slow = kernel_of("attend", "slow", 9, 400);
  slow.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t {
    if (asked.fetch_add(1) == 0)
      while (!go) std::this_thread::yield();
    return YARD_OK;
  };
  ASSERT_TRUE(bare_.add(slow).ok());
  intptr_t first = 0;
  std::thread caller([&] { first = ran(); });
  ASSERT_TRUE(soon([] { return asked.load() > 0; }));
  Policy p;
  p.deny_kernels = {"slow"};
  // The policy takes effect while the selection still asks the verifier, because changes do not
  // wait for selections.
  const uint64_t before = bare_.runtime.stats(false).generation;
  std::thread change([&] { EXPECT_TRUE(bare_.runtime.set_policy(p).ok()); });
  EXPECT_TRUE(soon([&] { return bare_.runtime.stats(false).generation > before; }));
  EXPECT_FALSE(go);
  go = true;
  change.join();
  caller.join();
  EXPECT_TRUE(first == 9 || first == 1) << first;  // the original selection or a new one
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ran(), 1);
}

TEST_F(KnownDefects, SixteenEqualMissesRunSixteenSelections) {
  static std::atomic<int> asked{0};
  asked = 0;
  yard_kernel_t slow = kernel_of("attend", "slow", 9, 400);
  slow.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t {
    ++asked;
    std::this_thread::sleep_for(milliseconds(50));
    return YARD_OK;
  };
  static const char* const reads[] = {"seq_len", nullptr};
  slow.verify_reads = reads;
  ASSERT_TRUE(bare_.add(slow).ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { EXPECT_EQ(ran(), 9); });
  for (auto& t : threads) t.join();
  EXPECT_EQ(asked.load(), 1);
}

TEST_F(KnownDefects, NotInSeqLenAndDeviceConditionsNeverMatch) {
  rules(
      "dispatch_rules:\n"
      "  - {operation: attend, kernel: second, priority: 300, conditions: {seq_len_not_in: [8, "
      "9]}}\n");
  EXPECT_EQ(ran(8), 1);
  EXPECT_EQ(ran(10), 2);
  rules("dispatch_rules:\n  - {operation: attend, kernel: third, conditions: {seq_len_gte: 64}}\n");
  EXPECT_EQ(ran(8), 1);
  EXPECT_EQ(ran(64), 3);
  for (const char* holds : {"device: cpu", "device_not_in: [cuda, 'rocm:1']", "device_ne: cuda",
                            "device_match: 'c*'", "platform: cpu"}) {
    rules(std::string("dispatch_rules:\n  - {operation: attend, kernel: second, conditions: {") +
          holds + "}}\n");
    EXPECT_EQ(ran(), 2) << holds;
  }
  for (const char* fails : {"device: cuda", "device_not_in: [cpu]", "device_ne: cpu",
                            "device_match: 'cu*'", "platform_in: [cuda, rocm]"}) {
    rules(std::string("dispatch_rules:\n  - {operation: attend, kernel: second, conditions: {") +
          fails + "}}\n");
    EXPECT_EQ(ran(), 1) << fails;
  }
}

// The dimension of this op has another name.
TEST(KnownDefectsOfNames, SeqLenConditionsNeverMatch) {
  Bare bare("attend(out!: T[batch, q_len], x: T[batch, q_len])");
  ASSERT_TRUE(bare.add(kernel_of("attend", "first", 1, 2)).ok());
  ASSERT_TRUE(bare.add(kernel_of("attend", "second", 2, 1)).ok());
  const auto r = parse_config(
      "version: '1.0'\ndispatch_rules: [{operation: attend, kernel: second, conditions: "
      "{seq_len_gte: 64, seq_len_not_in: [100], batch_size: 2}}]\n",
      "rules.yaml");
  ASSERT_TRUE(r.ok());
  ASSERT_TRUE(bare.runtime.rules().set(r.config).ok());
  const auto chosen = [&](const char* call) { return bare.runtime.resolve(call).value().kernel; };
  EXPECT_EQ(chosen("attend(f32[2,63])"), "first");
  EXPECT_EQ(chosen("attend(f32[2,64])"), "second");
  EXPECT_EQ(chosen("attend(f32[2,100])"), "first");
  EXPECT_EQ(chosen("attend(f32[1,64])"), "first");
}

TEST_F(KnownDefects, AFailingRuleKernelNeverReachesItsFallbackChain) {
  rules(
      "dispatch_rules:\n  - {operation: attend, kernel: fault.first}\n"
      "fallback_chains: {attend: [fault.first, third]}\n");
  first_.set({.code = YARD_FAULT});
  EXPECT_EQ(ran(), 3);
}

TEST_F(KnownDefects, LocksBypassDenyAndCapability) {
  rules("kernel_locks: {attend: fault.first}\n");
  EXPECT_EQ(ran(), 1);
  Options o;
  o.deterministic = true;
  EXPECT_EQ(ran(8, o), -static_cast<intptr_t>(Code::kNoKernel));
  Policy p;
  p.deny_kernels = {"fault.*"};
  ASSERT_TRUE(bare_.runtime.set_policy(p).ok());
  EXPECT_EQ(ran(), -static_cast<intptr_t>(Code::kNoKernel));
}

TEST_F(KnownDefects, AFailingKernelIsRunAgainInTheNextMode) {
  rules("static_kernel_map: {attend: fault.first}\nsettings: {mode: auto}\n");
  first_.set({.code = YARD_FAULT});
  EXPECT_EQ(ran(), 2);
  EXPECT_EQ(first_.calls(), 1u);
  rules(
      "dispatch_rules:\n  - {operation: attend, kernel: fault.first}\nsettings: {mode: config}\n");
  EXPECT_EQ(ran(), 2);
  EXPECT_EQ(first_.calls(), 2u);
}

TEST_F(KnownDefects, AnUnregisteredKernelStillRuns) {
  EXPECT_EQ(ran(), 1);
  const uint64_t before = first_.calls();
  ASSERT_TRUE(bare_.remove("attend", "fault.first").ok());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ran(), 2);
  EXPECT_EQ(first_.calls(), before);
}

TEST_F(KnownDefects, TheTimeToLiveOfTheCacheIsNeverRead) {
  rules("settings: {cache: {lifetime: 200ms}}\n");
  EXPECT_EQ(ran(), 1);
  ASSERT_TRUE(soon([&] { return bare_.runtime.stats(false).plans == 0; }));
  const uint64_t before = bare_.runtime.stats(false).selections;
  EXPECT_EQ(ran(), 1);
  EXPECT_EQ(bare_.runtime.stats(false).selections, before + 1);
  rules("settings: {cache: {lifetime: 1h}}\n");
  EXPECT_EQ(ran(), 1);
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_EQ(bare_.runtime.stats(false).plans, 1u);
}

// ---- Breakers, fallback and health ----

TEST_F(KnownDefects, FailedFallbacksCountTwice) {
  ASSERT_TRUE(bare_.remove("attend", "second").ok());
  ASSERT_TRUE(bare_.remove("attend", "third").ok());
  FaultKernel next{{.op = "attend", .id = "fault.next", .priority = 10}};
  ASSERT_TRUE(bare_.add(next.descriptor()).ok());
  first_.set({.code = YARD_FAULT});
  next.set({.code = YARD_FAULT});
  EXPECT_EQ(ran(), -static_cast<intptr_t>(Code::kKernelFailed));
  EXPECT_EQ(health_of("fault.first").failures.of(ErrorClass::kFault), 1u);
  EXPECT_EQ(health_of("fault.next").failures.of(ErrorClass::kFault), 1u);
  ASSERT_TRUE(bare_.remove("attend", "fault.next").ok());
}

TEST_F(KnownDefects, LookingAtFallbacksChangesBreakerState) {
  rules("settings: {breaker: {cooldown: 50ms, failure_threshold: 2}}\n");
  first_.set({.code = YARD_FAULT});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ran(), 2);
  ASSERT_TRUE(soon([&] { return !health_of("fault.first").open.empty(); }));
  const auto report = [&] { return bare_.runtime.health().report().breakers; };
  // The breaker is half-open now. Reports admit no call and decide nothing.
  ASSERT_TRUE(soon([&] { return report().half_opened > 0; }));
  const uint64_t calls = first_.calls();
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(bare_.runtime.explain("attend(f32[2,8])@cpu").ok());
    EXPECT_TRUE(bare_.runtime.resolve("attend(f32[2,8])@cpu").ok());
    EXPECT_FALSE(health_of("fault.first").open.empty());
  }
  EXPECT_EQ(first_.calls(), calls);
  EXPECT_EQ(report().opened, 1u);
  EXPECT_EQ(report().closed, 0u);
}

TEST_F(KnownDefects, FallbacksIgnoreDeny) {
  first_.set({.code = YARD_FAULT});
  rules("kernel_denies: [second]\nfallback_chains: {attend: [second, third]}\n");
  EXPECT_EQ(ran(), 3);
}

TEST_F(KnownDefects, HalfOpenAdmitsEveryone) {
  rules("settings: {breaker: {cooldown: 2s, failure_threshold: 2}}\n");
  first_.set({.code = YARD_FAULT});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ran(), 2);
  ASSERT_TRUE(soon([&] {  // until calls see the open breaker
    return bare_.runtime.resolve("attend(f32[2,8])@cpu").value().kernel == "second";
  }));
  first_.set({.blocks = true});
  const uint64_t before = first_.calls();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop) EXPECT_GT(ran(), 0);
    });
  ASSERT_TRUE(first_.wait_for_waiters(1, milliseconds(20000)));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(first_.calls(), before + 1);  // the other calls ran the second kernel
  first_.set({.rate = 0});
  stop = true;
  first_.release();
  for (auto& t : threads) t.join();
}

TEST_F(KnownDefects, AFailureOnOneShapeDisablesTheKernelForAll) {
  first_.set({.when = fault::dim_at_least(0, 1, 100), .code = YARD_FAULT});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ran(128), 2);
  ASSERT_TRUE(soon([&] { return !health_of("fault.first").open.empty(); }));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ran(8), 1);
}

// ---- Fork ----

TEST_F(KnownDefects, TheForkHandlerTakesALockAndTheChildCanDeadlock) {
  // At the moment of the fork one thread selects and other threads wait for its plan.
  static std::atomic<bool> inside{false}, go{false};
  inside = go = false;
  yard_kernel_t slow = kernel_of("attend", "slow", 9, 400);
  slow.verify = [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    inside = true;
    while (!go) std::this_thread::yield();
    v->reason = YARD_REASON_REFUSED;
    return YARD_OK;
  };
  EXPECT_EQ(ran(), 1);
  std::thread change([&] {
    EXPECT_TRUE(bare_.add(slow).ok());
    EXPECT_EQ(ran(), 1);
  });
  ASSERT_TRUE(soon([] { return inside.load(); }));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    go = true;
    Policy p;
    p.deny_kernels = {"fault.*"};
    _exit(ran() == 1 && bare_.runtime.set_policy(p).ok() && ran() == 2 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  go = true;
  change.join();
}

TEST_F(KnownDefects, NoForkHandling) {
  rules("settings: {breaker: {failure_threshold: 2}}\n");
  first_.set({.code = YARD_FAULT});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ran(), 2);
  ASSERT_TRUE(soon([&] { return !health_of("fault.first").open.empty(); }));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    // Rules and kernels survive in the child. Breakers, counts and threads start again and work.
    bool ok =
        bare_.runtime.stats(false).selections == 0 && bare_.runtime.rules().history().size() == 1;
    const uint64_t before = first_.calls();
    ok = ok && ran() == 2 && first_.calls() == before + 1;  // the first kernel is tried again
    ok = ok && ran() == 2 && soon([&] { return !health_of("fault.first").open.empty(); });
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(health_of("fault.first").open.empty()) << "the parent is undisturbed";
}

}  // namespace
}  // namespace yard::testing
