// SPDX-License-Identifier: Apache-2.0
// Scopes belong to a thread, nest, follow the process in unset fields, and leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/policy.h>

#include <atomic>
#include <memory>
#include <thread>

#include "testing.h"

namespace yard::testing::scopes {
namespace {

using ::testing::HasSubstr;

constexpr Op<void(Out, In, int64_t)> copy{"copy"};

class Scopes : public ::testing::Test {
 protected:
  Scopes() {
    Changes c;
    c.add_backend(backend_of("acme", "acme")).add_backend(backend_of("zeta", "zeta"));
    yard_kernel_t kernels[] = {
        kernel_of("copy", "default.a", 1, 1), kernel_of("copy", "vendor.acme", 2, 5),
        kernel_of("copy", "vendor.zeta", 3, 3), kernel_of("copy", "reference.r", 4, 0)};
    kernels[1].kind = kernels[2].kind = YARD_KIND_VENDOR;
    kernels[1].backend = "acme", kernels[2].backend = "zeta";
    kernels[3].kind = YARD_KIND_REFERENCE;
    for (const yard_kernel_t& k : kernels) c.add_kernel(k);
    bare_.runtime.apply(std::move(c)).or_throw();
  }
  // Returns the kernel that a call runs here, or -1 for an error.
  intptr_t ran() { return ran(x_.view); }
  intptr_t ran(const TensorView& x) {
    t_ran = 0;
    const Status s = copy.on(bare_.runtime)(out_.view, x, 0);
    return s.ok() ? t_ran : -1;
  }

  Bare bare_;
  Floats out_{8}, x_{8};
};

TEST_F(Scopes, ApplyUntilTheEndOfTheBlock) {
  EXPECT_EQ(ran(), 2);
  for (int i = 0; i < 3; ++i) {
    {
      const ScopedPolicy in(Scope().prefer(Kind::kReference));
      EXPECT_EQ(ran(), 4);
      EXPECT_EQ(ran(), 4);
    }
    EXPECT_EQ(ran(), 2);
    {
      const ScopedPolicy in(Scope().deny_vendors({"acme"}));
      EXPECT_EQ(ran(), 3);
    }
    {
      const ScopedPolicy in(Scope().allow_vendors({"zeta"}));
      EXPECT_EQ(ran(), 3);
    }
    {
      const ScopedPolicy in(Scope().allow_kernels({"default.*"}));
      EXPECT_EQ(ran(), 1);
    }
    EXPECT_EQ(ran(), 2);
  }
}

TEST_F(Scopes, Nest) {
  static const Scope no_acme = Scope().deny_vendors({"acme"}),
                     by_default = Scope().prefer(Kind::kDefault);
  const ScopedPolicy outer(no_acme);
  EXPECT_EQ(ran(), 3);
  {
    const ScopedPolicy inner(by_default);
    EXPECT_EQ(ran(), 1);
    {
      // Deny lists add up. The inner preference overrides the outer one.
      const ScopedPolicy third(Scope().prefer(Kind::kVendor).deny_vendors({"zeta"}));
      EXPECT_EQ(ran(), 1);
      const ScopedPolicy same(no_acme);
      EXPECT_EQ(ran(), 1);
    }
    EXPECT_EQ(ran(), 1);
  }
  EXPECT_EQ(ran(), 3);
}

TEST_F(Scopes, UnsetFieldsFollowTheProcess) {
  const ScopedPolicy in(Scope().deny_vendors({"acme"}));
  EXPECT_EQ(ran(), 3);
  Policy p;
  p.prefer = Kind::kDefault;
  bare_.runtime.set_policy(p).or_throw();
  EXPECT_EQ(ran(), 1);
  p.prefer = Kind::kVendor;
  p.deny_vendors = {"zeta"};
  bare_.runtime.set_policy(p).or_throw();
  EXPECT_EQ(ran(), 1);  // both vendors are denied now
  bare_.remove("copy", "default.a").or_throw();
  EXPECT_EQ(ran(), 4);
  bare_.runtime.set_policy({}).or_throw();
  EXPECT_EQ(ran(), 3);
  bare_.add(kernel_of("copy", "default.late", 9, 90)).or_throw();
  EXPECT_EQ(ran(), 9);
}

TEST_F(Scopes, AreNotSeenByOtherThreads) {
  std::atomic<int> step{0};
  std::thread other([&] {
    Floats out(8), x(8);
    const auto ran_there = [&] {
      t_ran = 0;
      EXPECT_TRUE(copy.on(bare_.runtime)(out.view, x.view, 0).ok());
      return t_ran;
    };
    while (step != 1) std::this_thread::yield();
    EXPECT_EQ(ran_there(), 2);
    EXPECT_EQ(ran_there(), 2);
    const ScopedPolicy in(Scope().prefer(Kind::kDefault));
    EXPECT_EQ(ran_there(), 1);
    step = 2;
    while (step != 3) std::this_thread::yield();
  });
  {
    const ScopedPolicy in(Scope().prefer(Kind::kReference));
    EXPECT_EQ(ran(), 4);
    const uint64_t generation = bare_.runtime.stats(false).generation;
    step = 1;
    while (step != 2) std::this_thread::yield();
    EXPECT_EQ(ran(), 4);
    EXPECT_EQ(bare_.runtime.stats(false).generation, generation);  // nothing was published
  }
  step = 3;
  other.join();
  EXPECT_EQ(ran(), 2);
}

TEST_F(Scopes, HaveLowerPrecedenceThanACallsOptions) {
  const ScopedPolicy in(Scope().prefer(Kind::kReference));
  Options o;
  o.policy = Policy();
  o.policy->prefer = Kind::kDefault;
  EXPECT_TRUE(copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0).ok());
  EXPECT_EQ(t_ran, 1);
  o.policy.reset();
  o.force = "vendor.zeta";
  EXPECT_TRUE(copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0).ok());
  EXPECT_EQ(t_ran, 3);
  const ScopedPolicy deny(Scope().deny_kernels({"vendor.*"}));
  EXPECT_EQ(copy.on(bare_.runtime).with(o)(out_.view, x_.view, 0).code(), Code::kNoKernel);
}

