// SPDX-License-Identifier: Apache-2.0
// A copy of this backend should test the same: that the backend is available, which calls it
// accepts, that results match the op, and that refusals have a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/verify.h>
#include <yard/yard.h>

#include <cstdlib>

extern "C" const yard_plugin_t* yard_query_template(uint32_t host_abi, const yard_host_t* host);

namespace yard {
namespace {

using ::testing::HasSubstr;

class Template : public ::testing::Test {
 protected:
  // If null, the variable is not set.
  explicit Template(const char* driver = nullptr) {
    if (driver != nullptr)
      ::setenv("TEMPLATE_DRIVER", driver, 1);
    else
      ::unsetenv("TEMPLATE_DRIVER");
    Changes changes;
    changes.add_plugin(*yard_query_template(YARD_ABI_VERSION, nullptr));
    runtime_.apply(std::move(changes)).or_throw();
  }
  ~Template() override { ::unsetenv("TEMPLATE_DRIVER"); }

  Candidate candidate(const char* call) {
    const Explanation e = runtime_.explain(call).value();
    for (const Candidate& c : e.candidates)
      if (c.id == "vendor.template") return c;
    return {};
  }
  std::string backend_detail() {
    for (const BackendInfo& b : runtime_.list().backends)
      if (b.name == "template") return b.available ? "available" : b.detail;
    return "no such backend";
  }
  Runtime runtime_;
};

TEST_F(Template, RunsWhenItIsPreferred) {
  EXPECT_EQ(backend_detail(), "available");
  Policy policy;
  policy.per_op["silu_and_mul"] = {"vendor:template"};
  runtime_.set_policy(policy).or_throw();
  std::vector<float> x = {0, 1, -1, 2, 3, 5}, out(3);
  ResultRecord record;
  Options options;
  options.result = &record;
  runtime_.call("silu_and_mul", {view(out, {1, 3}), view(x, {1, 6})}, options).or_throw();
  EXPECT_STREQ(record.kernel, "vendor.template");
  EXPECT_FLOAT_EQ(out[0], 0.0f);
  EXPECT_FLOAT_EQ(out[1], 3 * 0.7310586f);
  EXPECT_FLOAT_EQ(out[2], 5 * -0.26894143f);
}

TEST_F(Template, RejectsOtherCallsWithAReason) {
  EXPECT_EQ(candidate("silu_and_mul(f32[4,64])").verdict, "able");
  EXPECT_EQ(candidate("silu_and_mul(f16[4,64])").reason, "dtype");
  EXPECT_EQ(candidate("silu_and_mul(f32[4,64;128,1])").reason, "layout");
  EXPECT_THAT(candidate("silu_and_mul(f32[4096,8192])").detail,
              HasSubstr("4096 rows of 12288 numbers are more than the 1048576 that fit"));
}

TEST_F(Template, AgreesWithTheReference) {
  VerifyOptions options;
  options.kernel = "vendor.template";
  const VerifyReport report = verify(runtime_, options).value();
  ASSERT_EQ(report.kernels.size(), 1u);
  EXPECT_GT(report.kernels[0].passed, 30u);
  for (const KernelReport::Case& c : report.kernels[0].failures)
    ADD_FAILURE() << c.call << ": " << c.what;
}

struct WithoutDriver : Template {
  WithoutDriver() : Template("0") {}
};
struct WithAnOldDriver : Template {
  WithAnOldDriver() : Template("2") {}
};

TEST_F(WithoutDriver, ItIsNotAvailable) {
  EXPECT_THAT(backend_detail(), HasSubstr("the vendor's driver is missing"));
  EXPECT_EQ(candidate("silu_and_mul(f32[4,64])").reason, "unavailable");
}

TEST_F(WithAnOldDriver, TheReasonNamesTheRequiredVersion) {
  EXPECT_THAT(backend_detail(),
              HasSubstr("the driver has version 2, and 3 is the oldest that works"));
}

}  // namespace
}  // namespace yard
