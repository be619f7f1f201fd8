// SPDX-License-Identifier: Apache-2.0
// Tests that memos do not change behaviour. A form that a thread remembers is called without check
// or key, but another form is checked and selected, a change of kernels or policy reaches the next
// call, and objects that a memo points to may have been freed. Calls are typed here, because part
// of the path is inline in the header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/testing_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMul = "mul(out!: T[*rows, d], x: T[*rows, d], w: T[d], by: float = 1.0)";
constexpr Op<void(Out, In, In, double)> mul{"mul"};

// Records what a kernel with a typed entry received.
struct Seen {
  intptr_t kernel = 0;
  double by = 0;
  const yard_tensor_t *out = nullptr, *x = nullptr, *w = nullptr;
};
thread_local Seen t_seen;
int32_t typed(yard_call_t* call, const yard_tensor_t* out, const yard_tensor_t* x,
              const yard_tensor_t* w, double by) {
  t_seen = {reinterpret_cast<intptr_t>(call->self), by, out, x, w};
  return YARD_OK;
}
int32_t packed(yard_call_t* call, const yard_value_t* a, uint32_t) {
  return typed(call, a[0].u.tensor, a[1].u.tensor, a[2].u.tensor, a[3].u.f);
}

yard_kernel_t typed_kernel(const char* id, intptr_t self, int32_t priority,
                           const std::vector<yard_limit_t>* limits = nullptr) {
  yard_kernel_t k = kernel_of("mul", id, self, priority);
  k.run = packed, k.typed = reinterpret_cast<void (*)()>(typed), k.typed_signature = "tttf";
  if (limits != nullptr) {
    k.limits = limits->data();
    k.limit_count = static_cast<uint32_t>(limits->size());
  }
  return k;
}

class CallMemoTest : public ::testing::Test {
 protected:
  explicit CallMemoTest(size_t plans = 4096) : bare_(kMul, plans) {
    bare_.add(typed_kernel("any", 1, 1)).or_throw();
    bare_.add(typed_kernel("wide", 2, 2, &wide_)).or_throw();
  }
  TensorView view(int buffer, std::vector<int64_t> shape, DType d = DType::f32, size_t skip = 0) {
    return TensorView(memory_[buffer] + skip, d, shape);
  }
  Status call(const TensorView& out, const TensorView& x, const TensorView& w, double by = 1) {
    t_seen = {};
    return mul.on(bare_.runtime)(out, x, w, by);
  }
  intptr_t ran(int64_t rows, int64_t d) {
    const TensorView out = view(0, {rows, d}), x = view(1, {rows, d}), w = view(2, {d});
    const Status s = call(out, x, w);
    return s.ok() ? t_seen.kernel : -1;
  }

  std::vector<yard_limit_t> wide_{plugin::multiple_of("d", 8), plugin::dtypes({YARD_F32})};
  Bare bare_;
  alignas(64) float memory_[4][1024] = {};
};

TEST_F(CallMemoTest, GiveTheKernelWhatTheCallerGave) {
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(call(out, x, w, i).ok());
    EXPECT_EQ(t_seen.kernel, 2);
    EXPECT_EQ(t_seen.by, i);
    EXPECT_EQ(t_seen.out, &out.c());
    EXPECT_EQ(t_seen.x, &x.c());
    EXPECT_EQ(t_seen.w, &w.c());
  }
  EXPECT_EQ(bare_.runtime.stats(false).plans, 1u);
}

TEST_F(CallMemoTest, AnotherFormIsSelectedAgain) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ran(4, 8), 2);
    EXPECT_EQ(ran(4, 7), 1);
    EXPECT_EQ(ran(4, 8), 2);
    EXPECT_EQ(ran(5, 8), 2);
  }
  const TensorView out = view(0, {4, 8}, DType::f16), x = view(1, {4, 8}, DType::f16);
  ASSERT_TRUE(call(out, x, view(2, {8}, DType::f16)).ok());
  EXPECT_EQ(t_seen.kernel, 1);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{8}, {2, 2, 8}, {2, 1, 2, 8}}) {
    const TensorView o = view(0, shape), i = view(1, shape);
    for (int k = 0; k < 3; ++k) {
      ASSERT_TRUE(call(o, i, view(2, {8})).ok());
      EXPECT_EQ(t_seen.kernel, 2);
    }
  }
}

