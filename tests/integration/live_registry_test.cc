// SPDX-License-Identifier: Apache-2.0
// The registry from outside: the next call uses what is registered, and no call uses what is
// removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>

#include <atomic>
#include <thread>

#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr Op<void(Out, In, int)> copy{"copy"};

// Returns the kernel that a call runs, or the negative code of its failure.
intptr_t ran(Runtime& runtime, std::string_view op = "copy") {
  Floats out(4), x(4);
  t_ran = 0;
  const Status s = runtime.call(op, {out.view, x.view});
  return s.ok() ? t_ran : -static_cast<intptr_t>(s.code());
}

TEST(Registry, AddedKernelsAreUsedAndRemovedOnesAreNot) {
  Bare bare;
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1, 100)).ok());
  EXPECT_EQ(ran(bare.runtime), 1);
  ASSERT_TRUE(bare.add(kernel_of("copy", "b", 2, 200)).ok());
  EXPECT_EQ(ran(bare.runtime), 2);
  ASSERT_TRUE(bare.add(kernel_of("copy", "c", 3, 50)).ok());
  EXPECT_EQ(ran(bare.runtime), 2);
  ASSERT_TRUE(bare.remove("copy", "b").ok());
  EXPECT_EQ(ran(bare.runtime), 1);
  ASSERT_TRUE(bare.remove("copy", "a").ok());
  ASSERT_TRUE(bare.remove("copy", "c").ok());
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
}

TEST(Registry, ReplacingAKernelRunsTheNewOne) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  Changes c;
  c.replace_kernel(kernel_of("copy", "a", 2));
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  EXPECT_EQ(ran(bare.runtime), 2);
  Changes none;
  none.replace_kernel(kernel_of("copy", "b", 2));
  EXPECT_EQ(bare.runtime.apply(std::move(none)).status().code(), Code::kNotFound);
}

TEST(Registry, RegisteringTheSameTwiceIsAcceptedAndAnotherIsAConflict) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  const uint64_t before = bare.runtime.stats(false).generation;
  EXPECT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  const Status s = bare.add(kernel_of("copy", "a", 2, 777));
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_THAT(s.to_string(), HasSubstr("777"));
  EXPECT_EQ(ran(bare.runtime), 1);
  EXPECT_LE(bare.runtime.stats(false).generation, before + 1);
}

TEST(Registry, ABatchIsAppliedCompletelyOrNotAtAll) {
  Bare bare;
  Changes c;
  c.add_op(op_of("second(out!: T[n], x: T[n])"))
      .add_kernel(kernel_of("second", "a", 1))
      .add_kernel(kernel_of("copy", "a", 2))
      .remove_kernel("copy", "nobody");
  const Status s = bare.runtime.apply(std::move(c)).status();
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_EQ(bare.runtime.list().find_op("second"), nullptr);
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
}

// Changes replace kernels of both ops together. No thread sees the new kernel of one op and then
// the old kernel of the other.
TEST(Registry, ABatchIsSeenCompletely) {
  Bare bare("first(out!: T[n], x: T[n])");
  Changes c;
  c.add_op(op_of("second(out!: T[n], x: T[n])"))
      .add_kernel(kernel_of("first", "a", 1))
      .add_kernel(kernel_of("second", "a", 1));
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  constexpr Op<void(Out, In)> first{"first"}, second{"second"};
  const auto on_first = first.on(bare.runtime), on_second = second.on(bare.runtime);
  std::atomic<bool> stop{false};
  std::atomic<int> backwards{0}, failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      Floats out(4), x(4);
      while (!stop) {
        const auto& a = i % 2 == 0 ? on_first : on_second;
        const auto& b = i % 2 == 0 ? on_second : on_first;
        failures += !a(out.view, x.view).ok();
        const intptr_t before = t_ran;
        failures += !b(out.view, x.view).ok();
        backwards += t_ran < before;
      }
    });
  for (intptr_t v = 2; v < 1500; ++v) {
    Changes both;
    both.replace_kernel(kernel_of("first", "a", v)).replace_kernel(kernel_of("second", "a", v));
    ASSERT_TRUE(bare.runtime.apply(std::move(both)).ok());
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(backwards, 0);
  EXPECT_EQ(failures, 0);
}

TEST(Registry, LooksUpByIdAndLists) {
  Bare bare;
  yard_backend_t acme = backend_of("acme", "acme");
  yard_kernel_t k = kernel_of("second", "shared", 2);
  k.backend = "acme", k.kind = YARD_KIND_VENDOR, k.summary = "fast";
  Changes c;
  c.add_backend(acme)
      .add_op(op_of("second(out!: T[n], x: T[n])"))
      .add_kernel(kernel_of("copy", "shared", 1))
      .add_kernel(kernel_of("copy", "other", 1))
      .add_kernel(k);
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  const auto found = bare.runtime.list().find_kernels("shared");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].op, "copy");
  EXPECT_EQ(found[1].op, "second");
  EXPECT_EQ(found[1].vendor, "acme");
  EXPECT_EQ(found[1].priority, 100);
  EXPECT_TRUE(bare.runtime.list().find_kernels("nobody").empty());

  const Listing listing = bare.runtime.list();
  ASSERT_EQ(listing.ops.size(), 2u);
  EXPECT_EQ(listing.ops[0].name, "copy");
  ASSERT_EQ(listing.ops[0].kernels.size(), 2u);
  EXPECT_EQ(listing.ops[0].kernels[0].id, "other");
  ASSERT_EQ(listing.backends.size(), 2u);
  EXPECT_EQ(listing.backends[0].name, "acme");
  EXPECT_EQ(listing.backends[0].kernels, 1u);
  EXPECT_EQ(listing.generation, bare.runtime.stats(false).generation);
}

