// SPDX-License-Identifier: Apache-2.0
// Bound handles follow every change. Frozen handles follow none, and hold everything they need.
#include <gtest/gtest.h>
#include <yard/bound.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/call.h"
#include "dispatch/policy_changes.h"
#include "registry/testing.h"

namespace yard::dispatch {
namespace {

using registry::testing::add;
using registry::testing::backend_of;
using registry::testing::kernel_of;
using registry::testing::op_of;
using registry::testing::replace;

thread_local intptr_t t_ran = 0;
int32_t leave_trace(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_ran = reinterpret_cast<intptr_t>(call->self);
  return YARD_OK;
}

yard_kernel_t kernel(const char* id, intptr_t self, int32_t priority = 0) {
  yard_kernel_t d = kernel_of("op", id, "plain", YARD_KIND_DEFAULT, priority);
  d.run = leave_trace, d.self = reinterpret_cast<void*>(self);
  return d;
}

class Handles : public ::testing::Test {
 protected:
  Handles() : core_(nullptr, 64) {
    apply({add(backend_of("plain")), add(op_of(kSchema)), add(kernel("a", 1, 10))});
    site_ = core_.sites.attach("op", "wrn", &why_);
  }
  void apply(const std::vector<registry::Step>& steps) { core_.published.apply(steps).value(); }

  Result<std::shared_ptr<BoundState>> bind() { return make_bound(site_, args_); }
  // Returns the kernel that a bound call runs, or the negative code of its failure.
  intptr_t run(BoundState& bound) {
    t_ran = 0;
    const Status s = Status::adopt(call_bound(&bound, call_args_));
    return s.ok() ? t_ran : -static_cast<intptr_t>(s.code());
  }
  intptr_t run(const FrozenKernel& frozen) {
    t_ran = 0;
    const Status s = Status::adopt(call_frozen(frozen, call_args_, 3));
    return s.ok() ? t_ran : -static_cast<intptr_t>(s.code());
  }