TEST_F(Scopes, AreSeenByExplainAndResolve) {
  const ScopedPolicy in(Scope().prefer(Kind::kReference).label("tenant", "blue"));
  const Explanation e = bare_.runtime.explain("copy(f32[8])@cpu").value();
  EXPECT_EQ(e.selected, "reference.r");
  ASSERT_EQ(e.policy.size(), 1u);
  EXPECT_EQ(e.policy[0].source, "scope");
  EXPECT_THAT(e.call, HasSubstr("tenant"));
  EXPECT_EQ(bare_.runtime.resolve("copy", {out_.view, x_.view}).value().kernel, "reference.r");
}

TEST_F(Scopes, SetTheFlagsOfCalls) {
  yard_kernel_t k = kernel_of("copy", "default.infer", 7, 99);
  k.flags |= YARD_KERNEL_INFERENCE_ONLY;
  bare_.add(k).or_throw();
  EXPECT_EQ(ran(), 2);
  {
    const ScopedPolicy in(Scope().inference());
    EXPECT_EQ(ran(), 7);
    EXPECT_EQ(ran(), 7);
    const ScopedPolicy out(Scope().inference(false));
    EXPECT_EQ(ran(), 2);
  }
  EXPECT_EQ(ran(), 2);
}

TEST_F(Scopes, WithAnInvalidPolicyFailTheCallsInside) {
  {
    const ScopedPolicy in(Scope().order("copy", {"fastest"}));
    EXPECT_EQ(ran(), -1);
    const Status s = copy.on(bare_.runtime)(out_.view, x_.view, 0);
    EXPECT_EQ(s.code(), Code::kInvalidArgument);
    EXPECT_THAT(s.to_string(), HasSubstr("fastest"));
    EXPECT_THAT(s.to_string(), HasSubstr("scope"));
    EXPECT_FALSE(bare_.runtime.explain("copy(f32[8])@cpu").ok());
  }
  EXPECT_FALSE(Scope().order("copy", {"fastest"}).status().ok());
  EXPECT_EQ(ran(), 2);
}

TEST_F(Scopes, ApplyToBoundHandles) {
  const auto bound = bind(copy.on(bare_.runtime), out_.view, x_.view).value();
  const auto expect = [&](intptr_t kernel, const char* id) {
    for (int i = 0; i < 3; ++i) {
      t_ran = 0;
      ASSERT_TRUE(bound(out_.view, x_.view, 0).ok());
      EXPECT_EQ(t_ran, kernel);
      ASSERT_TRUE(bound(0).ok());
      EXPECT_EQ(t_ran, kernel);
      EXPECT_EQ(bound.kernel(), id);
    }
  };
  expect(2, "vendor.acme");
  {
    const ScopedPolicy in(Scope().prefer(Kind::kReference));
    expect(4, "reference.r");
    const ScopedPolicy inner(Scope().deny_kernels({"reference.*"}));
    expect(1, "default.a");
  }
  {
    const ScopedPolicy in(Scope().label("tenant", "blue"));  // does not affect the selection
    expect(2, "vendor.acme");
  }
  yard_kernel_t k = kernel_of("copy", "default.infer", 7, 99);
  k.flags |= YARD_KERNEL_INFERENCE_ONLY;
  bare_.add(k).or_throw();
  expect(2, "vendor.acme");
  {
    const ScopedPolicy in(Scope().inference());
    expect(7, "default.infer");
  }
  for (const Scope& bad : {Scope().order("copy", {"fastest"}), Scope().deny_kernels({"*"})}) {
    const ScopedPolicy in(bad);
    EXPECT_FALSE(bound(out_.view, x_.view, 0).ok());
    EXPECT_EQ(bound.kernel(), "");
  }
  expect(2, "vendor.acme");
}

