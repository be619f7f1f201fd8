// SPDX-License-Identifier: Apache-2.0
// A hit allocates nothing, takes no lock, makes no system call, and reads no clock and no
// environment. Timed hits read the processor's counter, which these tests do not see.
#include <gtest/gtest.h>
#include <yard/c.h>
#include <yard/yard.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/testing_files.h"
#include "interpose.h"
#include "testing.h"

namespace yard::testing {
namespace {

constexpr int kCalls = 1000;
// Enough to include the thread's first timed call, which seeds its random numbers.
constexpr int kWarm = 200;

int32_t nothing(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }
int32_t typed_nothing(yard_call_t*, const yard_tensor_t*, const yard_tensor_t*,
                      const yard_tensor_t*, double) {
  return YARD_OK;
}

constexpr Op<void(Out, In, In, float)> counted{"counted"};

class Hits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact(),
                                          plugin::multiple_of("n", 8), plugin::aligned(16, "x")};
    yard_op_t op = op_of("counted(out!: T[m, n], x: T[m, n], w: T[n], eps: float = 1e-6)");
    yard_kernel_t k = kernel_of("counted", "default.nothing", 0);
    k.limits = limits, k.limit_count = 4, k.run = nothing;
    k.typed = reinterpret_cast<void (*)()>(typed_nothing), k.typed_signature = "tttf";
    yard_kernel_t second = kernel_of("counted", "reference.nothing", 1);
    second.kind = YARD_KIND_REFERENCE, second.run = nothing;
    Changes c;
    c.add_backend(backend_of("test")).add_op(op).add_kernel(k).add_kernel(second);
    Runtime::shared().apply(std::move(c)).or_throw();
  }

  alignas(64) float memory_[3][64] = {};
  TensorView out_{memory_[0], DType::f32, {8, 8}}, x_{memory_[1], DType::f32, {8, 8}};
  TensorView w_{memory_[2], DType::f32, {8}};
};

// About one call in 128 is timed and reads the clock twice. Other calls read no clock. Calls may be
// nested.
Counts without_samples(Counts c, uint64_t calls) {
  EXPECT_LE(c.clocks, calls / 10);
  c.clocks = 0;
  return c;
}

// Runs `call` until caches are warm, and then counts.
template <class F>
Counts counts_of(const F& call) {
  bool ok = true;
  for (int i = 0; i < kWarm; ++i) ok &= call();
  const Counts c = count([&] {
    for (int i = 0; i < kCalls; ++i) ok &= call();
  });
  EXPECT_TRUE(ok);
  return without_samples(c, kCalls);
}

TEST_F(Hits, TheCounterCounts) {
  const Counts c = count([] {
    int* volatile one = new int;  // volatile, or the compiler removes the allocation
    delete one;
    void* volatile ten = std::malloc(10);
    std::free(ten);
    std::mutex m;
    const std::lock_guard lock(m);
    const char* volatile home = std::getenv("HOME");
    (void)home;
    (void)std::chrono::steady_clock::now();
  });
  EXPECT_GE(c.allocations, 2u);
  EXPECT_GE(c.frees, 2u);
  EXPECT_GE(c.locks, 1u);
  EXPECT_EQ(c.environment, 1u);
  EXPECT_GE(c.clocks, 1u);
}

// Arguments are copied into memory that the thread reuses.
TEST_F(Hits, OfAKernelWithTransforms) {
  using plugin::Param;
  static const plugin::Params params = {Param("out").layout("row-major"),
                                        Param("x").layout("row-major"), Param("by")};
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "a", 1);
  k.params = params.list(), k.param_count = params.count();
  ASSERT_TRUE(bare.add(k).ok());
  const TensorView out(memory_[0], DType::f32, {8}, {2}), x(memory_[1], DType::f32, {8}, {2});
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  const Counts c = counts_of([&] { return on(out, x, 0).ok(); });
  EXPECT_EQ(c.allocations, 0u);
  EXPECT_EQ(c.frees, 0u);
  EXPECT_EQ(c.locks, 0u);
  EXPECT_EQ(c.clocks, 0u);
}

