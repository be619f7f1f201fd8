// SPDX-License-Identifier: Apache-2.0
// Each class has one selection, however many threads need it at once. Also tests what verifiers may
// do during a selection.
#include <gtest/gtest.h>
#include <yard/log.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <thread>

#include "testing.h"

namespace yard::testing::single_flight {
namespace {

constexpr Op<void(Out, In, int)> copy{"copy"};

Policy strict_policy() {
  Policy p;
  p.strict = true;
  return p;
}
Policy policy_without(const char* vendor) {
  Policy p;
  p.deny_vendors = {vendor};
  return p;
}

// A verifier that runs code of the test.
struct Asked {
  std::atomic<int> times{0};
  std::function<void()> then = [] {};
  static int32_t verify(const yard_query_t* q, yard_verdict_t*) {
    auto* self = static_cast<Asked*>(q->self);
    ++self->times;
    self->then();
    return YARD_OK;
  }
};

int32_t trace_one(yard_call_t*, const yard_value_t*, uint32_t) {
  t_ran = 1;
  return YARD_OK;
}

yard_kernel_t asking(const char* op, const char* id, Asked& asked) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t k = kernel_of(op, id, 0, 500);
  k.run = trace_one, k.self = &asked, k.verify = Asked::verify, k.verify_reads = reads;
  return k;
}

void in_threads(int count, const std::function<void()>& f) {
  std::latch start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&] {
      start.arrive_and_wait();
      f();
    });
  for (std::thread& t : threads) t.join();
}

TEST(SingleFlight, ManyThreadsOneSelection) {
  Bare bare;
  Asked asked;
  asked.then = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  ASSERT_TRUE(bare.add(asking("copy", "a", asked)).ok());
  const auto on = copy.on(bare.runtime);
  for (int64_t n = 1; n <= 5; ++n) {
    std::atomic<int> failures{0};
    in_threads(8, [&] {
      Floats out(n), x(n);
      if (!on(out.view, x.view, 0).ok()) ++failures;
    });
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(asked.times, n);
    EXPECT_EQ(bare.runtime.stats(false).selections, static_cast<uint64_t>(n));
    EXPECT_EQ(bare.runtime.stats(false).plans, static_cast<size_t>(n));
  }
}

TEST(SingleFlight, DifferentClassesDoNotWaitForEachOther) {
  Bare bare;
  Asked asked;
  std::latch both(2);  // both verifiers must run at once
  asked.then = [&] { both.arrive_and_wait(); };
  ASSERT_TRUE(bare.add(asking("copy", "a", asked)).ok());
  const auto on = copy.on(bare.runtime);
  std::atomic<int64_t> n{0};
  in_threads(2, [&] {
    const int64_t mine = ++n;
    Floats out(mine), x(mine);
    EXPECT_TRUE(on(out.view, x.view, 0).ok());
  });
  EXPECT_EQ(asked.times, 2);
}

TEST(SingleFlight, AFailureIsReturnedToAllWaiters) {
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "a", 1);
  k.verify = [](const yard_query_t*, yard_verdict_t* v) -> int32_t {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    v->reason = YARD_REASON_REFUSED;
    return YARD_OK;
  };
  ASSERT_TRUE(bare.add(k).ok());
  const auto on = copy.on(bare.runtime);
  std::atomic<int> refused{0};
  in_threads(6, [&] {
    Floats out(3), x(3);
    const Status s = on(out.view, x.view, 0);
    refused += s.code() == Code::kNoKernel && s.to_string().find("refused") != std::string::npos;
  });
  EXPECT_EQ(refused, 6);
}