  static constexpr const char* kSchema =
      "op(out!: T[n], x: T[n], by: int = 0) where out may_alias x";
  Core core_;
  Site* site_ = nullptr;
  Status why_;
  float memory_[2][64] = {};
  TensorView out_{memory_[0], DType::f32, {64}}, x_{memory_[1], DType::f32, {64}};
  yard_value_t args_[3] = {Value(out_).c(), Value(x_).c(), {}};
  yard_value_t call_args_[3] = {Value(out_).c(), Value(x_).c(), Value(5).c()};
};

TEST_F(Handles, BoundCallsRunWhatPlainCallsRun) {
  const auto bound = bind().value();
  EXPECT_EQ(run(*bound), 1);
  EXPECT_EQ(run(*bound), 1);
}

TEST_F(Handles, AreMadeWithoutScalarsThatMayNotBeZero) {
  apply({add(op_of("scaled(out!: T[n], x: T[n], by: int, eps: float) where by >= 1, eps > 0")),
         add(kernel_of("scaled", "a", "plain"))});
  Site* const site = core_.sites.attach("scaled", "wrnf", &why_);
  ASSERT_NE(site, nullptr) << why_.to_string();
  const yard_value_t args[4] = {Value(out_).c(), Value(x_).c(), {}, {}};
  const auto bound = make_bound(site, args);
  EXPECT_TRUE(bound.ok()) << bound.status().to_string();
  EXPECT_TRUE(make_frozen(site, args).ok());
}

TEST_F(Handles, BoundHandlesFollowTheRegistry) {
  const auto bound = bind().value();
  apply({add(kernel("b", 2, 20))});
  EXPECT_EQ(run(*bound), 2);
  apply({replace(kernel("b", 3, 20))});
  EXPECT_EQ(run(*bound), 3);
  apply({registry::RemoveKernel{"op", "b"}});
  EXPECT_EQ(run(*bound), 1);
  apply({registry::RemoveKernel{"op", "a"}});
  EXPECT_EQ(run(*bound), -static_cast<intptr_t>(Code::kNoKernel));
  apply({add(kernel("c", 4))});
  EXPECT_EQ(run(*bound), 4);
}

TEST_F(Handles, BoundHandlesNameTheirKernel) {
  const auto bound = bind().value();
  EXPECT_EQ(bound_kernel(bound.get()), "a");
  apply({add(kernel("b", 2, 20))});
  EXPECT_EQ(bound_kernel(bound.get()), "b");
  apply({registry::RemoveOp{"op"}});
  EXPECT_EQ(bound_kernel(bound.get()), "");
}

TEST_F(Handles, BoundHandlesFollowPolicy) {
  apply({add(kernel("b", 2, 20))});
  const auto bound = bind().value();
  EXPECT_EQ(run(*bound), 2);
  Policy p;
  p.deny_kernels = {"b"};
  ASSERT_TRUE(set_policy(core_, p).ok());
  EXPECT_EQ(run(*bound), 1);
  ASSERT_TRUE(set_policy(core_, {}).ok());
  EXPECT_EQ(run(*bound), 2);
}

TEST_F(Handles, BoundHandlesSurviveTheirOpsAbsence) {
  const auto bound = bind().value();
  apply({registry::RemoveOp{"op"}});
  EXPECT_EQ(run(*bound), -static_cast<intptr_t>(Code::kUnknownOp));
  apply({add(op_of(kSchema)), add(kernel("a", 7))});
  EXPECT_EQ(run(*bound), 7);
  // The handle's tensors do not fit another schema with an equal C++ signature.
  apply({registry::RemoveOp{"op"}, add(op_of("op(out!: bf16[n], x: bf16[n], by: int = 0)")),
         add(kernel("a", 8))});
  EXPECT_EQ(run(*bound), -static_cast<intptr_t>(Code::kInvalidArgument));
  // They do not fit a schema with another signature either.
  apply({registry::RemoveOp{"op"}, add(op_of("op(out!: T[n], x: T[n])")), add(kernel("a", 9))});
  EXPECT_EQ(run(*bound), -static_cast<intptr_t>(Code::kInvalidArgument));
}

TEST_F(Handles, ScalarsThatAreReadChooseAtEachCall) {
  yard_limit_t limit{YARD_LIMIT_MIN, 0, "by", 3, 0, 0};
  yard_kernel_t d = kernel("b", 2, 20);
  d.limits = &limit, d.limit_count = 1;
  apply({add(d)});
  const auto bound = bind().value();  // uses the default, 0
  call_args_[2] = Value(5).c();
  EXPECT_EQ(run(*bound), 2);
  call_args_[2] = Value(1).c();
  EXPECT_EQ(run(*bound), 1);
}

TEST_F(Handles, EvictionLeavesBoundPlansAlone) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t d = kernel("b", 2, 20);
  d.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  d.verify_reads = reads;
  apply({add(d)});
  const auto bound = bind().value();
  const uint64_t before = core_.planner.stats().selections;
  for (int64_t n = 1; n <= 1000; ++n) {
    std::vector<float> a(static_cast<size_t>(n)), b(static_cast<size_t>(n));
    const TensorView out(a.data(), DType::f32, {n}), x(b.data(), DType::f32, {n});
    const yard_value_t args[] = {Value(out).c(), Value(x).c(), Value(0).c()};
    ASSERT_EQ(call(site_, {args, 3}), nullptr);
  }
  EXPECT_LE(core_.planner.stats().plans, 64u);
  const uint64_t selected = core_.planner.stats().selections;
  EXPECT_GE(selected - before, 900u);
  EXPECT_EQ(run(*bound), 2);
  EXPECT_EQ(core_.planner.stats().selections, selected);
}

// Handles of ten thousand shapes are bound and dropped. Their plans must be dropped with them.
TEST_F(Handles, HandlesThatGoLeaveNothingBehind) {
  static const char* const reads[] = {"n", nullptr};
  yard_kernel_t d = kernel("b", 2, 20);
  d.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  d.verify_reads = reads;
  apply({add(d)});
  std::vector<float> memory(20000);
  size_t plans = 0, retired = 0;
  for (int64_t n = 1; n <= 10000; ++n) {
    const TensorView out(memory.data(), DType::f32, {n}), x(memory.data() + 10000, DType::f32, {n});
    args_[0] = Value(out).c(), args_[1] = Value(x).c();
    ASSERT_TRUE(bind().ok());
    plans = std::max(plans, core_.planner.stats().plans);
    retired = std::max(retired, core_.planner.stats().retired);
  }
  EXPECT_LE(plans, 1000u);
  EXPECT_LE(retired, 2000u);
}

// ---- Memos of a thread ----

// Runtimes, ops and entries look alike here, but each call must run its own kernel.
TEST_F(Handles, WhatAThreadRemembersIsOfOneOpOfOneRuntime) {
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Core>> cores;
    for (intptr_t c = 0; c < 4; ++c) {
      cores.push_back(std::make_unique<Core>(nullptr, 64));
      std::vector<registry::Step> steps = {add(backend_of("plain"))};
      for (intptr_t o = 0; o < 130; ++o) {
        const std::string name = "op" + std::to_string(o);
        steps.push_back(add(op_of((name + "(out!: T[n], x: T[n], by: int = 0)").c_str())));
        yard_kernel_t k = kernel("a", 1000 * (c + 1) + o);
        k.op = name.c_str();
        steps.push_back(add(k));
      }
      cores.back()->published.apply(steps).value();
    }
    for (int again = 0; again < 3; ++again)
      for (intptr_t o = 0; o < 130; ++o)
        for (intptr_t c = 0; c < 4; ++c) {
          Site* site =
              cores[static_cast<size_t>(c)]->sites.attach("op" + std::to_string(o), "wrn", &why_);
          for (int i = 0; i < 2; ++i) {
            ASSERT_EQ(call(site, {call_args_, 3}), nullptr);
            ASSERT_EQ(t_ran, 1000 * (c + 1) + o);
          }
        }
  }
}