TEST_F(CallMemoTest, InvalidCallsAreRefusedEveryTime) {
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  const auto refused = [&](const TensorView& o, const TensorView& i, const TensorView& v,
                           const char* part) {
    ASSERT_TRUE(call(out, x, w).ok());
    for (int k = 0; k < 2; ++k) {
      const Status s = call(o, i, v);
      EXPECT_EQ(s.code(), Code::kInvalidArgument);
      EXPECT_THAT(s.to_string(), HasSubstr(part));
      EXPECT_EQ(t_seen.kernel, 0);
    }
  };
  refused(out, view(1, {5, 8}), w, "'x'");
  refused(out, view(1, {4, 9}), w, "'x'");
  refused(out, x, view(2, {7}), "'w'");
  refused(out, x, view(2, {8}, DType::f16), "'w'");
  refused(out, view(1, {4, 8}, DType::bf16), w, "'x'");
  refused(out, view(1, {32}), w, "'x'");
  refused(out, view(0, {4, 8}, DType::f32, 4), w, "apart");
  refused(out, x, view(0, {8}, DType::f32, 31), "apart");
  refused(out, TensorView(nullptr, DType::f32, {4, 8}), w, "'x'");
  refused(TensorView(nullptr, DType::f32, {4, 8}), x, w, "'out'");
}

TEST_F(CallMemoTest, NeighboursInMemoryAreApart) {
  // `x` begins right behind `out`, one cache line later, or far away. They never overlap.
  for (size_t at : {size_t{32}, size_t{64}, size_t{512}}) {
    const TensorView out = view(0, {4, 8}), x = view(0, {4, 8}, DType::f32, at), w = view(2, {8});
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(call(out, x, w).ok());
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(call(x, out, w).ok());
  }
}

TEST_F(CallMemoTest, StridesAreCompared) {
  ASSERT_EQ(ran(4, 8), 2);
  const TensorView out = view(0, {4, 8}), w = view(2, {8});
  const TensorView padded(memory_[1], DType::f32, {4, 8}, {16, 1});
  yard_limit_t compact = plugin::compact();
  std::vector<yard_limit_t> limits{compact};
  bare_.add(typed_kernel("compact", 3, 3, &limits)).or_throw();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ran(4, 8), 3);
    ASSERT_TRUE(call(out, padded, w).ok());
    EXPECT_EQ(t_seen.kernel, 2);
  }
}

TEST_F(CallMemoTest, ChangesReachTheNextCall) {
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(ran(4, 8), 2);
    ASSERT_EQ(ran(4, 8), 2);
    bare_.add(typed_kernel("late", 9, 9)).or_throw();
    ASSERT_EQ(ran(4, 8), 9);
    ASSERT_EQ(ran(4, 8), 9);
    bare_.remove("mul", "late").or_throw();
    ASSERT_EQ(ran(4, 8), 2);
    Policy p;
    p.deny_kernels = {"wide"};
    bare_.runtime.set_policy(p).or_throw();
    ASSERT_EQ(ran(4, 8), 1);
    bare_.runtime.set_policy({}).or_throw();
  }
}

TEST_F(CallMemoTest, ARemovedOpIsUnknownUntilItIsAddedAgain) {
  ASSERT_EQ(ran(4, 8), 2);
  Changes gone;
  gone.remove_op("mul");
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  const auto handle = mul.on(bare_.runtime);
  ASSERT_TRUE(handle(out, x, w, 1).ok());
  bare_.runtime.apply(std::move(gone)).or_throw();
  EXPECT_EQ(handle(out, x, w, 1).code(), Code::kUnknownOp);
  Changes back;
  back.add_op(op_of(kMul)).add_kernel(typed_kernel("again", 5, 5));
  bare_.runtime.apply(std::move(back)).or_throw();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(handle(out, x, w, 1).ok());
    EXPECT_EQ(t_seen.kernel, 5);
  }
}

// Memos outlive their runtime, and a new runtime may have the address of an old one.
TEST_F(CallMemoTest, RuntimesComeAndGo) {
  for (intptr_t i = 1; i <= 200; ++i) {
    Bare other(kMul);
    other.add(typed_kernel("mine", 100 + i, 1)).or_throw();
    const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
    for (int k = 0; k < 2; ++k) {
      ASSERT_TRUE(mul.on(other.runtime)(out, x, w, 1).ok());
      ASSERT_EQ(t_seen.kernel, 100 + i);
    }
    ASSERT_EQ(ran(4, 8), 2);
  }
}

struct FewPlans : CallMemoTest {
  FewPlans() : CallMemoTest(4) {}
};

