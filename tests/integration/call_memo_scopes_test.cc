// SPDX-License-Identifier: Apache-2.0
// Calls of one form in and out of scopes, with and without options, never use each other's memos.
// Memos are invalid in a forked child.
#include <gtest/gtest.h>
#include <yard/detail/memo.h>

#include <deque>
#include <optional>
#include <random>

#include "base/testing_fork.h"
#include "testing.h"

namespace yard::testing::memo_scopes {
namespace {

constexpr Op<void(Out, In)> step{"step"};

thread_local intptr_t t_kernel = 0;
int32_t typed_step(yard_call_t* call, const yard_tensor_t*, const yard_tensor_t*) {
  t_kernel = reinterpret_cast<intptr_t>(call->self);
  return YARD_OK;
}
int32_t packed_step(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_kernel = reinterpret_cast<intptr_t>(call->self);
  return YARD_OK;
}
yard_kernel_t step_kernel(const char* id, intptr_t self, int32_t priority) {
  yard_kernel_t k = kernel_of("step", id, self, priority);
  k.run = packed_step, k.typed = reinterpret_cast<void (*)()>(typed_step);
  k.typed_signature = "tt";
  return k;
}

class CallMemoScopes : public ::testing::Test {
 protected:
  CallMemoScopes() {
    yard_kernel_t b = step_kernel("b", 2, 20);
    b.flags |= YARD_KERNEL_DETERMINISTIC;
    bare_.add(step_kernel("a", 1, 30)).or_throw();
    bare_.add(b).or_throw();
    bare_.add(step_kernel("c", 3, 10)).or_throw();
    yard_kernel_t reference = step_kernel("r", 4, 0);
    reference.kind = YARD_KIND_REFERENCE;
    bare_.add(reference).or_throw();
    for (int64_t n = 1; n <= 4; ++n) {
      outs_.emplace_back(out_, DType::f32, std::initializer_list<int64_t>{n, 8});
      xs_.emplace_back(x_, DType::f32, std::initializer_list<int64_t>{n, 8});
    }
  }
  intptr_t ran(size_t form = 0) { return kernel(on_(outs_[form], xs_[form])); }
  intptr_t packed(size_t form = 0) {
    return kernel(bare_.runtime.call("step", {outs_[form], xs_[form]}));
  }
  intptr_t ran_with(const Options& o, size_t form = 0) {
    return kernel(on_.with(o)(outs_[form], xs_[form]));
  }
  static intptr_t kernel(const Status& s) {
    return s.ok() ? std::exchange(t_kernel, 0) : -static_cast<intptr_t>(s.code());
  }

  Bare bare_{"step(out!: T[n, m], x: T[n, m]) where out may_alias x"};
  OpOn<void(Out, In)> on_ = step.on(bare_.runtime);
  alignas(64) float out_[64] = {}, x_[64] = {};
  std::deque<TensorView> outs_, xs_;
};

TEST_F(CallMemoScopes, EachScopeHasMemosOfItsOwn) {
  const Scope no_a = Scope().deny_kernels({"a"}), no_b = Scope().deny_kernels({"b"});
  const Scope steady = Scope().deterministic();
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 1);
    {
      const ScopedPolicy one(no_a);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(packed(), 2);
      {
        const ScopedPolicy two(no_b);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 3);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(packed(), 3);
      }
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
    }
    {
      const ScopedPolicy two(no_b);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 1);
    }
    {
      const ScopedPolicy in(steady);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
      for (int i = 0; i < 3; ++i) ASSERT_EQ(packed(), 2);
    }
    {
      const ScopedPolicy once(Scope().deny_kernels({"a", "b", "r"}));
      for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 3);
    }
    for (int i = 0; i < 3; ++i) ASSERT_EQ(packed(), 1);
  }
}