// A handle that was bound while its op's version was suspended holds no version, so a later
// suspension does not affect it.
TEST_F(Handles, WhatIsBoundDuringASuspensionIsBoundAgain) {
  auto& open = const_cast<MemoVersion&>(core_.published.version(site_->index.load()));
  open.suspend();
  const auto bound = bind().value();
  const Route* const route = bound->route.load();
  EXPECT_FALSE(route->is_current());
  open.renew();
  EXPECT_FALSE(route->is_current());
  open.suspend();
  EXPECT_FALSE(route->is_current());
  EXPECT_EQ(run(*bound), 1);
  EXPECT_FALSE(bound->route.load()->is_current());
  open.renew();
  EXPECT_EQ(run(*bound), 1);
  EXPECT_TRUE(bound->route.load()->is_current());
}

TEST_F(Handles, BindingRefusesWhatACallWouldRefuse) {
  const TensorView longer(memory_[0], DType::f32, {32});
  args_[0] = Value(longer).c();
  EXPECT_EQ(bind().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_frozen(site_, args_).status().code(), Code::kInvalidArgument);
}

TEST_F(Handles, FreezingWithoutAKernelSaysWhyNot) {
  Policy p;
  p.deny_kernels = {"*"};
  ASSERT_TRUE(set_policy(core_, p).ok());
  const auto frozen = make_frozen(site_, args_);
  ASSERT_FALSE(frozen.ok());
  EXPECT_EQ(frozen.status().code(), Code::kNoKernel);
  EXPECT_NE(frozen.status().to_string().find("denied_kernel"), std::string::npos)
      << frozen.status().to_string();
}