TEST_F(FewPlans, PlansThatAreEvictedAreNotUsed) {
  // Each of these kernels makes its own class.
  std::vector<std::vector<yard_limit_t>> limits;
  std::vector<std::string> ids;
  for (int64_t n = 1; n <= 12; ++n) limits.push_back({plugin::at_least("rows", n)});
  for (size_t i = 0; i < limits.size(); ++i) ids.push_back("rows_" + std::to_string(i + 1));
  for (size_t i = 0; i < limits.size(); ++i)
    bare_
        .add(typed_kernel(ids[i].c_str(), static_cast<intptr_t>(100 + i + 1),
                          static_cast<int32_t>(10 + i), &limits[i]))
        .or_throw();
  for (int round = 0; round < 20; ++round)
    for (int64_t rows = 1; rows <= 12; ++rows) {
      ASSERT_EQ(ran(rows, 8), 100 + rows);
      ASSERT_EQ(ran(rows, 8), 100 + rows);
    }
  EXPECT_LE(bare_.runtime.stats(false).plans, 4u);
}

// ---- Kernels that call ops ----

Runtime* g_runtime = nullptr;
alignas(64) float g_scratch[3][64];
int g_depth = 0;

// Calls its own op on another form, which takes over the memo, and then fails.
int32_t nests(yard_call_t* call, const yard_tensor_t* out, const yard_tensor_t*,
              const yard_tensor_t*, double) {
  if (g_depth++ == 0) {
    const TensorView o(g_scratch[0], DType::f32, {2, 3}), x(g_scratch[1], DType::f32, {2, 3});
    const TensorView w(g_scratch[2], DType::f32, {3});
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(mul.on(*g_runtime)(o, x, w, 1).ok());
  }
  --g_depth;
  (void)out;
  return plugin::Call(call).fail(YARD_DECLINED, "not today");
}

TEST_F(CallMemoTest, AKernelMayCallItsOwnOpAndThenFail) {
  yard_kernel_t k = typed_kernel("nests", 7, 7, &wide_);
  k.typed = reinterpret_cast<void (*)()>(nests);
  k.run = [](yard_call_t* call, const yard_value_t* a, uint32_t) {
    return nests(call, a[0].u.tensor, a[1].u.tensor, a[2].u.tensor, a[3].u.f);
  };
  k.flags |= YARD_KERNEL_FAILS_BEFORE_WRITING;
  bare_.add(k).or_throw();
  g_runtime = &bare_.runtime;
  for (int i = 0; i < 20; ++i) {
    const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
    const Status s = call(out, x, w, 3);
    ASSERT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(t_seen.kernel, 2);  // the next kernel in the order
    EXPECT_EQ(t_seen.out, &out.c());
    EXPECT_EQ(t_seen.by, 3);
  }
}

// Calls that nest deeper than a thread has inline slots use no memos, and do not slow down other
// calls.
TEST_F(CallMemoTest, DeepCallsStoreNothing) {
  yard_kernel_t k = typed_kernel("recurses", 7, 7);
  k.typed = reinterpret_cast<void (*)()>(+[](yard_call_t*, const yard_tensor_t* out,
                                             const yard_tensor_t* x, const yard_tensor_t* w,
                                             double left) -> int32_t {
    t_seen.kernel = 7;
    const TensorView o(*out), i(*x), v(*w);
    return left > 0 && !mul.on(*g_runtime)(o, i, v, left - 1).ok() ? YARD_FATAL : YARD_OK;
  });
  bare_.add(k).or_throw();
  g_runtime = &bare_.runtime;
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(call(out, x, w, 20).ok());
    ASSERT_EQ(t_seen.kernel, 7);
  }
  const uint64_t id = mul.on(bare_.runtime).site()->id;
  for (const detail::CallMemo& m : detail::t_thread->memos->of)
    EXPECT_TRUE(m.site != id || m.hash != 0);
}

int32_t throws(double by) {
  if (by > 2) throw std::runtime_error("too much");
  return YARD_OK;
}

TEST_F(CallMemoTest, AFailureIsReportedWithItsText) {
  yard_kernel_t k = typed_kernel("throws", 7, 7);
  k.typed =
      reinterpret_cast<void (*)()>(+[](yard_call_t*, const yard_tensor_t*, const yard_tensor_t*,
                                       const yard_tensor_t*, double by) { return throws(by); });
  k.run = [](yard_call_t*, const yard_value_t* a, uint32_t) { return throws(a[3].u.f); };
  bare_.add(k).or_throw();
  Policy strict;
  strict.strict = true;
  bare_.runtime.set_policy(strict).or_throw();
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(call(out, x, w, 1).ok());
    const Status s = call(out, x, w, 3);
    EXPECT_EQ(s.error_class(), ErrorClass::kFault);
    EXPECT_THAT(s.to_string(), HasSubstr("too much"));
  }
}