TEST_F(CallMemoScopes, ChangesReachCallsInScopes) {
  const Scope no_a = Scope().deny_kernels({"a"});
  const ScopedPolicy in(no_a);
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
    bare_.add(step_kernel("late", 9, 90)).or_throw();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 9);
    bare_.remove("step", "late").or_throw();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
    bare_.runtime.health().open("step", "b").or_throw();
    ASSERT_EQ(ran(), 3);
    ASSERT_EQ(ran(), 3);
    bare_.runtime.health().reset("step", "b").or_throw();
  }
}

TEST_F(CallMemoScopes, RandomScopesAndOptionsAgainstFreshSelection) {
  const std::string yaml = R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {tenant: blue}, kernel: b, priority: 9}
  - {operation: step, conditions: {tenant: red, n_gte: 3}, kernel: c, priority: 8}
)";
  bare_.runtime.rules().set(parse_config(yaml, "rules.yaml").config).or_throw();
  const Scope scopes[] = {Scope(),
                          Scope().deny_kernels({"a"}),
                          Scope().deny_kernels({"b"}),
                          Scope().label("tenant", "blue"),
                          Scope().label("tenant", "red"),
                          Scope().label("unread", "red"),
                          Scope().deterministic(),
                          Scope().prefer(Kind::kReference),
                          Scope().order("step", {"impl:c", "impl:a"})};
  std::vector<Options> options(12);
  options[1].deny = {"a"};
  options[2].deny = {"b"};
  options[3].force = "c";
  options[4].force = "a";
  options[5].labels["tenant"] = "blue";
  options[6].labels["tenant"] = "red";
  options[7].labels["other"] = "blue";
  options[8].policy.emplace().prefer = Kind::kReference;
  options[9].policy.emplace().deny_kernels = {"a"};
  options[10].deterministic = true;
  options[11].deny = {"a"}, options[11].labels["tenant"] = "red";
  std::mt19937 random(17);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Options fresh;
  fresh.cache = false;
  for (int i = 0; i < 3000; ++i) {
    std::optional<ScopedPolicy> outer, inner;
    if (below(3) > 0) outer.emplace(scopes[below(std::size(scopes))]);
    if (outer && below(2) > 0) inner.emplace(scopes[below(std::size(scopes))]);
    for (int k = 0; k < 3; ++k) {
      const size_t form = below(4);
      const intptr_t expected = ran_with(fresh, form);
      for (int again = 0; again < 2; ++again) {
        ASSERT_EQ(ran(form), expected) << i;
        ASSERT_EQ(packed(form), expected) << i;
      }
      const Options& o = options[below(options.size())];
      Options o_fresh = o;
      o_fresh.cache = false;
      const Options copy = o;
      ASSERT_EQ(ran_with(copy, form), ran_with(o_fresh, form)) << i;
      ASSERT_EQ(ran(form), expected) << "after a call with options " << i;
    }
  }
  EXPECT_LE(bare_.runtime.stats(false).overlays, 2000u);
}

TEST_F(CallMemoScopes, EqualOptionsShareAnOverlay) {
  const auto make = [](int which) {
    Options o;
    if (which == 0) o.deny = {"a"};
    if (which == 1) o.force = "b";
    if (which == 2) o.policy.emplace().deny_kernels = {"a", "b"};
    if (which == 3) o.policy.emplace().per_op["step"] = {"impl:c"};
    return o;
  };
  constexpr intptr_t kExpected[] = {2, 2, 3, 3};
  for (int which = 0; which < 4; ++which) ASSERT_EQ(ran_with(make(which)), kExpected[which]);
  const size_t before = bare_.runtime.stats(false).overlays;
  const uint64_t selections = bare_.runtime.stats(false).selections;
  EXPECT_EQ(before, 4u);
  for (int i = 0; i < 1000; ++i) {
    const int which = i % 4;
    ASSERT_EQ(ran_with(make(which)), kExpected[which]);
  }
  EXPECT_EQ(bare_.runtime.stats(false).overlays, before);
  EXPECT_EQ(bare_.runtime.stats(false).selections, selections);
}