TEST_F(Handles, FrozenHandlesKeepTheirKernel) {
  auto keep = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = keep;
  apply({replace(kernel("a", 5, 10), keep)});
  keep.reset();
  auto frozen = std::make_optional(make_frozen(site_, args_).value());
  const Ticket ticket = core_.published.apply({replace(kernel("a", 6, 10))}).value();
  EXPECT_EQ(run(*frozen), 5);
  EXPECT_FALSE(ticket.done());
  EXPECT_FALSE(watch.expired());
  frozen.reset();
  EXPECT_TRUE(ticket.done());
  EXPECT_TRUE(watch.expired());
}

// ---- Workspaces of calls inside calls ----

const FrozenKernel* g_inner = nullptr;
const yard_value_t* g_inner_args = nullptr;

int32_t fill_workspace(yard_call_t* call, const yard_value_t*, uint32_t) {
  std::memset(call->workspace, 0xee, call->workspace_size);
  return YARD_OK;
}
int32_t check_workspace(yard_call_t* call, const yard_value_t*, uint32_t) {
  auto* mine = static_cast<unsigned char*>(call->workspace);
  std::memset(mine, 0x11, call->workspace_size);
  if (Status s = Status::adopt(call_frozen(*g_inner, g_inner_args, 3)); !s) return YARD_FAULT;
  for (uint64_t i = 0; i < call->workspace_size; ++i)
    if (mine[i] != 0x11) return YARD_FAULT;
  return YARD_OK;
}

TEST_F(Handles, AFrozenCallInsideAKernelHasAWorkspaceOfItsOwn) {
  yard_kernel_t inner = kernel("a", 1, 10);
  inner.run = fill_workspace;
  inner.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return 1 << 20; };
  apply({replace(inner)});
  static const FrozenKernel frozen = make_frozen(site_, args_).value();
  yard_kernel_t outer = inner;
  outer.run = check_workspace;
  outer.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return 256; };
  apply({replace(outer)});
  g_inner = &frozen, g_inner_args = call_args_;
  for (int i = 0; i < 3; ++i) {
    const Status s = Status::adopt(call(site_, {call_args_, 3}));
    EXPECT_TRUE(s.ok()) << s.to_string();
  }
}

// ---- Sites ----

TEST_F(Handles, ASiteIsCheckedAgainstTheSchemaItStandsFor) {
  ASSERT_NE(site_, nullptr) << why_.to_string();
  EXPECT_EQ(core_.sites.attach("op", "wrf", &why_), nullptr);
  EXPECT_EQ(why_.code(), Code::kInvalidArgument);
  EXPECT_EQ(core_.sites.attach("op", "wr", &why_), nullptr);
  EXPECT_EQ(core_.sites.attach("op", "wrn", &why_), site_);
  EXPECT_EQ(core_.sites.attach("po", "wrn", &why_), nullptr);
  EXPECT_EQ(why_.code(), Code::kUnknownOp);
}

// A thread that has read the snapshot but not yet the entry must not use an index that is newer
// than both.
TEST_F(Handles, AnOpThatComesBackWithAnotherSchemaIsFoundWhileOthersCall) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i)
    callers.emplace_back([&] {
      while (!stop) Status::adopt(call(site_, {call_args_, 3})).ignore();
    });
  for (int i = 0; i < 300; ++i) {
    // Each new name of a dimension makes a new schema, and so a new index.
    const std::string dim = "m" + std::to_string(i);
    const std::string schema = "op(out!: T[" + dim + "], x: T[" + dim + "], by: int = 0)";
    apply({registry::RemoveOp{"op"}, add(op_of(schema.c_str())), add(kernel("a", 1))});
  }
  stop = true;
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(Status::adopt(call(site_, {call_args_, 3})).code(), Code::kOk);
}

}  // namespace
}  // namespace yard::dispatch