// Each of two verifiers calls the other's op while it runs, so waiting would deadlock.
TEST(SingleFlight, VerifiersMayCallOps) {
  Bare bare;
  Changes c;
  c.add_op(op_of("other(out!: T[n], x: T[n], by: int = 0)"));
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  constexpr Op<void(Out, In, int)> other{"other"};
  const auto on_copy = copy.on(bare.runtime);
  const auto on_other = other.on(bare.runtime);
  static thread_local int depth = 0;
  Asked a, b;
  std::latch both(2);
  std::atomic<int> failures{0};
  const auto call = [&](const auto& op) {
    if (depth > 0) return;
    ++depth;
    both.arrive_and_wait();  // both classes are being selected now
    Floats out(4), x(4);
    if (!op(out.view, x.view, 0).ok()) ++failures;
    --depth;
  };
  a.then = [&] { call(on_other); };
  b.then = [&] { call(on_copy); };
  Changes kernels;
  kernels.add_kernel(asking("copy", "a", a)).add_kernel(asking("other", "b", b));
  ASSERT_TRUE(bare.runtime.apply(std::move(kernels)).ok());
  std::atomic<int> which{0};
  in_threads(2, [&] {
    Floats out(4), x(4);
    const Status s = which++ == 0 ? on_copy(out.view, x.view, 0) : on_other(out.view, x.view, 0);
    if (!s.ok()) ++failures;
  });
  EXPECT_EQ(failures, 0);
}

TEST(SingleFlight, VerifiersMayNotChangeWhatIsBeingSelectedFrom) {
  Bare bare;
  Asked asked;
  Status apply, policy, reset;
  asked.then = [&] {
    Changes c;
    c.remove_kernel("copy", "a");
    apply = bare.runtime.apply(std::move(c)).status();
    policy = bare.runtime.set_policy({});
    reset = bare.runtime.reset();
  };
  ASSERT_TRUE(bare.add(asking("copy", "a", asked)).ok());
  Floats out(4), x(4);
  ASSERT_TRUE(copy.on(bare.runtime)(out.view, x.view, 0).ok());
  for (const Status& s : {apply, policy, reset}) EXPECT_EQ(s.code(), Code::kWouldDeadlock);
}

TEST(SingleFlight, VerifiersMayWaitForThreadsThatChangeAndCall) {
  Bare bare;
  Asked asked;
  ASSERT_TRUE(bare.add(asking("copy", "a", asked)).ok());
  const auto on = copy.on(bare.runtime);
  const auto call = [&] {
    Floats out(4), x(4);
    return on(out.view, x.view, 0);
  };
  Status same_class, policy, apply, discover, after;
  asked.then = [&] {
    if (asked.times > 1) return;
    std::thread([&] { same_class = call(); }).join();
  };
  EXPECT_TRUE(call().ok());
  EXPECT_TRUE(same_class.ok()) << same_class.to_string();

  // The verifier makes a change inside a change that plans its class again.
  asked.times = 0;
  asked.then = [&] {
    if (asked.times > 1) return;
    std::thread([&] {
      policy = bare.runtime.set_policy(policy_without("none"));
      apply = bare.add(kernel_of("copy", "better", 2, 600));
      discover = bare.runtime.plugins().discover({});
      after = call();
      EXPECT_EQ(t_ran, 2);
    }).join();
  };
  ASSERT_TRUE(bare.runtime.set_policy(strict_policy()).ok());
  for (const Status& s : {policy, apply, discover, after}) EXPECT_TRUE(s.ok()) << s.to_string();
  // The outer change came last and kept the other changes.
  EXPECT_TRUE(bare.runtime.policy().strict.value_or(false));
  EXPECT_TRUE(bare.runtime.policy().deny_vendors.empty());
  EXPECT_TRUE(call().ok());
  EXPECT_EQ(t_ran, 2);
  EXPECT_GE(asked.times, 2);
}

