// SPDX-License-Identifier: Apache-2.0
// After a fork the child is usable at once, with the parent's registry and policy, whatever the
// parent's threads were doing. The thread sanitizer does not run these tests, because it does not
// survive threads after a fork. See allocator_at_fork.cc for the address sanitizer.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/abi.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "testing.h"

namespace yard::testing {
namespace {

// Exits a child with a code that identifies the failed line.
#define YARD_IN_CHILD(condition)                 \
  do {                                           \
    if (!(condition)) _exit(1 + __LINE__ % 200); \
  } while (false)

#if defined(YARD_UNDER_ASAN)
constexpr int kForks = 50;  // each fork takes about ten milliseconds here
#else
constexpr int kForks = 200;
#endif

constexpr const char* kForked = "forked(out!: T[n], x: T[n], by: int = 0)";
const Op<void(Out, In, int)> forked{"forked"};

// Runs `f` in a child and waits for it. An alarm ends a child that hangs.
void expect_child(const std::function<void()>& f) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    f();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the line with this remainder by 200, plus one";
}

// Uses the shared runtime, so that typed ops and handles work.
class Fork : public ::testing::Test {
 protected:
  Fork() : runtime_(Runtime::shared()) {
    Changes c;
    c.add_backend(backend_of("test"))
        .add_op(op_of(kForked))
        .add_kernel(kernel_of("forked", "a", 1));
    runtime_.apply(std::move(c)).or_throw();
  }
  ~Fork() override {
    Changes c;
    c.remove_op("forked").remove_backend("test");
    runtime_.apply(std::move(c)).or_throw();
    runtime_.set_policy({}).or_throw();
  }
  Status add(const yard_kernel_t& k) {
    Changes c;
    c.add_kernel(k);
    return runtime_.apply(std::move(c)).status();
  }
  void work(int64_t n) {
    Floats out(n), x(n);
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok());
    YARD_IN_CHILD(runtime_.call("forked", {out.view, x.view}).ok());
    YARD_IN_CHILD(runtime_.resolve("forked(f32[4])").ok());
    const auto bound = bind(forked, out.view, x.view);
    YARD_IN_CHILD(bound.ok() && (*bound)(1).ok());
    const auto frozen = freeze(forked, out.view, x.view);
    YARD_IN_CHILD(frozen.ok() && (*frozen)(1).ok());
    Options o;
    o.deny = {"x" + std::to_string(n)};
    YARD_IN_CHILD(forked.with(o)(out.view, x.view, 0).ok());
    YARD_IN_CHILD(add(kernel_of("forked", "child", 77, 999)).ok());
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 77);
    Changes c;
    c.remove_kernel("forked", "child");
    const auto ticket = runtime_.apply(std::move(c));
    YARD_IN_CHILD(ticket.ok() && ticket->wait(std::chrono::seconds(20)).ok());
    t_ran = 0;
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran != 77);
    YARD_IN_CHILD(runtime_.set_policy({}).ok());
    YARD_IN_CHILD(!runtime_.list().ops.empty());
  }

  // Exercises what a kernel may do: everything above except waiting.
  void work_inside() {
    Floats out(6), x(6);
    YARD_IN_CHILD(add(kernel_of("forked", "inside", 78, 999)).ok());
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 78);
    Changes c;
    c.remove_kernel("forked", "inside");
    YARD_IN_CHILD(runtime_.apply(std::move(c)).ok());
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok());
  }

  Runtime& runtime_;
};

TEST_F(Fork, TheChildWorksAtOnce) {
  Floats out(4), x(4);
  ASSERT_TRUE(forked(out.view, x.view, 0).ok());
  expect_child([&] {
    work(4);
    std::thread([&] { work(5); }).join();
  });
  ASSERT_TRUE(forked(out.view, x.view, 0).ok());
  EXPECT_EQ(t_ran, 1);
}

TEST_F(Fork, GrandchildrenWorkToo) {
  expect_child([&] {
    work(4);
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      alarm(60);
      work(6);
      _exit(0);
    }
    int status = 0;
    YARD_IN_CHILD(waitpid(grandchild, &status, 0) == grandchild && status == 0);
  });
}

TEST_F(Fork, RegistryAndPolicyStayAndCountersRestart) {
  ASSERT_TRUE(add(kernel_of("forked", "b", 2, 500)).ok());
  Policy p;
  p.deny_kernels = {"b"};
  ASSERT_TRUE(runtime_.set_policy(p).ok());
  Floats out(4), x(4);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(forked(out.view, x.view, 0).ok());
  const auto calls = [&] { return runtime_.list().find_op("forked")->kernels[0].calls; };
  const uint64_t before = calls();
  EXPECT_GE(before, 5u);
  expect_child([&] {
    YARD_IN_CHILD(runtime_.policy() == p);
    YARD_IN_CHILD(calls() == 0);
    YARD_IN_CHILD(runtime_.stats(false).selections == 0);
    YARD_IN_CHILD(runtime_.stats(false).retired < 16);
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 1);
    YARD_IN_CHILD(calls() == 1);
    std::thread([&] { YARD_IN_CHILD(forked(out.view, x.view, 0).ok()); }).join();
    YARD_IN_CHILD(calls() == 2);
  });
  EXPECT_EQ(calls(), before);
}