TEST_F(Hits, AMissAllocatesAndLocks) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  Floats out(4), x(4);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  const Counts c = count([&] { on(out.view, x.view, 0).ignore(); });
  EXPECT_GE(c.allocations, 1u);
  EXPECT_GE(c.locks, 1u);
}

TEST_F(Hits, Typed) {
  EXPECT_EQ(counts_of([&] { return counted(out_, x_, w_, 1e-6f).ok(); }), Counts());
}

TEST_F(Hits, TypedOnARuntimeOfItsOwn) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  Floats out(4), x(4);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  EXPECT_EQ(counts_of([&] { return on(out.view, x.view, 0).ok(); }), Counts());
}

TEST_F(Hits, InPlace) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  Floats x(4);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  EXPECT_EQ(counts_of([&] { return on(x.view, x.view, 0).ok(); }), Counts());
}

TEST_F(Hits, Packed) {
  yard_op_ref_t* op = yard_find_op("counted", nullptr, 0);
  ASSERT_NE(op, nullptr);
  yard_value_t args[] = {value_of(out_), value_of(x_), value_of(w_), Value(1e-6).c()};
  char error[64];
  EXPECT_EQ(counts_of([&] { return yard_call(op, args, 4, error, sizeof error) == YARD_OK; }),
            Counts());
}

// These options affect the selection. Their cache entry is found by comparing options.
TEST_F(Hits, WithOptions) {
  Options deny, policy, labels, flags;
  deny.deny = {"default.unknown", "a name that is too long for a short string"};
  policy.policy.emplace().deny_kernels = {"another name that is too long for a short string"};
  labels.labels["a label with a long name that no rule reads"] = "a value with as many letters";
  flags.inference = true;
  for (const Options* o : {&deny, &policy, &labels, &flags}) {
    const auto with = counted.with(*o);
    EXPECT_EQ(counts_of([&] { return with(out_, x_, w_, 1e-6f).ok(); }), Counts());
    const Options equal = *o;  // equal options share the entry of the first
    const auto with_equal = counted.with(equal);
    const size_t overlays = Runtime::shared().stats(false).overlays;
    const Counts c = count([&] {
      for (int i = 0; i < kCalls; ++i) with_equal(out_, x_, w_, 1e-6f).ignore();
    });
    EXPECT_EQ(without_samples(c, kCalls), Counts());
    EXPECT_EQ(Runtime::shared().stats(false).overlays, overlays);
  }
}

TEST_F(Hits, InAScope) {
  const Scope outer = Scope().deny_kernels({"a name that is too long for a short string"});
  const Scope inner =
      Scope().inference().label("tenant", "a value that is too long for a short string");
  const auto nested = [&] {
    const ScopedPolicy one(outer);
    bool ok = counted(out_, x_, w_, 1e-6f).ok();
    const ScopedPolicy two(inner);
    ok &= counted(out_, x_, w_, 1e-6f).ok();
    return ok && counted(x_, out_, w_, 1e-6f).ok();
  };
  EXPECT_EQ(counts_of(nested), Counts());
}

TEST_F(Hits, ByName) {
  EXPECT_EQ(counts_of([&] {
              return Runtime::shared().call("counted", {out_, x_, w_, {"eps", 1e-5}}).ok() &&
                     Runtime::shared().call("counted", {x_, out_, {"w", w_}}).ok();
            }),
            Counts());
}

TEST_F(Hits, Bound) {
  const auto bound = bind(counted, out_, x_, w_).value();
  EXPECT_EQ(counts_of([&] { return bound(1e-6f).ok(); }), Counts());
  EXPECT_EQ(counts_of([&] { return bound(out_, x_, w_, 1e-6f).ok(); }), Counts());
}

TEST_F(Hits, Frozen) {
  const auto frozen = freeze(counted, out_, x_, w_).value();
  EXPECT_EQ(counts_of([&] { return frozen(1e-6f).ok(); }), Counts());
  EXPECT_EQ(counts_of([&] { return frozen(out_, x_, w_, 1e-6f).ok(); }), Counts());
}

