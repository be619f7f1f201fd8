// SPDX-License-Identifier: Apache-2.0
// Tests breakers and health as callers see them: which kernels are excluded, when they come back,
// reports and events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/c.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "breaker_fixture.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(HealthOf, ConsecutiveFaultsExcludeAKernelForSuchCalls) {
  bad_.set({.code = YARD_FAULT, .message = "smoke"});
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(call().ok());
  EXPECT_FALSE(is_out());
  EXPECT_TRUE(call().ok());
  ASSERT_TRUE(soon([&] { return opened_ > 0; }));
  ASSERT_TRUE(is_out());
  const uint64_t before = bad_.calls();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(call().ok());
  EXPECT_EQ(bad_.calls(), before);
  EXPECT_THAT(why_out(), AllOf(HasSubstr("open"), HasSubstr("4-7"), HasSubstr("f32")));
  // Calls of another size have a separate breaker.
  EXPECT_FALSE(is_out(100));
  EXPECT_TRUE(call(100).ok());
  EXPECT_EQ(bad_.calls(), before + 1);
}

// The breaker takes effect without a thread of the runtime, so a busy machine cannot delay it.
TEST_F(HealthOf, ABreakerTakesEffectWithTheCallThatOpensIt) {
  set(5, std::chrono::hours(1));
  std::vector<float> to(4), from(4);
  const TensorView out(to.data(), DType::f32, {4}), x(from.data(), DType::f32, {4});
  const auto bound = bind(copy.on(bare_.runtime), out, x).value();
  const std::function<Status()> ways[] = {
      [&] { return copy.on(bare_.runtime)(out, x, 0); },  // through a memo from the third call on
      [&] {
        return bare_.runtime.call("copy", {{"out", out}, {"x", x}});
      },
      [&] { return bound(out, x, 0); },
      [&] {
        const ScopedPolicy in(Scope().label("tenant", "beta"));
        return copy.on(bare_.runtime)(out, x, 0);
      },
  };
  for (const auto& way : ways)
    for (int round = 0; round < 20; ++round) {
      bad_.set({.rate = 0});
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(way().ok());
      bad_.set({.code = YARD_FAULT, .message = "smoke"});
      const uint64_t before = bad_.calls();
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(way().ok());
      EXPECT_EQ(bad_.calls(), before + 5) << "the threshold, way " << &way - ways;
      bare_.runtime.health().reset("copy", "fault.bad").or_throw();
    }
}

// The packed call of the C interface uses the shared runtime.
TEST(SharedHealth, ABreakerTakesEffectWithThePackedCallThatOpensIt) {
  Runtime& runtime = Runtime::shared();
  fault::FaultBackend backend;
  FaultKernel bad{{.op = "copy", .id = "fault.bad", .priority = 200}};
  Changes c;
  c.add_backend(backend.descriptor()).add_backend(backend_of("test")).add_op(op_of(kCopy));
  c.add_kernel(bad.descriptor()).add_kernel(kernel_of("copy", "good", 1, 100));
  runtime.apply(std::move(c)).or_throw();
  float to[4] = {}, from[4] = {};
  const TensorView out(to, DType::f32, {4}), x(from, DType::f32, {4});
  const yard_value_t args[] = {value_of(out), value_of(x), Value(0).c()};
  char error[200] = "";
  yard_op_ref_t* const op = yard_find_op("copy", error, sizeof error);
  ASSERT_NE(op, nullptr) << error;
  const auto call = [&] {
    EXPECT_EQ(yard_call(op, args, 3, error, sizeof error), YARD_OK) << error;
  };
  for (int round = 0; round < 20; ++round) {
    bad.set({.rate = 0});
    for (int i = 0; i < 5; ++i) call();
    bad.set({.code = YARD_FAULT});
    const uint64_t before = bad.calls();
    for (int i = 0; i < 20; ++i) call();
    EXPECT_EQ(bad.calls(), before + 5);
    runtime.health().reset("copy", "fault.bad").or_throw();
  }
  EXPECT_TRUE(runtime.reset().ok());
}