// A breaker counts consecutive failures, so it must hear of the successes between them. `ran` makes
// a call and returns the kernel that ran.
class CallMemoFlaky : public CallMemoTest {
 protected:
  template <class F>
  void opens_after_three_in_a_row(const F& ran) {
    static bool fails = false;
    fails = false;
    yard_kernel_t k = typed_kernel("flaky", 7, 7);
    k.flags |= YARD_KERNEL_FAILS_BEFORE_WRITING;
    k.typed =
        reinterpret_cast<void (*)()>(+[](yard_call_t*, const yard_tensor_t*, const yard_tensor_t*,
                                         const yard_tensor_t*, double) -> int32_t {
          t_seen.kernel = 7;
          return fails ? YARD_FAULT : YARD_OK;
        });
    k.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
      t_seen.kernel = 7;
      return fails ? YARD_FAULT : YARD_OK;
    };
    bare_.add(k).or_throw();
    BreakerSettings settings;
    settings.failure_threshold = 3;
    bare_.runtime.health().set_settings(settings).or_throw();
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 5; ++i) ASSERT_EQ(ran(), 7) << "round " << round;
      fails = true;
      ASSERT_EQ(ran(), 2);
      fails = false;
    }
    const auto is_open = [&] { return ran() == 2; };
    EXPECT_FALSE(base::eventually(is_open, std::chrono::milliseconds(100)));
    fails = true;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(ran(), 2);
    fails = false;
    EXPECT_TRUE(base::eventually(is_open, std::chrono::milliseconds(20000))) << "three in a row";
  }
};

TEST_F(CallMemoFlaky, SuccessesThatWentByAMemoAreReported) {
  opens_after_three_in_a_row([this] { return ran(4, 8); });
}

TEST_F(CallMemoFlaky, SuccessesOfCallsThatAreSelectedAgainAreReported) {
  Options o;
  o.cache = false;
  const TensorView out = view(0, {4, 8}), x = view(1, {4, 8}), w = view(2, {8});
  opens_after_three_in_a_row([&] {
    EXPECT_TRUE(mul.on(bare_.runtime).with(o)(out, x, w, 1).ok());
    return t_seen.kernel;
  });
}

// ---- The rule, at random ----

TEST_F(CallMemoTest, AgreeWithAFreshSelection) {
  std::vector<std::vector<yard_limit_t>> limits = {
      {plugin::at_least("rows", 3)},
      {plugin::multiple_of("d", 3), plugin::aligned(64, "x")},
      {plugin::rank_between("x", 3, 4)},
      {plugin::dtypes({YARD_F16, YARD_BF16})},
      {plugin::compact("x"), plugin::at_most("d", 4)},
  };
  const char* ids[] = {"l0", "l1", "l2", "l3", "l4"};
  for (int i = 0; i < 5; ++i)
    bare_.add(typed_kernel(ids[i], 10 + i, 10 + i, &limits[static_cast<size_t>(i)])).or_throw();
  std::mt19937 random(7);
  const auto pick = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  const DType dtypes[] = {DType::f32, DType::f16, DType::bf16};
  Options fresh;
  fresh.cache = false;
  std::vector<int64_t> shape{2, 3};
  DType dtype = DType::f32;
  for (int i = 0; i < 30000; ++i) {
    if (pick(3) == 0) {  // else keep the form of the previous call
      shape.assign(static_cast<size_t>(1 + pick(4)), 1);
      for (int64_t& n : shape) n = 1 + pick(5);
      dtype = dtypes[pick(3)];
    }
    const size_t skip = static_cast<size_t>(pick(2));
    const TensorView out = view(0, shape, dtype), x = view(1, shape, dtype, skip);
    const TensorView w = view(2, {shape.back() + (pick(20) == 0)}, dtype);
    const Status quick = call(out, x, w);
    const intptr_t by_memo = t_seen.kernel;
    t_seen = {};
    const Status again = mul.on(bare_.runtime).with(fresh)(out, x, w, 1);
    ASSERT_EQ(quick.code(), again.code());
    ASSERT_EQ(by_memo, t_seen.kernel) << "call " << i;
  }
}

TEST_F(CallMemoTest, EachThreadHasItsOwn) {
  ASSERT_EQ(ran(4, 8), 2);
  std::thread([&] {
    alignas(64) float m[3][64] = {};
    const TensorView out(m[0], DType::f32, {4, 7}), x(m[1], DType::f32, {4, 7});
    const TensorView w(m[2], DType::f32, {7});
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(mul.on(bare_.runtime)(out, x, w, 1).ok());
      EXPECT_EQ(t_seen.kernel, 1);
    }
  }).join();
  EXPECT_EQ(ran(4, 8), 2);
}

}  // namespace
}  // namespace yard::testing