TEST(SingleFlight, LogSinksMayChangeWhatTheyAreToldAbout) {
  Bare bare;
  const auto on = copy.on(bare.runtime);
  static thread_local bool inside = false;
  std::atomic<int> told{0};
  Status here, elsewhere;
  ASSERT_TRUE(set_log_level("select", LogLevel::kInfo).ok());
  set_log_sink([&](const LogMessage& m) {
    if (m.logger != "select" || inside) return;
    inside = true;
    if (++told == 2) {
      here = bare.runtime.set_policy(strict_policy());
      std::thread([&] { elsewhere = bare.add(kernel_of("copy", "of_the_sink", 3, 700)); }).join();
    }
    inside = false;
  });
  ASSERT_TRUE(bare.add(kernel_of("copy", "first_seen", 1)).ok());
  Floats out(4), x(4);
  EXPECT_TRUE(on(out.view, x.view, 0).ok());
  EXPECT_EQ(told, 1);
  const Status added = bare.add(kernel_of("copy", "second_seen", 2, 600));
  EXPECT_TRUE(on(out.view, x.view, 0).ok());
  set_log_sink({});
  set_log_level("select", LogLevel::kWarn).ignore();
  EXPECT_GE(told, 2) << "the call selects again under what the sink has changed";
  for (const Status& s : {added, here, elsewhere}) EXPECT_TRUE(s.ok()) << s.to_string();
  EXPECT_TRUE(bare.runtime.policy().strict.value_or(false));
  EXPECT_TRUE(on(out.view, x.view, 0).ok());
  EXPECT_EQ(t_ran, 3);
}

// A better kernel arrives during the selection for a class. The plan of that selection is outdated
// and must not serve later calls.
TEST(SingleFlight, AChangeDuringASelectionIsSeenByTheNextCall) {
  Bare bare;
  Asked asked;
  std::latch inside(1), changed(1);
  asked.then = [&] {
    if (asked.times > 1) return;
    inside.count_down();
    changed.wait();
  };
  ASSERT_TRUE(bare.add(asking("copy", "a", asked)).ok());
  const auto on = copy.on(bare.runtime);
  std::thread caller([&] {
    Floats out(4), x(4);
    EXPECT_TRUE(on(out.view, x.view, 0).ok());
  });
  inside.wait();
  ASSERT_TRUE(bare.add(kernel_of("copy", "better", 2, 600)).ok());
  Floats out(4), x(4);
  ASSERT_TRUE(on(out.view, x.view, 0).ok());  // does not wait for the other selection
  EXPECT_EQ(t_ran, 2);
  changed.count_down();
  caller.join();
  for (int i = 0; i < 10; ++i) {
    t_ran = 0;
    ASSERT_TRUE(on(out.view, x.view, 0).ok());
    EXPECT_EQ(t_ran, 2);
  }
}

// A call that never returns holds a plan table. The plans of other classes stay bounded.
TEST(SingleFlight, AKernelThatNeverReturnsDoesNotKeepAllPlansAlive) {
  constexpr size_t kPlans = 16;
  Bare bare(kCopy, kPlans);
  Asked asked;
  static std::latch blocked(1), release(1);
  yard_kernel_t k = asking("copy", "a", asked);
  k.run = [](yard_call_t*, const yard_value_t* args, uint32_t) -> int32_t {
    if (args[0].u.tensor->shape[0] == 1) blocked.count_down(), release.wait();
    return YARD_OK;
  };
  ASSERT_TRUE(bare.add(k).ok());
  const auto on = copy.on(bare.runtime);
  std::thread stuck([&] {
    Floats out(1), x(1);
    on(out.view, x.view, 0).ignore();
  });
  blocked.wait();
  size_t most = 0;
  for (int64_t n = 2; n < 3000; ++n) {
    Floats out(n), x(n);
    ASSERT_TRUE(on(out.view, x.view, 0).ok());
    most = std::max(most, bare.runtime.stats(false).retired);
    ASSERT_LE(bare.runtime.stats(false).plans, kPlans);
  }
  EXPECT_LE(most, 1000u);
  release.count_down();
  stuck.join();
}

}  // namespace
}  // namespace yard::testing::single_flight
