// SPDX-License-Identifier: Apache-2.0
// Features of devices, which the program states: required by kernels and by plugins.
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
  // Another feature, or the same of another device, is not the one.
  runtime.state_device_features({"cuda:sm_80", "vulkan:sm_90"}).or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kRefused);
  runtime.state_device_features({"cuda:sm_90"}).or_throw();
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
  Runtime other(alone({folder.path()}));  // states nothing
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
  bare.runtime.state_device_features({"cuda:sm_90"}).or_throw();
  EXPECT_EQ(bare.runtime.resolve(call).value().kernel, "quick");
  Floats out(4), x(4);
  bare.runtime.call("copy", {out.view, x.view}).or_throw();
  EXPECT_EQ(t_ran, 2);
}

TEST(DeviceFeatures, AnInvalidDeviceFeatureIsAnError) {
  Runtime runtime(alone());
  for (const char* wrong : {"sm_90", "cuda:", ":sm_90", "toaster:hot", "cuda:a b", ""}) {
    const Status s = runtime.state_device_features({"cuda:sm_70", wrong});
    EXPECT_EQ(s.code(), Code::kInvalidArgument) << wrong;
    EXPECT_THAT(s.to_string(), HasSubstr("expected one like cuda:sm_90")) << wrong;
  }
  EXPECT_THAT(runtime.state_device_features({"cpu:avx2"}).to_string(), HasSubstr("detected"));
  RuntimeSettings settings = alone();
  settings.device_features = {"sm_90"};
  EXPECT_EQ(Runtime(settings).ensure_initialized().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace yard::testing