TEST_F(Hits, Functions) {
  static const Function<int(int)> f{"tests", "counted"};
  static const Function<int(int)> chosen{
      "tests", "chosen", [](int x) { return x; }, {.selection = Selection::kActive}};
  Functions functions = Runtime::shared().functions();
  const auto use = [&] {
    for (int i = 0; i < kCalls; ++i) f.call_or([] { return 1; }, i), chosen(i);
  };
  use();
  EXPECT_EQ(count(use), Counts()) << "no backend";
  Changes c;
  const auto more = [](Next<int(int)> next, int x) { return next(x) + 1; };
  implement(c, f, "counted", more);
  implement(c, chosen, "counted", more);
  Runtime::shared().apply(std::move(c)).or_throw();
  functions.activate("counted").or_throw();
  use();
  EXPECT_EQ(count(use), Counts()) << "active, with a chain";
  const Scope scope = Scope().backend("counted").device({2, 0});
  const ScopedPolicy in(scope);
  use();
  EXPECT_EQ(count(use), Counts()) << "in a scope";
  EXPECT_EQ(f.call_or([] { return 1; }, 0), 2);
  Runtime::shared().apply(std::move(Changes().remove_backend("counted"))).or_throw();
}

TEST_F(Hits, OnEveryThread) {
  Counts c{1, 1, 1, 1, 1, 1};
  std::thread([&] { c = counts_of([&] { return counted(out_, x_, w_, 1e-6f).ok(); }); }).join();
  EXPECT_EQ(c, Counts());
}

// A verifier that does not declare what it reads makes long keys, which live on the stack.
TEST_F(Hits, WithALongKey) {
  Bare bare("op(out!: T[*rows, d], x: T[*rows, d], xs: T[d][], name: string = \"s\")");
  yard_kernel_t k = kernel_of("op", "a", 1);
  k.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  ASSERT_TRUE(bare.add(k).ok());
  constexpr Op<void(Out, In, InList, std::string_view)> op{"op"};
  const auto on = op.on(bare.runtime);
  const TensorView row(memory_[2], DType::f32, {8});
  const TensorList list{row, row};
  EXPECT_EQ(counts_of([&] { return on(out_, x_, list, "a name").ok(); }), Counts());
}

int32_t calls_counted(yard_call_t* call, const yard_value_t* args, uint32_t) {
  const yard_value_t inner[] = {args[0], args[1], args[2], Value(1e-6).c()};
  return call->host->call_op(call->host->self, call, "counted", inner, 4);
}

TEST_F(Hits, FromInsideAKernel) {
  Changes c;
  yard_kernel_t k = kernel_of("outer", "a", 1);
  k.run = calls_counted;
  c.add_op(op_of("outer(out!: T[m, n], x: T[m, n], w: T[n])")).add_kernel(k);
  ASSERT_TRUE(Runtime::shared().apply(std::move(c)).ok());
  constexpr Op<void(Out, In, In)> outer{"outer"};
  EXPECT_EQ(counts_of([&] { return outer(out_, x_, w_).ok(); }), Counts());
}

TEST_F(Hits, WithWorkspace) {
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "a", 1);
  k.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return 5000; };
  ASSERT_TRUE(bare.add(k).ok());
  Floats out(4), x(4);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  EXPECT_EQ(counts_of([&] { return on(out.view, x.view, 0).ok(); }), Counts());
}

// A past fault leaves no cost behind once the calls after it have been counted for the share of
// failures.
TEST_F(Hits, AfterAFaultThatIsOver) {
  static std::atomic<bool> fails{false};
  for (const bool workspace : {false, true}) {
    Bare bare;
    yard_kernel_t k = kernel_of("copy", "a", 1, 200);
    if (workspace)
      k.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return 5000; };
    k.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
      return fails ? YARD_FAULT : YARD_OK;
    };
    ASSERT_TRUE(bare.add(k).ok());
    ASSERT_TRUE(bare.add(kernel_of("copy", "b", 2, 100)).ok());
    Floats out(4), x(4);
    constexpr Op<void(Out, In, int)> copy{"copy"};
    const auto on = copy.on(bare.runtime);
    fails = true, t_ran = 0;
    EXPECT_TRUE(on(out.view, x.view, 0).ok());
    EXPECT_EQ(t_ran, 2);
    fails = false;
    const uint32_t window = bare.runtime.health().settings().failure_min_calls;
    for (uint32_t i = 1; i < window; ++i) ASSERT_TRUE(on(out.view, x.view, 0).ok());
    EXPECT_EQ(counts_of([&] { return on(out.view, x.view, 0).ok(); }), Counts()) << workspace;
  }
}

