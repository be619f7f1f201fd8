// SPDX-License-Identifier: Apache-2.0
// Verifies the kernels of a whole runtime: which kernels are verified, that policy and caches are
// ignored, and that verification stops on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/verify.h>
#include <yard/plugin.hpp>

#include <cmath>
#include <memory>

namespace yard {
namespace {

using ::testing::HasSubstr;

VerifyOptions quick() {
  VerifyOptions o;
  o.backend = "reference", o.cases = 10, o.max_elements = 1000;
  return o;
}

TEST(Verify, EveryBuiltInReferenceKernel) {
  const Runtime runtime;
  const VerifyReport report = verify(runtime, quick()).value();
  EXPECT_TRUE(report.ok());
  EXPECT_FALSE(report.cancelled);
  EXPECT_GE(report.kernels.size(), 23u);
  for (const KernelReport& k : report.kernels) EXPECT_EQ(k.passed, 10u) << k.op;
}

TEST(Verify, IgnoresPolicyAndCaches) {
  Runtime runtime;
  Policy policy;
  policy.deny_kernels = {"*"};
  runtime.set_policy(policy).or_throw();
  const RuntimeStats before = runtime.stats(false);
  const VerifyReport report = verify(runtime, quick()).value();
  for (const KernelReport& k : report.kernels) EXPECT_EQ(k.passed, 10u) << k.op;
  const RuntimeStats after = runtime.stats(false);
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.overlays, before.overlays);
  EXPECT_EQ(after.selections, before.selections);
  for (const KernelInfo& k : runtime.list().find_kernels("reference.cpp")) EXPECT_EQ(k.calls, 0u);
}

TEST(Verify, ReportsProgressAndCanBeEnded) {
  const Runtime runtime;
  VerifyOptions o = quick();
  size_t calls = 0;
  o.progress = [&](const VerifyOptions::Progress& p) {
    EXPECT_LT(p.done, p.cases);
    EXPECT_LT(p.op_index, p.op_count);
    EXPECT_EQ(p.failed, 0u);
    return ++calls < 25;
  };
  const VerifyReport report = verify(runtime, o).value();
  EXPECT_TRUE(report.cancelled);
  EXPECT_EQ(calls, 25u);
  EXPECT_EQ(report.kernels.size(), 3u);
}

// Right except for one hidden size.
template <int64_t kWrong>
void narrow_norm(plugin::Call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor weight,
                 double eps) {
  const int64_t hidden = weight.size(0);
  for (int64_t row = 0; hidden > 0 && row < x.numel() / hidden; ++row) {
    const float* const from = x.data<float>() + row * hidden;
    double sum = 0;
    for (int64_t i = 0; i < hidden; ++i) sum += double{from[i]} * double{from[i]};
    const double scale =
        hidden == kWrong ? std::nan("") : 1 / std::sqrt(sum / static_cast<double>(hidden) + eps);
    for (int64_t i = 0; i < hidden; ++i)
      out.data<float>()[row * hidden + i] =
          static_cast<float>(double{from[i]} * scale * double{weight.data<float>()[i]});
  }
}

template <int64_t kWrong>
std::unique_ptr<Runtime> with_narrow_kernel() {
  static const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact(),
                                        plugin::multiple_of("hidden", 128)};
  auto runtime = std::make_unique<Runtime>();
  Changes c;
  c.add_backend(plugin::Backend("acme"));
  c.add_kernel(plugin::Kernel::of<narrow_norm<kWrong>>("rms_norm", "default.narrow")
                   .backend("acme")
                   .limits(limits));
  runtime->apply(std::move(c)).or_throw();
  return runtime;
}

TEST(Verify, AFaultAtTheHiddenSizeOfAModelIsFound) {
  VerifyOptions o;
  o.kernel = "default.narrow", o.cases = 100, o.max_elements = 1 << 13;
  const KernelReport good = verify(*with_narrow_kernel<-1>(), o).value().kernels.at(0);
  EXPECT_EQ(good.failed, 0u);
  EXPECT_GE(good.ran(), 100u);
  EXPECT_TRUE(good.verified());
  const KernelReport bad = verify(*with_narrow_kernel<5120>(), o).value().kernels.at(0);
  EXPECT_GT(bad.failed, 0u);
  EXPECT_THAT(bad.failures.at(0).call, HasSubstr("5120"));
  EXPECT_FALSE(bad.verified());
}

TEST(Verify, GivenCallsAreMadeAndNoOthers) {
  const auto runtime = with_narrow_kernel<5120>();
  VerifyOptions o;
  o.kernel = "default.narrow";
  o.calls = {"rms_norm(f32[2,4096], f32[4096])", "rms_norm(f32[2,5120], f32[5120])",
             "rms_norm(f32[2,100], f32[100])"};
  const VerifyReport report = verify(*runtime, o).value();
  ASSERT_EQ(report.kernels.size(), 1u);
  const KernelReport& k = report.kernels[0];
  const size_t each = all_contents().size();
  EXPECT_EQ(k.passed, each);
  EXPECT_EQ(k.failed, each);
  EXPECT_EQ(k.skipped, each);
  EXPECT_EQ(k.reasons.at(0).reason, "dim_not_multiple");
  o.calls = {"rms_nrom(f32[2,4096], f32[4096])"};
  EXPECT_THAT(std::string(verify(*runtime, o).status().message()),
              HasSubstr("did you mean 'rms_norm'?"));
}

TEST(Verify, UnknownNamesAreErrors) {
  const Runtime runtime;
  const auto message = [&](VerifyOptions o) {
    const auto r = verify(runtime, o);
    EXPECT_FALSE(r.ok());
    return r.ok() ? std::string() : std::string(r.status().message());
  };
  VerifyOptions o;
  o.op = "softmx";
  EXPECT_THAT(message(o), HasSubstr("did you mean 'softmax'?"));
  o = {}, o.kernel = "reference.cp";
  EXPECT_THAT(message(o), HasSubstr("no kernel 'reference.cp'; did you mean 'reference.cpp'?"));
  o = {}, o.backend = "refrence";
  EXPECT_THAT(message(o), HasSubstr("no backend 'refrence'"));
}

TEST(Verify, ExpectationsThatMatchNothingAreListed) {
  const Runtime runtime;
  VerifyOptions o = quick();
  o.op = "softmax";
  o.expectations = parse_expectations("vendor.none * * : fails : gone\n", "list").value();
  const VerifyReport report = verify(runtime, o).value();
  EXPECT_TRUE(report.ok());
  ASSERT_EQ(report.unused.size(), 1u);
  EXPECT_EQ(report.unused[0].line, 1);
}

}  // namespace
}  // namespace yard