// There are more overlays than the runtime keeps. Released overlays are not used again.
TEST_F(CallMemoScopes, ReleasedOverlaysAreNotUsed) {
  // Scopes whose numbers differ by 64 have equal hashes here, so they must differ in what they
  // deny.
  std::vector<Scope> scopes;
  const auto denies_a = [](size_t i) { return (i + i / 64) % 2 == 0; };
  for (size_t i = 0; i < 300; ++i)
    scopes.push_back(Scope().deny_kernels({denies_a(i) ? "a" : "b", "z" + std::to_string(i)}));
  for (size_t i = 0; i < 300; ++i) {  // scopes get their numbers in this order
    const ScopedPolicy in(scopes[i]);
    for (int k = 0; k < 3; ++k) ASSERT_EQ(ran(), denies_a(i) ? 2 : 1);
    for (int k = 0; k < 3; ++k) ASSERT_EQ(packed(), denies_a(i) ? 2 : 1);
  }
  std::mt19937 random(23);
  for (int i = 0; i < 5000; ++i) {
    const size_t s = random() % scopes.size();
    const ScopedPolicy in(scopes[s]);
    for (int k = 0; k < 3; ++k) ASSERT_EQ(ran(), denies_a(s) ? 2 : 1);
    for (int k = 0; k < 3; ++k) ASSERT_EQ(packed(), denies_a(s) ? 2 : 1);
  }
}

// ---- fork() ----

#if !defined(YARD_UNDER_TSAN)
TEST_F(CallMemoScopes, MemosAreVoidInAForkedChild) {
  const auto calls = [&] {
    const auto listing = bare_.runtime.list();
    for (const KernelInfo& k : listing.find_op("step")->kernels)
      if (k.id == "a") return k.calls;
    return uint64_t{0};
  };
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(ran(), 1);
    ASSERT_EQ(packed(), 1);
  }
  ASSERT_NE(detail::t_thread->memos, &detail::kNoMemos);
  ASSERT_EQ(calls(), 10u);
  const auto in_child = [&] {
    if (detail::t_thread->memos != &detail::kNoMemos) return false;
    if (calls() != 0) return false;
    for (uint64_t i = 1; i <= 5; ++i) {
      if (ran() != 1 || packed() != 1 || calls() != 2 * i) return false;
    }
    if (detail::t_thread->memos == &detail::kNoMemos) return false;
    bare_.runtime.health().open("step", "a").or_throw();
    if (ran() != 2 || packed() != 2) return false;
    // The memos are also invalid in a child of the child.
    return base::true_in_child([&] { return ran() == 1 || ran() == 2; });
  };
  EXPECT_TRUE(base::true_in_child(in_child));
  EXPECT_EQ(calls(), 10u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ran(), 1);
  EXPECT_EQ(calls(), 13u);
}

// The call of a kernel that forks ends in both processes.
TEST_F(CallMemoScopes, AKernelMayFork) {
  static bool forks = false;
  static bool is_child = false;
  static int failures = 0;
  forks = is_child = false, failures = 0;
  yard_kernel_t k = step_kernel("forks", 7, 70);
  k.typed =
      reinterpret_cast<void (*)()>(+[](yard_call_t*, const yard_tensor_t*, const yard_tensor_t*) {
        if (forks) {
          const pid_t child = ::fork();
          if (child == 0) {
            is_child = true;
          } else {
            int status = -1;
            failures += ::waitpid(child, &status, 0) != child || status != 0;
          }
        }
        t_kernel = 7;
        return int32_t{YARD_OK};
      });
  bare_.add(k).or_throw();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(ran(), 7);
  forks = true;
  const intptr_t r = ran();
  forks = false;
  if (is_child) {
    bool good = r == 7;
    for (int i = 0; i < 5; ++i) good &= ran() == 7;
    ::_exit(good ? 0 : 1);
  }
  EXPECT_EQ(r, 7);
  EXPECT_EQ(failures, 0);
}
#endif

}  // namespace
}  // namespace yard::testing::memo_scopes
