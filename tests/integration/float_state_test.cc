// SPDX-License-Identifier: Apache-2.0
// Opening a library, queries and kernel states must leave a thread's rounding mode and
// flush-to-zero as they were, even if the plugin's code changes them. A kernel that changes them
// fails verification.
#include <gmock/gmock.h>
#include <yard/verify.h>

#include <cfenv>
#include <limits>

#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

bool usual() {
  volatile float smallest = std::numeric_limits<float>::min();
  return std::fegetround() == FE_TONEAREST && smallest / 2 != 0;
}

// A test that changes the float state would change it for all later tests.
class FloatState : public ::testing::Test {
 protected:
  ~FloatState() override {
    EXPECT_TRUE(usual());
    std::fesetenv(FE_DFL_ENV);
  }
};

TEST_F(FloatState, IsThatOfTheCallerAfterALibraryIsOpenedQueriedStartedStoppedAndClosed) {
  for (const char* when : {"load", "query", "start", "stop", "close"}) {
    Folder folder;
    const std::string path = folder.put(std::string("behave_") + when + "_change_float_state");
    Runtime runtime(alone());
    const Status s = runtime.plugins().load(path);
    ASSERT_TRUE(s.ok()) << s.to_string();
    EXPECT_TRUE(usual()) << when;
    EXPECT_EQ(ask(runtime, "behave"), 0);
    runtime.plugins().unload("behave").value().wait().or_throw();
    EXPECT_TRUE(usual()) << when;
  }
}

int32_t change() { return std::fesetround(FE_UPWARD), YARD_OK; }
const char* const kReads[] = {"n", nullptr};

yard_kernel_t changing(const char* when) {
  const std::string_view at = when;
  yard_kernel_t k = kernel_of("copy", "changing", 1, 900);
  if (at == "verify")
    k.verify_reads = kReads,
    k.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return change(); };
  if (at == "verify that throws")
    k.verify_reads = kReads, k.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t {
      change();
      throw 1;
    };
  if (at == "cost")
    k.cost_reads = kReads, k.cost = [](void*, const int64_t*, uint32_t) { return change() + 1.0; };
  if (at == "workspace")
    k.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return change() + 64; };
  k.create = [](yard_call_t*, const yard_named_value_t*, uint32_t, void** s) -> int32_t {
    return *s = nullptr, YARD_OK;
  };
  k.destroy = [](void*, void*) {};
  if (at == "create")
    k.create = [](yard_call_t*, const yard_named_value_t*, uint32_t, void** s) {
      return *s = nullptr, change();
    };
  if (at == "prepare")
    k.prepare = [](yard_call_t*, const yard_value_t*, uint32_t) { return change(); };
  if (at == "destroy") k.destroy = [](void*, void*) { change(); };
  if (at == "workspace" || at.starts_with("verify") || at == "cost" || at == "probe")
    k.create = nullptr, k.destroy = nullptr;
  if (at == "probe") k.backend = "probed";
  // Code that runs after them must find the usual state.
  k.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    return usual() ? YARD_OK : YARD_FAULT;
  };
  return k;
}

TEST_F(FloatState, IsThatOfTheCallerAfterQueriesAndStatesOfAKernel) {
  for (const char* when : {"probe", "verify", "verify that throws", "cost", "workspace", "create",
                           "prepare", "destroy"}) {
    Floats out(4), x(4);
    {
      Bare bare;
      yard_backend_t probed = backend_of("probed");
      probed.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) {
        return change();
      };
      Changes c;
      c.add_backend(probed).add_kernel(changing(when)).add_kernel(kernel_of("copy", "other", 2));
      bare.runtime.apply(std::move(c)).or_throw();
      const auto s = bare.runtime.call("copy", {out.view, x.view});
      EXPECT_TRUE(s.ok()) << when << ": " << s.to_string();
      EXPECT_TRUE(usual()) << when;
      EXPECT_TRUE(bare.runtime.explain("copy(f32[4])@cpu").ok());
      EXPECT_TRUE(usual()) << when;
    }
    EXPECT_TRUE(usual()) << when;
  }
}

int32_t copy_floats(yard_call_t*, const yard_value_t* args, uint32_t) {
  const plugin::Tensor out(args[0].u.tensor), in(args[1].u.tensor);
  for (int64_t i = 0; i < in.numel(); ++i) out.data<float>()[i] = in.data<float>()[i];
  return YARD_OK;
}

yard_kernel_t rounding_kernel() {
  yard_kernel_t k = kernel_of("copy", "rounding", 1, 900);
  static const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  k.limits = limits, k.limit_count = 2;
  k.run = [](yard_call_t* call, const yard_value_t* args, uint32_t count) -> int32_t {
    return copy_floats(call, args, count), change();
  };
  k.typed = reinterpret_cast<void (*)()>(
      +[](yard_call_t*, yard_tensor_t*, const yard_tensor_t*, int64_t) { return change(); });
  k.typed_signature = "tti";
  return k;
}

TEST_F(FloatState, AKernelThatChangesItFailsVerification) {
  Bare bare;
  bare.add(rounding_kernel()).or_throw();
  yard_kernel_t reference = rounding_kernel();
  reference.id = "reference", reference.kind = YARD_KIND_REFERENCE, reference.typed = nullptr;
  reference.typed_signature = nullptr;
  reference.run = copy_floats;
  bare.add(reference).or_throw();
  VerifyOptions options;
  options.kernel = "rounding", options.cases = 5;
  const VerifyReport report = verify(bare.runtime, options).value();
  EXPECT_FALSE(report.ok());
  ASSERT_EQ(report.kernels.size(), 1u);
  ASSERT_FALSE(report.kernels[0].failures.empty());
  EXPECT_THAT(report.kernels[0].failures[0].what,
              HasSubstr("changed the floating-point control state"));
}

}  // namespace
}  // namespace yard::testing