TEST(Registry, ListsWhatCannotBeUsedAndWhy) {
  Bare bare;
  yard_backend_t off = backend_of("off");
  off.enable = YARD_ENABLE_OFF;
  yard_backend_t away = backend_of("away");
  away.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
    why->reason = YARD_REASON_UNAVAILABLE;
    return YARD_OK;
  };
  yard_kernel_t a = kernel_of("copy", "a", 1), b = kernel_of("copy", "b", 2),
                d = kernel_of("copy", "d", 3);
  a.backend = "off", b.backend = "away", d.features = "sse2 neon";
  Changes c;
  c.add_backend(off).add_backend(away).add_kernel(a).add_kernel(b).add_kernel(d);
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  const Listing listing = bare.runtime.list();
  const auto& kernels = listing.find_op("copy")->kernels;
  EXPECT_EQ(kernels[0].reason, "disabled");
  EXPECT_EQ(kernels[1].reason, "unavailable");
  EXPECT_EQ(kernels[2].reason, "cpu_feature");
  for (const KernelInfo& k : kernels) EXPECT_FALSE(k.available);
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
}

TEST(Registry, ProbesAreCalledLazilyOnceAndAgainOnRequest) {
  static std::atomic<int> asked;
  static std::atomic<bool> there;
  asked = 0, there = false;
  Bare bare;
  yard_backend_t b = backend_of("lazy");
  b.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) -> int32_t {
    ++asked;
    if (!there) why->reason = YARD_REASON_UNAVAILABLE;
    return YARD_OK;
  };
  yard_kernel_t k = kernel_of("copy", "a", 1);
  k.backend = "lazy";
  Changes c;
  c.add_backend(b).add_kernel(k);
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  EXPECT_EQ(asked, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
  EXPECT_EQ(asked, 1);
  there = true;
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kNoKernel));
  Changes again;
  again.reprobe("lazy");
  ASSERT_TRUE(bare.runtime.apply(std::move(again)).ok());
  EXPECT_EQ(ran(bare.runtime), 1);
  EXPECT_EQ(asked, 2);
}

TEST(Registry, CountsCallsAndFailures) {
  Bare bare;
  yard_kernel_t bad = kernel_of("copy", "bad", 1, 500);
  bad.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_FAULT; };
  ASSERT_TRUE(bare.add(bad).ok());
  ASSERT_TRUE(bare.add(kernel_of("copy", "good", 2)).ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ran(bare.runtime), 2);
  // The other kernels keep their counts.
  ASSERT_TRUE(bare.add(kernel_of("copy", "later", 3, 1)).ok());
  const auto kernels = bare.runtime.list().find_op("copy")->kernels;
  EXPECT_EQ(kernels[0].failures, 5u);
  EXPECT_EQ(kernels[0].calls, 0u);
  EXPECT_EQ(kernels[1].calls, 5u);
}

TEST(Registry, ResetRestoresTheInitialState) {
  Runtime runtime;
  const size_t ops = runtime.list().ops.size();
  ASSERT_GT(ops, 0u);
  Changes c;
  c.add_backend(backend_of("test")).add_op(op_of(kCopy)).add_kernel(kernel_of("copy", "a", 1));
  ASSERT_TRUE(runtime.apply(std::move(c)).ok());
  Policy p;
  p.strict = true;
  ASSERT_TRUE(runtime.set_policy(p).ok());
  EXPECT_EQ(ran(runtime), 1);
  ASSERT_TRUE(runtime.reset().ok());
  EXPECT_EQ(runtime.list().ops.size(), ops);
  EXPECT_TRUE(runtime.policy().empty());
  EXPECT_EQ(ran(runtime), -static_cast<intptr_t>(Code::kUnknownOp));
  EXPECT_TRUE(runtime.resolve("rms_norm(f32[2,4], f32[4])").ok());
}

TEST(Registry, RuntimesAreIndependent) {
  Bare one;
  ASSERT_TRUE(one.add(kernel_of("copy", "a", 1)).ok());
  const auto on_one = copy.on(one.runtime);
  Floats out(4), x(4);
  {
    Bare two;
    ASSERT_TRUE(two.add(kernel_of("copy", "a", 2)).ok());
    const auto on_two = copy.on(two.runtime);
    ASSERT_TRUE(on_two(out.view, x.view, 0).ok());
    EXPECT_EQ(t_ran, 2);
    ASSERT_TRUE(on_one(out.view, x.view, 0).ok());
    EXPECT_EQ(t_ran, 1);
    EXPECT_EQ(two.runtime.list().find_op("copy")->kernels[0].calls, 1u);
  }
  ASSERT_TRUE(on_one(out.view, x.view, 0).ok());
  EXPECT_EQ(t_ran, 1);
}

