// SPDX-License-Identifier: Apache-2.0
// The program states the features of devices. Kernels and plugins may require them.
#include <gmock/gmock.h>

#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

TEST(DeviceFeatures, APluginIsRefusedUntilItsFeaturesAreStated) {
  Folder folder;
  folder.put("gpu_feature");
  Runtime runtime(alone({folder.path()}));
  const PluginInfo refused = info_of(runtime, "answer");
  EXPECT_EQ(refused.reason, PluginReason::kMissingFeature);
  EXPECT_THAT(refused.detail, HasSubstr("'cuda:sm_90', which has not been stated"));
  EXPECT_THAT(refused.detail, HasSubstr("RuntimeSettings::device_features"));
  // Neither another feature nor the same feature of another device is enough.
  runtime.plugins().state_device_features({"cuda:sm_80", "vulkan:sm_90"}).or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kRefused);
  runtime.plugins().state_device_features({"cuda:sm_90"}).or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kFound);
  EXPECT_EQ(ask(runtime), 1);
}

TEST(DeviceFeatures, AreStatedBeforePluginsAreSearched) {
  Folder folder;
  folder.put("gpu_feature");
  RuntimeSettings settings = alone({folder.path()});
  settings.device_features = {"cuda:sm_90"};
  Runtime runtime(settings);
  EXPECT_EQ(ask(runtime), 1);
  Runtime other(alone({folder.path()}));  // this runtime states no features
  EXPECT_EQ(ask(other), -1);
}

TEST(DeviceFeatures, AKernelRunsOnceItsFeatureIsStated) {
  Bare bare;
  yard_kernel_t plain = kernel_of("copy", "plain", 1), quick = kernel_of("copy", "quick", 2, 900);
  quick.features = "cuda:sm_90";
  ASSERT_TRUE(bare.add(plain).ok() && bare.add(quick).ok());
  const char* call = "copy(f32[4])@cpu";
  EXPECT_EQ(bare.runtime.resolve(call).value().kernel, "plain");
  EXPECT_THAT(bare.runtime.explain(call).value().to_text(),
              HasSubstr("needs cuda:sm_90, which the program has not stated"));
  bare.runtime.plugins().state_device_features({"cuda:sm_90"}).or_throw();
  EXPECT_EQ(bare.runtime.resolve(call).value().kernel, "quick");
  Floats out(4), x(4);
  bare.runtime.call("copy", {out.view, x.view}).or_throw();
  EXPECT_EQ(t_ran, 2);
}

// A backend for devices of type cuda. Kernel `plain` requires no feature.
struct OnCuda : Bare {
  OnCuda() {
    yard_backend_t b = backend_of("gpu");
    b.device_type = 2;
    Changes c;
    c.add_backend(b).add_kernel(on_cuda("plain", 1, 1, nullptr));
    runtime.apply(std::move(c)).or_throw();
  }
  static yard_kernel_t on_cuda(const char* id, int self, int priority, const char* features) {
    yard_kernel_t k = kernel_of("copy", id, self, priority);
    k.backend = "gpu", k.features = features;
    return k;
  }
  std::string on(int device) {
    return runtime.resolve("copy(f32[4])@cuda:" + std::to_string(device)).value().kernel;
  }
};

TEST(DeviceFeatures, AreThoseOfTheDeviceThatACallIsOn) {
  OnCuda bare;
  ASSERT_TRUE(bare.add(bare.on_cuda("quick", 2, 900, "cuda:sm_90")).ok());
  bare.runtime.plugins().state_device_features({"cuda:0:sm_80", "cuda:1:sm_90"}).or_throw();
  EXPECT_EQ(bare.on(0), "plain");
  EXPECT_EQ(bare.on(1), "quick");
  EXPECT_EQ(bare.on(2), "plain");
  const Explanation e = bare.runtime.explain("copy(f32[4])@cuda").value();
  EXPECT_EQ(e.candidates[1].reason, "device_feature");
  EXPECT_EQ(e.candidates[1].detail,
            "needs cuda:sm_90, which the program has not stated of cuda:0 "
            "(Plugins::state_device_features)");
}

TEST(DeviceFeatures, RepeatedCallsOnTwoDevicesRunTheirOwnKernels) {
  OnCuda bare;
  ASSERT_TRUE(bare.add(bare.on_cuda("quick", 2, 900, "cuda:sm_90")).ok());
  bare.runtime.plugins().state_device_features({"cuda:0:sm_80", "cuda:1:sm_90"}).or_throw();
  Floats out(4), x(4);
  const auto on = [](const Floats& f, int device) {
    yard_tensor_t t = f.view.c();
    t.device = {2, device}, t.facts = 0;
    return TensorView(t);
  };
  for (int i = 0; i < 6; ++i)
    for (const int device : {0, 1, 1, 0}) {
      bare.runtime.call("copy", {on(out, device), on(x, device)}).or_throw();
      EXPECT_EQ(t_ran, device + 1);
    }
  bare.runtime.plugins().state_device_features({"cuda:0:sm_90"}).or_throw();
  bare.runtime.call("copy", {on(out, 0), on(x, 0)}).or_throw();
  EXPECT_EQ(t_ran, 2);
}