TEST_F(Scopes, ApplyToHandlesThatAreFrozenInside) {
  yard_kernel_t k = kernel_of("copy", "default.infer", 7, 99);
  k.flags |= YARD_KERNEL_INFERENCE_ONLY;
  bare_.add(k).or_throw();
  const auto frozen = [&] {
    return freeze(copy.on(bare_.runtime), out_.view, x_.view).value().kernel();
  };
  EXPECT_EQ(frozen(), "vendor.acme");
  {
    const ScopedPolicy in(Scope().prefer(Kind::kReference));
    EXPECT_EQ(frozen(), "reference.r");
  }
  const ScopedPolicy in(Scope().inference());
  EXPECT_EQ(frozen(), "default.infer");
}

TEST_F(Scopes, OutliveSnapshotsAndRuntimes) {
  const Scope careful = Scope().prefer(Kind::kReference);
  const ScopedPolicy in(careful);
  for (int i = 0; i < 100; ++i) {
    Bare other;
    other.add(kernel_of("copy", "default.a", 10, 1)).or_throw();
    yard_kernel_t r = kernel_of("copy", "reference.r", 11, 1);
    r.kind = YARD_KIND_REFERENCE;
    other.add(r).or_throw();
    t_ran = 0;
    for (int k = 0; k < 3; ++k) {
      ASSERT_TRUE(copy.on(other.runtime)(out_.view, x_.view, 0).ok());
      ASSERT_EQ(t_ran, 11);
    }
    bare_.add(kernel_of("copy", "default.more", 20, i % 2)).or_throw();
    ASSERT_EQ(ran(), 4);
    bare_.remove("copy", "default.more").or_throw();
  }
}

TEST_F(Scopes, CanBePassedToAnotherThread) {
  const ScopedPolicy in(Scope().prefer(Kind::kReference).label("tenant", "blue"));
  const Scope here = current_scope();
  EXPECT_EQ(here.labels().at("tenant"), "blue");
  std::thread([&] {
    EXPECT_TRUE(current_scope().policy().empty());
    const ScopedPolicy there(here);
    Floats out(8), x(8);
    EXPECT_TRUE(copy.on(bare_.runtime)(out.view, x.view, 0).ok());
    EXPECT_EQ(t_ran, 4);
  }).join();
}

TEST_F(Scopes, DoNotLeak) {
  for (int i = 0; i < 10000; ++i) {
    const ScopedPolicy in(
        Scope().prefer(Kind::kReference).deny_kernels({"no." + std::to_string(i)}));
    ASSERT_EQ(ran(), 4);
    ASSERT_EQ(ran(), 4);
  }
  const RuntimeStats s = bare_.runtime.stats(false);
  EXPECT_LE(s.overlays, 256u);
  EXPECT_LE(s.retired, 2000u);
  EXPECT_EQ(ran(), 2);
}

// Dropped overlays are not used, even if memos of them exist.
TEST_F(Scopes, ForgottenOverlaysAreNotUsed) {
  std::vector<Scope> scopes;
  for (int i = 0; i < 600; ++i)
    scopes.push_back(
        Scope().prefer(i % 2 ? Kind::kReference : Kind::kDefault).label("n", std::to_string(i)));
  for (int round = 0; round < 5; ++round)
    for (size_t i = 0; i < scopes.size(); ++i) {
      const ScopedPolicy in(scopes[i]);
      for (int k = 0; k < 3; ++k) ASSERT_EQ(ran(), i % 2 ? 4 : 1);
    }
}

TEST_F(Scopes, UnderChangesFromOtherThreads) {
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    while (!stop) {
      bare_.add(kernel_of("copy", "default.more", 20, 1)).or_throw();
      bare_.remove("copy", "default.more").or_throw();
      Policy p;
      p.deny_vendors = {"zeta"};
      bare_.runtime.set_policy(p).or_throw();
      bare_.runtime.set_policy({}).or_throw();
    }
  });
  std::vector<std::thread> callers;
  for (int t = 0; t < 2; ++t)
    callers.emplace_back([&, t] {
      Floats out(8), x(8);
      const Scope mine =
          Scope().prefer(t ? Kind::kReference : Kind::kVendor).allow_vendors({"acme"});
      for (int i = 0; i < 3000; ++i) {
        const ScopedPolicy in(mine);
        t_ran = 0;
        ASSERT_TRUE(copy.on(bare_.runtime)(out.view, x.view, 0).ok());
        ASSERT_EQ(t_ran, t ? 4 : 2);
        const ScopedPolicy inner(Scope().deny_kernels({"x" + std::to_string(i % 300)}));
        ASSERT_TRUE(copy.on(bare_.runtime)(out.view, x.view, 0).ok());
        ASSERT_EQ(t_ran, t ? 4 : 2);
      }
    });
  for (std::thread& t : callers) t.join();
  stop = true;
  changer.join();
}

}  // namespace
}  // namespace yard::testing::scopes