// Another thread reloads rules. Only calls that select again take a lock or make a system call.
TEST_F(Hits, WhileRulesAreReloaded) {
  Bare bare("step(out!: T[batch, n], x: T[batch, n])");
  for (const yard_kernel_t& k :
       {kernel_of("step", "default.a", 1, 30), kernel_of("step", "default.b", 2, 20),
        kernel_of("step", "default.c", 3, 10)})
    bare.add(k).or_throw();
  const auto version = [](int i) {
    std::string text = "version: '1.0'\ndispatch_rules:\n";
    for (int r = 0; r < 100; ++r)
      text += "  - {operation: step, priority: " + std::to_string(r) +
              ", conditions: {batch_gte: " + std::to_string(r % 8) +
              ", dtype: f32}, kernel: " + (i % 2 ? "default.b" : "default.c") + "}\n";
    return text + "# " + std::to_string(i) + "\n";
  };
  const base::TempFolder folder;
  base::replace(folder / "rules.yaml", version(0));
  using std::chrono::milliseconds;
  bare.runtime.rules()
      .watch(folder / "rules.yaml", {milliseconds(20), milliseconds(10)})
      .or_throw();
  constexpr Op<void(Out, In)> step{"step"};
  const auto on = step.on(bare.runtime);
  const auto reloads = [&] { return bare.runtime.rules().history().back().number; };
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 1; !stop; ++i) {
      base::replace(folder / "rules.yaml", version(i));
      std::this_thread::sleep_for(milliseconds(30));
    }
  });
  // The first calls of a thread allocate memory that it reuses.
  for (int i = 0; i < 20 * kCalls; ++i) on(out_, x_).or_throw();
  const uint64_t first = reloads(), before = bare.runtime.stats(false).selections;
  uint64_t busy = 0;
  uint64_t by[4] = {};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (int round = 0; std::chrono::steady_clock::now() < end; ++round) {
    bool ok = true;
    for (int i = 0; i < 20 * kCalls; ++i) {
      const Counts c = count([&] { ok &= on(out_, x_).ok(); });
      busy += c.locks + c.syscalls > 0;
      ++by[t_ran];
    }
    EXPECT_TRUE(ok);
    if (reloads() >= first + 10 && by[2] > 0 && by[3] > 0) break;
  }
  stop = true;
  writer.join();
  bare.runtime.rules().unwatch();
  EXPECT_GE(reloads(), first + 10);
  EXPECT_EQ(by[0] + by[1], 0u) << "calls that no version of the rules sends there";
  EXPECT_GT(by[2], 0u);
  EXPECT_GT(by[3], 0u);
  EXPECT_LE(busy, bare.runtime.stats(false).selections - before);
}

// A canary only counts a call that it does not check.
TEST_F(Hits, UnderACanaryForOtherCalls) {
  Bare bare;
  yard_kernel_t right = kernel_of("copy", "right", 1);
  right.kind = YARD_KIND_REFERENCE;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1, 100)).ok());
  ASSERT_TRUE(bare.add(right).ok());
  Config c;
  c.canary.push_back({.op = "copy", .one_in = 1'000'000'000});
  ASSERT_TRUE(bare.runtime.rules().set(c).ok());
  Floats out(4), x(4);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  EXPECT_EQ(counts_of([&] { return on(out.view, x.view, 0).ok(); }), Counts());
  EXPECT_GT(bare.runtime.health().canaries().kernels.at(0).calls, 0u);
}

}  // namespace
}  // namespace yard::testing