TEST_F(HealthOf, NoCallThatStartsAfterABreakerOpenedRunsItsKernel) {
  set(5, std::chrono::hours(1));
  static thread_local bool t_later = false;
  std::atomic<bool> failed{false}, end{false};
  std::atomic<int> too_late{0};
  bad_.set({.when =
                [&](const yard_value_t*, uint32_t) {
                  too_late += t_later;
                  return true;
                },
            .code = YARD_FAULT});
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!end) {
        t_later = failed.load();
        EXPECT_TRUE(call().ok());
      }
    });
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(call().ok());
  EXPECT_TRUE(soon([&] { return is_out(); }));  // another thread's call may be opening the breaker
  failed = true;
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(call().ok());
  end = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(too_late, 0);
}

std::function<void()> g_in_verifier;

TEST_F(HealthOf, AFailureInsideAVerifierOpensABreaker) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t asking = kernel_of("outer", "asking", 2, 100);
  asking.verify_reads = reads;
  asking.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t {
    g_in_verifier();
    return YARD_OK;
  };
  Changes c;
  c.add_op(op_of("outer(out!: T[n], x: T[n], by: int = 0)")).add_kernel(asking);
  bare_.runtime.apply(std::move(c)).or_throw();
  bad_.set({.code = YARD_FAULT});
  uint64_t failed = 0, late = 0;
  g_in_verifier = [&] {
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(call().ok());
    failed = bad_.calls();
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(call().ok());
    late = bad_.calls() - failed;
  };
  EXPECT_TRUE(bare_.runtime.explain("outer(f32[4])@cpu").ok());
  EXPECT_EQ(failed, 5u);
  EXPECT_EQ(late, 0u);
  EXPECT_TRUE(soon([&] { return opened_ == 1; }));
  g_in_verifier = nullptr;
}

TEST_F(HealthOf, ASuccessResetsConsecutiveFaultsForEveryKindOfCall) {
  std::vector<float> to(4), from(4);
  const TensorView out(to.data(), DType::f32, {4}), x(from.data(), DType::f32, {4});
  const auto bound = bind(copy.on(bare_.runtime), out, x).value();
  const std::function<Status()> ways[] = {
      [&] { return copy.on(bare_.runtime)(out, x, 0); },
      [&] {
        return bare_.runtime.call("copy", {{"out", out}, {"x", x}});
      },
      [&] { return bound(out, x, 0); },
  };
  BreakerSettings settings;
  settings.failure_percent = 0;  // else four faults in five calls open the breaker
  bare_.runtime.health().set_settings(settings).or_throw();
  for (const auto& way : ways)
    for (int round = 0; round < 10; ++round) {
      bad_.set({.code = YARD_FAULT});
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(way().ok());
      bad_.set({.rate = 0});
      EXPECT_TRUE(way().ok());
    }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(is_out());
}

// Both sizes share a breaker key and only one fails, so there are never two failures in a row.
TEST_F(HealthOf, AlternatingGoodAndBadSizesOpenTheBreaker) {
  bad_.set({.when = [](const yard_value_t* args,
                       uint32_t) { return args[0].u.tensor->shape[0] == 5120; },
            .code = YARD_FAULT,
            .message = "smoke"});
  int calls = 0;
  EXPECT_TRUE(soon([&] {
    ++calls;
    return call(4096).ok() && call(5120).ok() && is_out(4096);
  }));
  EXPECT_GE(calls, 50) << "100 calls are the least";
  const HealthReport report = bare_.runtime.health().report();
  for (const KernelHealth& k : report.kernels) {
    if (k.kernel != "fault.bad") continue;
    ASSERT_EQ(k.failed_calls.size(), 1u);
    EXPECT_EQ(k.failed_calls[0].call, "copy(f32[5120], by=0)@cpu");
    EXPECT_GE(k.failed_calls[0].count, 50u);
  }
  EXPECT_NE(
      to_string(report, std::chrono::steady_clock::now()).find("failed: copy(f32[5120], by=0)@cpu"),
      std::string::npos);
  EXPECT_THAT(why_out(4096), HasSubstr("failed calls: copy(f32[5120], by=0)@cpu"));
}