TEST_F(Fork, BackendsThatCannotSurviveAForkAreExcluded) {
  yard_backend_t b = backend_of("fragile");
  b.flags = YARD_BACKEND_FORK_UNSAFE;
  yard_kernel_t k = kernel_of("forked", "fragile", 9, 800);
  k.backend = "fragile";
  Changes c;
  c.add_backend(b).add_kernel(k);
  ASSERT_TRUE(runtime_.apply(std::move(c)).ok());
  Floats out(4), x(4);
  ASSERT_TRUE(forked(out.view, x.view, 0).ok());
  ASSERT_EQ(t_ran, 9);
  const auto bound = bind(forked, out.view, x.view).value();
  const auto reason = [&] {
    for (const KernelInfo& info : runtime_.list().find_kernels("fragile")) return info.reason;
    return std::string("not there");
  };
  EXPECT_EQ(reason(), "");
  expect_child([&] {
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 1);
    YARD_IN_CHILD(bound(0).ok() && t_ran == 1);
    YARD_IN_CHILD(reason() == "forked");
    Options o;
    o.force = "fragile";
    YARD_IN_CHILD(forked.with(o)(out.view, x.view, 0).code() == Code::kNoKernel);
    // The kernel also works after it is registered again.
    YARD_IN_CHILD(add(kernel_of("forked", "later", 5, 1)).ok());
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 1);
  });
  ASSERT_TRUE(bound(0).ok());
  EXPECT_EQ(t_ran, 9);
  Changes gone;
  gone.remove_backend("fragile");
  ASSERT_TRUE(runtime_.apply(std::move(gone)).ok());
}

// ---- From inside ----

std::function<void()> g_inside;  // runs in the kernel or verifier
int32_t run_inside(yard_call_t*, const yard_value_t*, uint32_t) { return g_inside(), YARD_OK; }
int32_t verify_inside(const yard_query_t*, yard_verdict_t*) { return g_inside(), YARD_OK; }

TEST_F(Fork, InsideAKernel) {
  yard_kernel_t k = kernel_of("forked", "forks", 3, 900);
  k.run = run_inside;
  ASSERT_TRUE(add(k).ok());
  Floats out(4), x(4);
  pid_t child = -1;
  bool first = true;
  g_inside = [&] {
    if (!std::exchange(first, false)) return;
    child = fork();
    if (child == 0) alarm(60), work_inside();
  };
  const Status s = forked(out.view, x.view, 0);
  if (child == 0) {  // the child returned from the kernel
    YARD_IN_CHILD(s.ok());
    work(8);
    _exit(0);
  }
  ASSERT_TRUE(s.ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(Fork, InsideAVerifier) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t k = kernel_of("forked", "forks", 3, 900);
  k.verify = verify_inside, k.verify_reads = reads;
  g_inside = [] {};
  ASSERT_TRUE(add(k).ok());
  pid_t child = -1;
  bool first = true;
  g_inside = [&] {
    if (!std::exchange(first, false)) return;
    child = fork();
    if (child == 0) alarm(60);
  };
  Floats out(9), x(9);
  const Status s = forked(out.view, x.view, 0);
  if (child == 0) {
    YARD_IN_CHILD(s.ok() && t_ran == 3);
    work(8);
    _exit(0);
  }
  ASSERT_TRUE(s.ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The dry run of rules asks verifiers about known calls, and one of them forks. The change
// continues in the child, too.
TEST_F(Fork, InsideAVerifierThatAChangeCalls) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t k = kernel_of("forked", "forks", 3, 900);
  k.verify = verify_inside, k.verify_reads = reads;
  g_inside = [] {};
  ASSERT_TRUE(add(k).ok());
  Floats out(9), x(9);
  ASSERT_TRUE(forked(out.view, x.view, 0).ok());
  pid_t child = -1;
  bool first = true;
  g_inside = [&] {
    if (!std::exchange(first, false)) return;
    child = fork();
    if (child == 0) alarm(60);
  };
  Config config;
  config.kernel_denies = {{"of.nobody", false, {}}};
  const Status s = runtime_.rules().set(config);
  ASSERT_NE(child, -1);
  if (child == 0) {
    YARD_IN_CHILD(s.ok());
    YARD_IN_CHILD(runtime_.rules().config() == config && runtime_.rules().history().size() == 1);
    YARD_IN_CHILD(forked(out.view, x.view, 0).ok() && t_ran == 3);
    work(8);
    _exit(0);
  }
  ASSERT_TRUE(s.ok());
  EXPECT_TRUE(runtime_.rules().load("").ok());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- Under load ----

TEST_F(Fork, WhileOthersCallRegisterAndSelect) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t picky = kernel_of("forked", "picky", 4, 50);
  picky.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  picky.verify_reads = reads;
  ASSERT_TRUE(add(picky).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // hits
    Floats out(4), x(4);
    while (!stop) failures += !forked(out.view, x.view, 0).ok();
  });
  threads.emplace_back([&] {  // misses, evictions
    std::vector<float> memory(20000);
    for (int64_t n = 1; !stop; n = n % 9000 + 1) {
      const TensorView out(memory.data(), DType::f32, {n}),
          x(memory.data() + 10000, DType::f32, {n});
      failures += !forked(out, x, 0).ok();
    }
  });
  threads.emplace_back([&] {  // overlays
    Floats out(4), x(4);
    for (int i = 0; !stop; ++i) {
      Options o;
      o.deny = {"y" + std::to_string(i % 1000)};
      failures += !forked.with(o)(out.view, x.view, 0).ok();
    }
  });
  threads.emplace_back([&] {  // changes
    for (int i = 0; !stop; ++i) {
      Changes c;
      c.add_kernel(kernel_of("forked", "comes", 5, 1 + i % 40));
      failures += !runtime_.apply(std::move(c)).ok();
      Changes d;
      d.remove_kernel("forked", "comes");
      failures += !runtime_.apply(std::move(d)).ok();
      if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int i = 0; i < kForks && !HasFailure(); ++i) expect_child([&] { work(4 + i % 3); });
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace yard::testing