TEST(Registry, ADestroyedRuntimeReleasesEverything) {
  auto keep = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = keep;
  Bare other;  // a second runtime that outlives the first
  ASSERT_TRUE(other.add(kernel_of("copy", "a", 1)).ok());
  {
    Bare bare;
    ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1), std::move(keep)).ok());
    EXPECT_EQ(ran(bare.runtime), 1);
    EXPECT_EQ(ran(other.runtime), 1);
  }
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(ran(other.runtime), 1);
}

// ---- What a change costs ----

int32_t accept(const yard_query_t*, yard_verdict_t*) { return YARD_OK; }

// A kernel that reads n, so that every size has its own class.
yard_kernel_t by_size(const char* id) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t k = kernel_of("copy", id, 1);
  k.verify = accept, k.verify_reads = reads;
  return k;
}

void call_size(Runtime& runtime, int64_t n) {
  Floats out(n), x(n);
  runtime.call("copy", {out.view, x.view}).or_throw();
}

TEST(Changes, SelectNoPlanAndTheNextCallDoes) {
  Bare bare;
  bare.add(by_size("a")).or_throw();
  const auto selections = [&] { return bare.runtime.stats(false).selections; };
  constexpr Op<void(Out, In, int)> typed{"copy"};
  const auto on = typed.on(bare.runtime);
  Floats out(7), x(7);
  const auto bound = bind(on, out.view, x.view).value();
  const auto call = [&] {
    for (int64_t n = 1; n <= 3; ++n)
      for (int i = 0; i < 5; ++i) call_size(bare.runtime, n);
    for (int i = 0; i < 10; ++i) on(out.view, x.view, 0).or_throw();
    bound(out.view, x.view, 0).or_throw();
  };
  call();
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = selections();
    bare.runtime.set_policy({}).or_throw();
    EXPECT_EQ(selections(), before);
    EXPECT_EQ(bare.runtime.stats(false).plans, 0u);
    call();
    EXPECT_EQ(selections(), before + 4) << "one for each size";
  }
}

TEST(Changes, ADryRunCoversClassesThatWereNotCalledLately) {
  Bare bare;
  bare.add(by_size("a")).or_throw();
  call_size(bare.runtime, 5);
  for (int i = 0; i < 3; ++i) bare.runtime.set_policy({}).or_throw();
  Config config;
  config.kernel_denies.push_back({"a", false, {}});
  const Status s = bare.runtime.rules().set(config);
  EXPECT_THAT(s.to_string(), HasSubstr("f32[5]"));
}

TEST(Changes, EvictionKeepsThePlanOfAClassThatIsCalledAgainAndAgain) {
  constexpr int kPlans = 32;
  Bare bare(kCopy, kPlans);
  bare.add(by_size("a")).or_throw();
  const uint64_t before = bare.runtime.stats(false).selections;
  constexpr int64_t kOnce = 20 * kPlans;
  for (int64_t n = 2; n < 2 + kOnce; ++n) {
    call_size(bare.runtime, 1);
    call_size(bare.runtime, n);
  }
  EXPECT_EQ(bare.runtime.stats(false).selections - before, static_cast<uint64_t>(kOnce + 1))
      << "size 1 was selected once";
}

TEST(Registry, OpsComeAndGo) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  const auto on = copy.on(bare.runtime);
  Floats out(4), x(4);
  ASSERT_TRUE(on(out.view, x.view, 0).ok());
  Changes gone;
  gone.remove_op("copy");
  ASSERT_TRUE(bare.runtime.apply(std::move(gone)).ok());
  EXPECT_EQ(on(out.view, x.view, 0).code(), Code::kUnknownOp);
  EXPECT_EQ(ran(bare.runtime), -static_cast<intptr_t>(Code::kUnknownOp));
  Changes back;
  back.add_op(op_of(kCopy)).add_kernel(kernel_of("copy", "a", 2));
  ASSERT_TRUE(bare.runtime.apply(std::move(back)).ok());
  ASSERT_TRUE(on(out.view, x.view, 0).ok());
  EXPECT_EQ(t_ran, 2);
}

TEST(Registry, RemovingABackendRemovesItsKernels) {
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "b", 2, 900);
  k.backend = "extra";
  Changes c;
  c.add_backend(backend_of("extra")).add_kernel(k).add_kernel(kernel_of("copy", "a", 1));
  ASSERT_TRUE(bare.runtime.apply(std::move(c)).ok());
  EXPECT_EQ(ran(bare.runtime), 2);
  Changes gone;
  gone.remove_backend("extra");
  ASSERT_TRUE(bare.runtime.apply(std::move(gone)).ok());
  EXPECT_EQ(ran(bare.runtime), 1);
}

}  // namespace
}  // namespace yard::testing