TEST_F(HealthOf, AShareOfFailuresOpensTheBreakerForEveryKindOfCall) {
  std::vector<float> to(7), from(7);
  const auto out = [&](int64_t n) { return TensorView(to.data(), DType::f32, {n}); };
  const auto x = [&](int64_t n) { return TensorView(from.data(), DType::f32, {n}); };
  const auto four = bind(copy.on(bare_.runtime), out(4), x(4)).value();
  const auto seven = bind(copy.on(bare_.runtime), out(7), x(7)).value();
  Options fresh;
  fresh.cache = false;
  const std::function<Status(int64_t)> ways[] = {
      [&](int64_t n) { return copy.on(bare_.runtime)(out(n), x(n), 0); },
      [&](int64_t n) {
        return bare_.runtime.call("copy", {{"out", out(n)}, {"x", x(n)}});
      },
      [&](int64_t n) { return n == 4 ? four(out(n), x(n), 0) : seven(out(n), x(n), 0); },
      [&](int64_t n) { return copy.on(bare_.runtime).with(fresh)(out(n), x(n), 0); },
      [&](int64_t n) {
        const ScopedPolicy in(Scope().label("tenant", "beta"));
        return copy.on(bare_.runtime)(out(n), x(n), 0);
      },
  };
  bad_.set(
      {.when = [](const yard_value_t* args, uint32_t) { return args[0].u.tensor->shape[0] == 7; },
       .code = YARD_FAULT});
  for (size_t i = 0; i < std::size(ways); ++i) {
    bare_.runtime.health().reset("copy", "fault.bad").or_throw();
    EXPECT_FALSE(is_out());
    EXPECT_TRUE(soon([&] { return ways[i](4).ok() && ways[i](7).ok() && is_out(); })) << i;
  }
}

TEST_F(HealthOf, AShareOfFailuresOpensTheBreakerForThreads) {
  const auto reading = parse_config(
      "version: \"1.0\"\nsettings:\n  breaker: {failure_percent: 20, failure_min_calls: 50, "
      "failure_window: 5s}\n",
      "r.yaml");
  ASSERT_TRUE(reading.ok());
  ASSERT_TRUE(bare_.runtime.rules().set(reading.config).ok());
  EXPECT_EQ(bare_.runtime.health().settings().failure_percent, 20u);
  bad_.set({.rate = 0.4, .code = YARD_FAULT});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stop.load()) EXPECT_TRUE(call(4).ok());
    });
  EXPECT_TRUE(soon([&] { return is_out(4); }));
  stop = true;
  for (std::thread& t : threads) t.join();
}

TEST_F(HealthOf, FewFailuresOpenNothing) {
  bad_.set({.rate = 0.1, .code = YARD_FAULT});
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(call().ok());
  EXPECT_EQ(bare_.runtime.health().report().breakers.opened, 0u);
}