TEST(DeviceFeatures, AHigherLevelServesAndARangeEnds) {
  OnCuda bare;
  ASSERT_TRUE(bare.add(bare.on_cuda("least", 2, 500, "cuda:sm_80")).ok());
  ASSERT_TRUE(bare.add(bare.on_cuda("range", 3, 900, "cuda:sm_80..89")).ok());
  bare.runtime.plugins()
      .state_device_features({"cuda:0:sm_75", "cuda:1:sm_80", "cuda:2:sm_89", "cuda:3:sm_90"})
      .or_throw();
  EXPECT_EQ(bare.on(0), "plain");
  EXPECT_EQ(bare.on(1), "range");
  EXPECT_EQ(bare.on(2), "range");
  EXPECT_EQ(bare.on(3), "least");
}

TEST(DeviceFeatures, ADevicesOwnLevelPrecedesThatOfItsType) {
  OnCuda bare;
  ASSERT_TRUE(bare.add(bare.on_cuda("range", 2, 900, "cuda:sm_80..89")).ok());
  bare.runtime.plugins().state_device_features({"cuda:sm_86", "cuda:1:sm_90"}).or_throw();
  EXPECT_EQ(bare.on(0), "range");
  EXPECT_EQ(bare.on(1), "plain");
  bare.runtime.plugins().state_device_features({"cuda:1:sm_89"}).or_throw();
  EXPECT_EQ(bare.on(1), "range") << "the latest statement counts";
}

TEST(DeviceFeatures, AKernelThatNoDeviceCanRunIsListedAsUnavailable) {
  OnCuda bare;
  ASSERT_TRUE(bare.add(bare.on_cuda("quick", 2, 900, "cuda:sm_90")).ok());
  const auto info = [&] { return bare.runtime.list().find_kernels("quick").at(0); };
  EXPECT_FALSE(info().available);
  EXPECT_EQ(info().reason, "device_feature");
  bare.runtime.plugins().state_device_features({"cuda:7:sm_100"}).or_throw();
  EXPECT_TRUE(info().available);
}

TEST(DeviceFeatures, VerifiersAskTheHostAboutOneDevice) {
  OnCuda bare;
  yard_kernel_t k = bare.on_cuda("asks", 2, 900, nullptr);
  k.verify = [](const yard_query_t* q, yard_verdict_t* v) -> int32_t {
    if (q->host->has_feature(q->host->self, q->device, "sm_80") != 1)
      v->reason = YARD_REASON_REFUSED;
    return YARD_OK;
  };
  static const char* const nothing[] = {nullptr};
  k.verify_reads = nothing;
  ASSERT_TRUE(bare.add(k).ok());
  bare.runtime.plugins().state_device_features({"cuda:1:sm_90"}).or_throw();
  EXPECT_EQ(bare.on(0), "plain");
  EXPECT_EQ(bare.on(1), "asks");
}

TEST(DeviceFeatures, APluginNeedsADeviceThatHasThem) {
  Folder folder;
  folder.put("gpu_feature");
  Runtime runtime(alone({folder.path()}));
  runtime.plugins().state_device_features({"cuda:0:sm_80"}).or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kRefused);
  runtime.plugins().state_device_features({"cuda:3:sm_100"}).or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kFound);
}

TEST(DeviceFeatures, AnUnknownFeatureInAClaimIsRefusedWithASuggestion) {
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "quick", 1);
  k.features = "sse2 nean";
  const Status s = bare.add(k);
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("invalid feature \"nean\""));
  EXPECT_THAT(s.to_string(), HasSubstr("did you mean 'neon'"));
  EXPECT_THAT(s.to_string(), HasSubstr("kernel 'quick' of op 'copy'"));
  k.features = "cuda:sm_90..80";
  EXPECT_THAT(bare.add(k).to_string(), HasSubstr("a range of levels, like cuda:sm_80..89"));
}

TEST(DeviceFeatures, AnInvalidDeviceFeatureIsAnError) {
  Runtime runtime(alone());
  for (const char* wrong : {"sm_90", "cuda:", ":sm_90", "toaster:hot", "cuda:a b", "cuda:x:sm_90",
                            "cuda:sm_80..89", ""}) {
    const Status s = runtime.plugins().state_device_features({"cuda:sm_70", wrong});
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << wrong;
    EXPECT_THAT(s.to_string(), HasSubstr("expected one like cuda:sm_90")) << wrong;
  }
  EXPECT_THAT(runtime.plugins().state_device_features({"cpu:avx2"}).to_string(),
              HasSubstr("detected"));
  RuntimeSettings settings = alone();
  settings.device_features = {"sm_90"};
  EXPECT_EQ(Runtime(settings).problems().at(0).where, "RuntimeSettings");
}

}  // namespace
}  // namespace yard::testing
