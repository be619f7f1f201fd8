// SPDX-License-Identifier: Apache-2.0
// Each known defect of dispatchers with similar policies has a test. Failure tracking and fork have
// separate tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/policy.h>

#include <thread>

#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr Op<void(Out, In, int64_t)> copy{"copy"};
constexpr Op<void(InOut, int64_t)> bump{"bump"};

class KnownDefects : public ::testing::Test {
 protected:
  intptr_t ran(int64_t n, DType d = DType::f32) {
    const TensorView out(out_, d, {n}), x(x_, d, {n});
    t_ran = 0;
    const Status s = copy.on(bare_.runtime)(out, x, 0);
    return s.ok() ? t_ran : -1;
  }
  Status add(const char* id, intptr_t self, int priority, std::vector<yard_limit_t> limits = {}) {
    yard_kernel_t k = kernel_of("copy", id, self, priority);
    k.limits = limits.data(), k.limit_count = static_cast<uint32_t>(limits.size());
    return bare_.add(k);
  }

  Bare bare_;
  alignas(64) float out_[64] = {}, x_[64] = {};
};

TEST_F(KnownDefects, TheCacheKeyHasNoShapeDtypeOrDevice) {
  add("any", 1, 1).or_throw();
  add("big", 2, 6, {plugin::at_least("n", 16)}).or_throw();
  add("half", 3, 10, {plugin::dtypes({YARD_F16})}).or_throw();
  yard_backend_t cuda = backend_of("cuda");
  cuda.device_type = 2;
  yard_kernel_t gpu = kernel_of("copy", "gpu", 4, 99);
  gpu.backend = "cuda";
  Changes c;
  c.add_backend(cuda).add_kernel(gpu);
  bare_.runtime.apply(std::move(c)).or_throw();
  const Device there{2, 0};
  const TensorView out(out_, DType::f32, {8}, {}, there), x(x_, DType::f32, {8}, {}, there);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ran(8), 1);
    EXPECT_EQ(ran(32), 2);
    EXPECT_EQ(ran(8, DType::f16), 3);
    ASSERT_TRUE(copy.on(bare_.runtime)(out, x, 0).ok());
    EXPECT_EQ(t_ran, 4);
    EXPECT_EQ(ran(8), 1);
  }
}

TEST_F(KnownDefects, CachesGrowWithoutBound) {
  add("any", 1, 1).or_throw();
  Bare few(kCopy, 16);
  for (int64_t n = 1; n <= 60; ++n) {
    const std::string id = "k" + std::to_string(n);
    yard_kernel_t k = kernel_of("copy", id.c_str(), n, static_cast<int>(n));
    const yard_limit_t limit = plugin::at_least("n", n);
    k.limits = &limit, k.limit_count = 1;
    few.add(k).or_throw();
  }
  for (int64_t n = 1; n <= 60; ++n) {
    const TensorView out(out_, DType::f32, {n}), x(x_, DType::f32, {n});
    ASSERT_TRUE(copy.on(few.runtime)(out, x, 0).ok());
    EXPECT_EQ(t_ran, n);
  }
  EXPECT_LE(few.runtime.stats(false).plans, 16u);
  for (int i = 0; i < 1000; ++i) {
    const ScopedPolicy in(Scope().deny_vendors({"v" + std::to_string(i)}));
    EXPECT_EQ(ran(8), 1);
  }
  EXPECT_LE(bare_.runtime.stats(false).overlays, 256u);
}

TEST_F(KnownDefects, OneCallWithWrongArgumentsDisablesEveryKernel) {
  add("good", 1, 6).or_throw();
  add("other", 2, 1).or_throw();
  const TensorView out(out_, DType::f32, {8}), x(x_, DType::f32, {9});
  for (int i = 0; i < 20; ++i) {
    const Status s = copy.on(bare_.runtime)(out, x, 0);
    EXPECT_EQ(s.error_class(), ErrorClass::kCaller);
    EXPECT_EQ(ran(8), 1);
  }
}

TEST_F(KnownDefects, AScopedPolicyLeaksIntoOtherThreads) {
  add("default.a", 1, 6).or_throw();
  add("default.b", 2, 1).or_throw();
  const ScopedPolicy in(Scope().deny_kernels({"default.a"}));
  EXPECT_EQ(ran(8), 2);
  std::thread([&] { EXPECT_EQ(ran(8), 1); }).join();
  EXPECT_EQ(ran(8), 2);
}

TEST_F(KnownDefects, EnteringAScopeInvalidatesEveryonesFastPath) {
  add("default.a", 1, 6).or_throw();
  EXPECT_EQ(ran(8), 1);
  EXPECT_EQ(ran(8), 1);
  const RuntimeStats before = bare_.runtime.stats(false);
  for (int i = 0; i < 50; ++i) {
    const ScopedPolicy in(Scope().strict());
    std::thread([&] { EXPECT_EQ(ran(8), 1); }).join();
  }
  EXPECT_EQ(ran(8), 1);
  const RuntimeStats after = bare_.runtime.stats(false);
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.selections, before.selections);
}

TEST_F(KnownDefects, AKernelRegisteredAfterFirstUseIsInvisible) {
  add("early", 1, 1).or_throw();
  EXPECT_EQ(ran(8), 1);
  EXPECT_EQ(ran(8), 1);
  add("late", 2, 2).or_throw();
  EXPECT_EQ(ran(8), 2);
}

int32_t half_done(yard_call_t* call, const yard_value_t* a, uint32_t) {
  static_cast<float*>(a[0].u.tensor->data)[0] += 1;
  return plugin::Call(call).fail(YARD_TRANSIENT, "half done");
}
int32_t done(yard_call_t*, const yard_value_t* a, uint32_t) {
  static_cast<float*>(a[0].u.tensor->data)[0] += 1;
  return YARD_OK;
}

TEST_F(KnownDefects, FallbackRerunsInPlaceOpsOnChangedInputs) {
  Bare other("bump(x~: T[n], by: int = 1)");
  yard_kernel_t bad = kernel_of("bump", "bad", 1, 9), good = kernel_of("bump", "good", 2, 1);
  bad.run = half_done, good.run = done;
  other.add(bad).or_throw();
  other.add(good).or_throw();
  const TensorView x(x_, DType::f32, {8});
  x_[0] = 0;
  const Status s = bump.on(other.runtime)(x, 1);
  EXPECT_FALSE(s.ok());
  EXPECT_THAT(s.to_string(), HasSubstr("half done"));
  EXPECT_EQ(x_[0], 1);  // changed once, not twice
}

TEST_F(KnownDefects, AnUnknownTokenMatchesNothingUntilTheCallFails) {
  add("default.a", 1, 1).or_throw();
  Policy p;
  p.per_op["copy"] = {"defualt"};
  const Status s = bare_.runtime.set_policy(p);
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("default"));
  EXPECT_EQ(ran(8), 1);
}

}  // namespace
}  // namespace yard::testing