TEST_F(HealthOf, ASuccessOfAnotherPlanResetsConsecutiveFaults) {
  const Scope scope = Scope().label("tenant", "beta").strict(false);
  const std::function<void()> between[] = {
      [&] {
        Policy other;
        other.deny_vendors = {"acme"};
        bare_.runtime.set_policy(other).or_throw();
        EXPECT_TRUE(call().ok());
        bare_.runtime.set_policy({}).or_throw();
      },
      [&] {
        const ScopedPolicy in(scope);
        EXPECT_TRUE(call().ok());
      },
  };
  for (const auto& success : between) {
    bad_.set({.rate = 0});
    success();  // makes the plan and its memo
    success();
    success();
    for (int round = 0; round < 4; ++round) {
      bad_.set({.code = YARD_FAULT});
      for (int i = 0; i < 4; ++i) EXPECT_TRUE(call().ok());
      bad_.set({.rate = 0});
      success();
    }
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(is_out());
}

std::atomic<bool> g_typed_fails{false};
std::atomic<int> g_typed_runs{0};
int32_t typed_copy(plugin::Call, plugin::Tensor, plugin::Tensor, int64_t) {
  ++g_typed_runs;
  return g_typed_fails.load() ? YARD_FAULT : YARD_OK;
}

// Memos call kernels with a typed entry without going through the plan, in the process and in a
// scope.
TEST_F(HealthOf, MemosReportSuccessesAfterFaults) {
  Changes c;
  c.add_kernel(
      plugin::Kernel::of<typed_copy>("copy", "typed.copy").backend("test").priority(1000).d);
  bare_.runtime.apply(std::move(c)).or_throw();
  const Scope scope = Scope().label("tenant", "beta").strict(false);
  const auto in_scope = [&] {
    const ScopedPolicy in(scope);
    return call();
  };
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(call().ok() && in_scope().ok());
  for (int round = 0; round < 4; ++round) {
    g_typed_fails = true;
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(call().ok());
    g_typed_fails = false;
    EXPECT_TRUE((round % 2 == 0 ? call() : in_scope()).ok());
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(opened_, 0);
  g_typed_fails = true;
  g_typed_runs = 0;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(call().ok());
  EXPECT_EQ(g_typed_runs, 5);
  EXPECT_TRUE(soon([&] { return opened_ > 0; }));
  g_typed_fails = false;
}

// Calls of other sizes share the plan, but their faults are counted apart.
TEST_F(HealthOf, ConsecutiveFaultsAreCountedPerKindOfCall) {
  const auto fails = [&] {
    bad_.set({.code = YARD_FAULT});
    EXPECT_TRUE(call(4).ok());
    bad_.set({.rate = 0});
    EXPECT_TRUE(call(1000).ok());
  };
  for (int round = 0; round < 10; ++round) {
    fails();
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(call(4).ok());
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(is_out());
  for (int round = 0; round < 5; ++round) fails();
  EXPECT_TRUE(soon([&] { return is_out(); }));
}

TEST_F(HealthOf, AnUnusedFallbackConsumesNoProbes) {
  set(5, milliseconds(200));
  open_by_faults();
  set(5, std::chrono::hours(1));  // the length of one half-open period
  bad_.set({.rate = 0});
  ASSERT_TRUE(soon([&] { return half_opened_ > 0; }));
  FaultKernel first{{.op = "copy", .id = "fault.first", .priority = 300}};
  ASSERT_TRUE(bare_.add(first.descriptor()).ok());
  const uint64_t before = bad_.calls();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(call().ok());
  EXPECT_EQ(first.calls(), 10u);
  EXPECT_EQ(bad_.calls(), before);
  first.set({.code = YARD_FAULT});
  EXPECT_TRUE(call().ok());
  EXPECT_EQ(bad_.calls(), before + 1);
  ASSERT_TRUE(bare_.remove("copy", "fault.first").ok());
}

TEST_F(HealthOf, CallerErrorsDoNotAffectHealth) {
  bad_.set({.code = YARD_CALLER, .message = "by is odd"});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call().code(), Code::kInvalidArgument);
  bad_.set({.code = YARD_DECLINED});
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(call().ok());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(is_out());
  const HealthReport r = bare_.runtime.health().report();
  for (const KernelHealth& k : r.kernels) EXPECT_EQ(k.failure_rate(), 0) << k.kernel;
}

TEST_F(HealthOf, TheLastKernelAbleToRunIsNeverExcluded) {
  ASSERT_TRUE(bare_.remove("copy", "good").ok());
  bad_.set({.code = YARD_FAULT, .message = "smoke"});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(call().code(), Code::kKernelFailed);
  ASSERT_TRUE(soon([&] {
    const auto r = bare_.runtime.health().report();
    return std::any_of(r.kernels.begin(), r.kernels.end(), [](auto& k) { return !k.open.empty(); });
  }));
  bad_.set({.rate = 0});
  EXPECT_TRUE(call().ok());
}

TEST_F(HealthOf, AKernelIsUsedAgainAfterSuccessfulProbes) {
  set(5, milliseconds(50));
  open_by_faults();
  bad_.set({.rate = 0});
  ASSERT_TRUE(soon([&] { return half_opened_ > 0; }));
  const uint64_t before = bad_.calls();
  ASSERT_TRUE(soon([&] {
    EXPECT_TRUE(call().ok());
    return bad_.calls() > before + 50;
  }));
  const HealthReport r = bare_.runtime.health().report();
  EXPECT_EQ(r.breakers.closed, 1u);
}

TEST_F(HealthOf, AFaultOnAProbeReopensForLonger) {
  set(5, milliseconds(50));
  open_by_faults();
  ASSERT_TRUE(soon([&] { return half_opened_ > 0; }));
  EXPECT_TRUE(call().ok());  // the probe fails, but the call succeeds
  ASSERT_TRUE(soon([&] { return opened_ > 1; }));
  EXPECT_GE(bare_.runtime.health().report().breakers.opened, 2u);
}

TEST_F(HealthOf, ALostDeviceExcludesAllItsKernelsUntilItIsBack) {
  EXPECT_TRUE(call().ok());
  bare_.runtime.health().device_lost({}, "fell off the bus");
  EXPECT_EQ(call().code(), Code::kNoKernel);
  EXPECT_THAT(call().to_string(), HasSubstr("device cpu is lost"));
  bare_.runtime.health().device_back({});
  EXPECT_TRUE(call().ok());
}

TEST_F(HealthOf, AKernelCannotLoseTheHost) {
  set(5, milliseconds(50));
  bad_.set({.code = YARD_DEVICE_LOST, .message = "fell off the bus"});
  // The report counts as a fault of the kernel: another kernel serves the call, and the breaker
  // opens.
  for (int i = 0; i < 5; ++i) {
    t_ran = 0;
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(t_ran, 1);
  }
  ASSERT_TRUE(soon([&] { return opened_ > 0; }));
  for (const KernelHealth& k : bare_.runtime.health().report().kernels)
    if (k.kernel == "fault.bad") {
      EXPECT_EQ(k.failures.of(ErrorClass::kFault), 5u);
      EXPECT_EQ(k.failures.of(ErrorClass::kDeviceLost), 0u);
    }
  // A failed probe counts, too.
  ASSERT_TRUE(soon([&] { return half_opened_ > 0; }));
  EXPECT_TRUE(call().ok());
  ASSERT_TRUE(soon([&] { return opened_ > 1; }));
  EXPECT_GE(bare_.runtime.health().report().breakers.opened, 2u);
}

TEST_F(HealthOf, ADeviceReportedLostByAKernelIsExcluded) {
  FaultKernel lost{{.op = "copy", .id = "fault.gpu", .backend = "fakegpu", .priority = 100},
                   {.code = YARD_DEVICE_LOST, .message = "fell off the bus"}};
  yard_backend_t gpu = backend_of("fakegpu");
  gpu.device_type = 2;
  Changes c;
  c.add_backend(gpu).add_kernel(lost.descriptor());
  ASSERT_TRUE(bare_.runtime.apply(std::move(c)).ok());
  float to[4] = {}, from[4] = {};
  const auto on_gpu = [&] {
    return copy.on(bare_.runtime)(TensorView(to, DType::f32, {4}, {}, {2, 0}),
                                  TensorView(from, DType::f32, {4}, {}, {2, 0}), 0);
  };
  EXPECT_EQ(on_gpu().error_class(), ErrorClass::kDeviceLost);
  EXPECT_TRUE(soon([&] { return on_gpu().code() == Code::kNoKernel; }));
  EXPECT_THAT(on_gpu().to_string(), HasSubstr("device cuda is lost"));
  EXPECT_TRUE(call().ok());  // other devices still work
  bare_.runtime.health().device_back({2, 0});
  EXPECT_EQ(on_gpu().error_class(), ErrorClass::kDeviceLost);
  Changes d;
  d.remove_kernel("copy", "fault.gpu");
  ASSERT_TRUE(bare_.runtime.apply(std::move(d)).ok());
}

TEST_F(HealthOf, ManualOverrideOpensClosesAndResets) {
  Health health = bare_.runtime.health();
  EXPECT_EQ(health.open("copi", "fault.bad").code(), Code::kUnknownOp);
  EXPECT_EQ(health.open("copy", "fault.bed").code(), Code::kNotFound);
  ASSERT_TRUE(health.open("copy", "fault.bad", "bad firmware").ok());
  EXPECT_TRUE(is_out());
  EXPECT_TRUE(is_out(1000));
  EXPECT_THAT(why_out(), HasSubstr("manually"));
  ASSERT_TRUE(health.close("copy", "fault.bad").ok());
  EXPECT_FALSE(is_out());
  open_by_faults();
  ASSERT_TRUE(health.reset("copy", "fault.bad").ok());
  EXPECT_FALSE(is_out());
}

TEST_F(HealthOf, SettingsComeFromTheRuleFile) {
  auto reading = parse_config(
      "version: \"1.0\"\nsettings:\n  breaker: {failure_threshold: 2, cooldown: 5m}\n", "r.yaml");
  ASSERT_TRUE(reading.ok()) << to_string(reading.problems.at(0));
  ASSERT_TRUE(bare_.runtime.rules().set(reading.config).ok());
  EXPECT_EQ(bare_.runtime.health().settings().failure_threshold, 2u);
  bad_.set({.code = YARD_FAULT});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(call().ok());
  EXPECT_TRUE(soon([&] { return opened_ > 0; }));
  EXPECT_TRUE(is_out());
  ASSERT_TRUE(bare_.runtime.rules().load("").ok());
  EXPECT_EQ(bare_.runtime.health().settings(), BreakerSettings());
}

TEST_F(HealthOf, SwitchedOffNothingOpens) {
  BreakerSettings s;
  s.enabled = false;
  ASSERT_TRUE(bare_.runtime.health().set_settings(s).ok());
  bad_.set({.code = YARD_FAULT});
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(call().ok());
  EXPECT_EQ(bad_.calls(), 50u);
}

TEST_F(HealthOf, ListenersAreCalledOnAThreadOfTheRuntime) {
  std::mutex lock;
  std::vector<BreakerEvent> events;
  std::thread::id on;
  Health health = bare_.runtime.health();
  const uint64_t id = health.on_event([&](const BreakerEvent& e) {
    const std::lock_guard l(lock);
    events.push_back(e);
    on = std::this_thread::get_id();
  });
  open_by_faults();
  ASSERT_TRUE(soon([&] {
    const std::lock_guard l(lock);
    return !events.empty();
  }));
  health.remove_listener(id);
  EXPECT_EQ(events[0].kind, BreakerEvent::Kind::kOpened);
  EXPECT_EQ(events[0].kernel, "fault.bad");
  EXPECT_NE(on, std::this_thread::get_id());
}

TEST_F(HealthOf, ReportsCountWhatKernelsAndTheProgramSaw) {
  bad_.set({.code = YARD_FAULT, .message = "smoke"});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(call().ok());
  Health health = bare_.runtime.health();
  health.record_success("fault", 7);
  health.record_failure("fault", ErrorClass::kTransient, "busy");
  const HealthReport r = health.report();
  const auto kernel = [&](const char* id) {
    return *std::find_if(r.kernels.begin(), r.kernels.end(),
                         [&](const KernelHealth& k) { return k.kernel == id; });
  };
  EXPECT_EQ(kernel("fault.bad").failures.of(ErrorClass::kFault), 3u);
  EXPECT_EQ(kernel("fault.bad").last_error, "smoke");
  EXPECT_EQ(kernel("good").successes, 3u);
  const auto backend = std::find_if(r.backends.begin(), r.backends.end(),
                                    [](const BackendHealth& b) { return b.backend == "fault"; });
  ASSERT_NE(backend, r.backends.end());
  EXPECT_EQ(backend->successes, 7u);
  EXPECT_EQ(backend->failures.counted(), 4u);
  EXPECT_EQ(backend->last_error, "busy");
}

TEST_F(HealthOf, InHalfOpenOneProbeRunsAtATimeHoweverManyThreadsCall) {
  set(5, milliseconds(50));
  open_by_faults();
  std::atomic<int> inside{0}, most{0};
  bad_.set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) {
    const int now = ++inside;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(milliseconds(5));
    --inside;
    return static_cast<int32_t>(YARD_FAULT);
  }});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<uint64_t> wrong{0};
  const uint64_t before = bad_.calls();
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop.load()) wrong += call().ok() ? 0 : 1;
    });
  EXPECT_TRUE(soon([&] { return bad_.calls() >= before + 3; }));
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace yard::testing
