// SPDX-License-Identifier: Apache-2.0
// Ops inside commit groups: a choice is kept, and no call falls back on its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/function.h>

#include <functional>
#include <thread>

#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr Op<void(Out, In, int)> copy{"copy"};

thread_local int t_fails = 0;  // so many kernels of this thread's calls fail from now on

int32_t fails_at_times(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  if (t_fails > 0) {
    --t_fails;
    return YARD_FAULT;
  }
  return leave_trace(call, args, count);
}

class CommitOfOps : public ::testing::Test {
 protected:
  CommitOfOps() {
    yard_kernel_t a = kernel_of("copy", "a", 1, 100), b = kernel_of("copy", "b", 2, 200);
    a.run = b.run = fails_at_times;
    bare_.add(a).or_throw();
    bare_.add(b).or_throw();
  }
  intptr_t ran(int64_t n = 4, int by = 0) {
    t_ran = 0;
    std::vector<float> to(static_cast<size_t>(n)), from(static_cast<size_t>(n));
    last_ = copy.on(bare_.runtime)(TensorView(to.data(), DType::f32, {n}),
                                   TensorView(from.data(), DType::f32, {n}), by);
    return last_.ok() ? t_ran : -static_cast<intptr_t>(last_.code());
  }
  void deny(const char* id) {
    Policy p;
    p.deny_kernels = {id};
    bare_.runtime.set_policy(p).or_throw();
  }

  Bare bare_;
  Status last_;
};

TEST_F(CommitOfOps, NothingChangesMidway) {
  EXPECT_EQ(ran(), 2);
  {
    const CommitGroup group;
    EXPECT_EQ(ran(), 2);
    yard_kernel_t better = kernel_of("copy", "c", 3, 300);
    ASSERT_TRUE(bare_.add(better).ok());
    EXPECT_EQ(ran(), 2);
    EXPECT_EQ(ran(5), 3);  // another kind of call, which had not chosen
    const auto made = group.decisions();
    ASSERT_EQ(made.size(), 2u);
    EXPECT_THAT(made[0].point, HasSubstr("copy(f32[4]"));
    EXPECT_EQ(made[0].chosen, "b");
    EXPECT_THAT(made[1].point, HasSubstr("copy(f32[5]"));
    EXPECT_EQ(made[1].chosen, "c");
  }
  EXPECT_EQ(ran(), 3);
}

TEST_F(CommitOfOps, ADeniedChoiceIsAnError) {
  const CommitGroup group;
  EXPECT_EQ(ran(), 2);
  deny("b");
  EXPECT_EQ(ran(), -static_cast<intptr_t>(Code::kNoKernel));
  EXPECT_THAT(last_.to_string(), HasSubstr("commit group"));
}

TEST_F(CommitOfOps, TheFirstCallMayFallBackButNoLaterOne) {
  const CommitGroup group;
  t_fails = 1;
  EXPECT_EQ(ran(), 1);  // b failed, a has been chosen
  EXPECT_EQ(ran(), 1);
  EXPECT_EQ(ran(6), 2);
  t_fails = 1;
  EXPECT_EQ(ran(6), -static_cast<intptr_t>(Code::kKernelFailed));
}

TEST_F(CommitOfOps, NothingFallsBackInACollective) {
  const CommitGroup group(CommitKind::kCollective);
  t_fails = 1;
  EXPECT_EQ(ran(), -static_cast<intptr_t>(Code::kKernelFailed));
}

TEST_F(CommitOfOps, ACallThatFailsOnAllKernelsMakesNoChoice) {
  const CommitGroup group;
  t_fails = 2;
  EXPECT_EQ(ran(), -static_cast<intptr_t>(Code::kKernelFailed));
  EXPECT_THAT(last_.to_string(), HasSubstr("2 kernels"));
  EXPECT_TRUE(group.decisions().empty());
  EXPECT_EQ(ran(), 2);
  EXPECT_EQ(group.decisions().size(), 1u);
}

TEST_F(CommitOfOps, ScalarsMakeNoNewChoice) {
  const CommitGroup group;
  EXPECT_EQ(ran(4, 0), 2);
  ASSERT_TRUE(bare_.add(kernel_of("copy", "c", 3, 300)).ok());
  EXPECT_EQ(ran(4, 1), 2);
  EXPECT_EQ(group.decisions().size(), 1u);
}

