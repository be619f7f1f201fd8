// SPDX-License-Identifier: Apache-2.0
// Verifying kernels of a whole runtime: which are verified, that policy and caches are ignored, and that it ends
// on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/verify.h>

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
  EXPECT_GE(report.kernels.size(), 7u);
  for (const KernelReport& k : report.kernels) EXPECT_EQ(k.passed, 10u) << k.op;
}

TEST(Verify, IgnoresPolicyAndCaches) {
  Runtime runtime;
  Policy policy;
  policy.deny_kernels = {"*"};
  runtime.set_policy(policy).or_throw();
  const RuntimeStats before = runtime.stats();
  const VerifyReport report = verify(runtime, quick()).value();
  for (const KernelReport& k : report.kernels) EXPECT_EQ(k.passed, 10u) << k.op;
  const RuntimeStats after = runtime.stats();
  EXPECT_EQ(after.plans, before.plans);
  EXPECT_EQ(after.overlays, before.overlays);
  EXPECT_EQ(after.selections, before.selections);
  for (const KernelInfo& k : runtime.find_kernels("reference.cpp")) EXPECT_EQ(k.calls, 0u);
}

TEST(Verify, ReportsProgressAndCanBeEnded) {
  const Runtime runtime;
  VerifyOptions o = quick();
  size_t calls = 0;
  o.progress = [&](const VerifyProgress& p) {
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