// While the breaker of the chosen kernel is open, and while it is half-open and another call has taken the only
// probe: what the group has chosen runs.
TEST_F(CommitOfOps, BreakersDoNotChangeAChoice) {
  using std::chrono::milliseconds;
  Health health = bare_.runtime.health();
  const auto soon = [](const std::function<bool()>& f) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!f() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(milliseconds(1));
    return std::chrono::steady_clock::now() < end;
  };
  // Half-open, and in a period that does not end during the test.
  const auto in_a_long_period = [&] {
    for (const KernelHealth& k : health.report().kernels)
      for (const OpenBreaker& b : k.open)
        if (b.state == BreakerState::kHalfOpen && b.until &&
            *b.until > std::chrono::steady_clock::now() + std::chrono::minutes(1))
          return true;
    return false;
  };
  for (const CommitKind kind : {CommitKind::kPlain, CommitKind::kCollective}) {
    BreakerSettings s;
    s.failure_threshold = 1, s.half_open_max_calls = 1, s.success_threshold = 1000;
    s.cooldown = s.cooldown_cap = milliseconds(200);
    ASSERT_TRUE(health.set_settings(s).ok());
    const CommitGroup group(kind);
    EXPECT_EQ(ran(), 2);
    std::thread([&] {
      t_fails = 1;
      EXPECT_EQ(ran(), 1);
      EXPECT_TRUE(soon([&] { return ran() == 1; }));  // it is open
    }).join();
    EXPECT_EQ(ran(), 2) << last_.to_string();
    s.cooldown = s.cooldown_cap = std::chrono::hours(1);  // how long one period of half-open is
    ASSERT_TRUE(health.set_settings(s).ok());
    ASSERT_TRUE(soon(in_a_long_period));
    std::thread([&] {
      EXPECT_TRUE(soon([&] { return ran() == 2; }));  // the only probe
      EXPECT_EQ(ran(), 1);
    }).join();
    EXPECT_EQ(ran(), 2) << last_.to_string();
    ASSERT_EQ(group.decisions().size(), 1u);
    EXPECT_EQ(group.decisions()[0].chosen, "b");
    ASSERT_TRUE(health.reset("copy", "b").ok());
  }
}

TEST_F(CommitOfOps, EqualDecisionsHaveEqualDigests) {
  const auto digest_of = [&](int64_t n) {
    const CommitGroup group;
    EXPECT_GT(ran(n), 0);
    return group.digest();
  };
  const std::string one = digest_of(4);
  EXPECT_EQ(one, digest_of(4));
  EXPECT_NE(one, digest_of(5));
  std::string elsewhere;
  std::thread([&] { elsewhere = digest_of(4); }).join();
  EXPECT_EQ(one, elsewhere);
  deny("b");
  EXPECT_NE(one, digest_of(4));
}

TEST_F(CommitOfOps, DecisionsOfOneGroupBindAnother) {
  std::vector<CommitDecision> forward;
  {
    const CommitGroup group;
    EXPECT_EQ(ran(), 2);
    forward = group.decisions();
  }
  ASSERT_TRUE(bare_.add(kernel_of("copy", "c", 3, 300)).ok());
  EXPECT_EQ(ran(), 3);
  const CommitGroup backward(forward);
  EXPECT_EQ(ran(), 2);
}

TEST_F(CommitOfOps, ScopesAndBoundHandlesFollow) {
  std::vector<float> to(4), from(4);
  const TensorView out(to.data(), DType::f32, {4}), x(from.data(), DType::f32, {4});
  const auto bound = bind(copy.on(bare_.runtime), out, x);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  const CommitGroup group;
  EXPECT_EQ(ran(), 2);
  ASSERT_TRUE(bare_.add(kernel_of("copy", "c", 3, 300)).ok());
  t_ran = 0;
  EXPECT_TRUE((*bound)(out, x, 0).ok());
  EXPECT_EQ(t_ran, 2);
  const ScopedPolicy strict(Scope().strict());
  EXPECT_EQ(ran(), 2);
}

}  // namespace
}  // namespace yard::testing
