// SPDX-License-Identifier: Apache-2.0
// Tests which calls backend `onednn` accepts, and its reasons for refusing others.
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"
#include "process.h"

namespace yard::onednn {
namespace {

// Returns why vendor.onednn would refuse a call, or an empty text if it could run.
std::string refusal(const char* call) {
  const auto e = Runtime::shared().explain(call);
  EXPECT_TRUE(e.ok()) << e.status().to_string();
  for (const Candidate& c : e->candidates)
    if (c.id == "vendor.onednn") return c.verdict == "rejected" ? c.reason : "";
  return "no candidate";
}

TEST(OnednnPlugin, IsThere) {
  const Listing listing = Runtime::shared().list();
  bool found = false;
  for (const BackendInfo& b : listing.backends) {
    if (b.name != "onednn") continue;
    found = true;
    EXPECT_TRUE(b.available) << b.reason << b.detail;
    EXPECT_EQ(b.vendor, "onednn");
    EXPECT_EQ(b.kernels, 12u);
  }
  EXPECT_TRUE(found);
}

// Runs in a separate process, with the profiling flags that oneDNN initially has on aarch64.
[[noreturn]] void call_and_look_for_the_map(const char* flags) {
  for (const char* name : {"ONEDNN_JIT_PROFILE", "DNNL_JIT_PROFILE"}) ::unsetenv(name);
  if (flags != nullptr) ::setenv("DNNL_JIT_PROFILE", flags, 1);
  dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_LINUX_PERFMAP);
  std::vector<float> x(64 * 512, 1), out(x.size());
  Options forced;
  forced.force = "vendor.onednn";
  const TensorView tx(x.data(), DType::f32, {64, 512}), tout(out.data(), DType::f32, {64, 512});
  const bool called = Runtime::shared().call("softmax", {tout, tx}, forced).ok();
  const std::string map = "/tmp/perf-" + std::to_string(::getpid()) + ".map";
  std::_Exit(!called ? 2 : std::remove(map.c_str()) == 0 ? 1 : 0);
}

TEST(OnednnPlugin, WritesAMapForProfilersOnlyIfTheEnvironmentAsks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  using ::testing::ExitedWithCode;
  EXPECT_EXIT(call_and_look_for_the_map(nullptr), ExitedWithCode(0), "");
  EXPECT_EXIT(call_and_look_for_the_map("2"), ExitedWithCode(1), "");
}

TEST(OnednnPlugin, AcceptsCompactF32) {
  for (const char* call : {"softmax(f32[4,8])", "softmax(f32[8])", "softmax(f32[2,3,4,8])",
                           "softmax(f32[4,8], out=&x)", "softmax(f32[0,8])", "layer_norm(f32[4,8])",
                           "layer_norm(f32[4,8], f32[8])", "layer_norm(f32[4,8], f32[8], f32[8])",
                           "layer_norm(f32[4,8], bias=f32[8])", "layer_norm(f32[2,32768])"})
    EXPECT_EQ(refusal(call), "") << call;
}

TEST(OnednnPlugin, RejectsOtherCallsWithAReason) {
  EXPECT_EQ(refusal("softmax(f16[4,8])"), "dtype");
  EXPECT_EQ(refusal("softmax(bf16[4,8])"), "dtype");
  EXPECT_EQ(refusal("layer_norm(bf16[4,8], bf16[8])"), "dtype");
  EXPECT_EQ(refusal("softmax(f32[4,8;16,1])"), "layout");
  EXPECT_EQ(refusal("layer_norm(f32[4,8;1,4])"), "layout");
  EXPECT_EQ(refusal("softmax(f32[4,8]%2)"), "alignment");
  EXPECT_EQ(refusal("layer_norm(f32[2,32769])"), "dim_too_large");
}

TEST(OnednnPlugin, WithoutScratchMemoryItFailsBeforeWriting) {
  std::vector<float> x = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4}, out(4, -7);
  const TensorView tx(x.data(), DType::f32, {2, 2}), tout(out.data(), DType::f32, {2, 2});
  char error[128] = "";
  yard_call_t call{};
  call.size = sizeof call, call.error = error, call.error_size = sizeof error;
  EXPECT_EQ(softmax(Call(&call), Tensor(&tout.c()), Tensor(&tx.c())), YARD_TRANSIENT);
  EXPECT_STREQ(error, "no memory for a list of 1 rows");
  EXPECT_EQ(out, std::vector<float>(4, -7));
}

TEST(OnednnPlugin, UsesNoMoreThreadsThanTheHost) {
  const yard_host_t* no_host = nullptr;
  const int usual = ThreadCount(no_host, 64).value();
  ASSERT_GE(usual, 1) << "the OpenMP library was not found";
  yard_host_t host{};
  host.size = sizeof host;
  host.concurrency = [](void*) { return 1; };
  {
    const ThreadCount one(&host, 64);
    EXPECT_EQ(one.value(), 1);
    EXPECT_EQ(ThreadCount(no_host, 64).value(), 1);
  }
  EXPECT_EQ(ThreadCount(no_host, 64).value(), usual);
  EXPECT_EQ(ThreadCount(no_host, 1).value(), 1);
  EXPECT_EQ(ThreadCount(no_host, 0).value(), 1);
}

TEST(OnednnPlugin, ManyThreadsManyShapes) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int64_t i = 0; i < 100; ++i) {
        const int64_t rows = 1 + (i * 7 + t) % 90, width = 32;
        std::vector<float> x(static_cast<size_t>(rows * width), float(t)), out(x.size());
        const TensorView tx(x.data(), DType::f32, {rows, width});
        const TensorView tout(out.data(), DType::f32, {rows, width});
        Options o;
        o.force = "vendor.onednn";
        ASSERT_TRUE(Runtime::shared().call("softmax", {tout, tx}, o).ok());
        for (float v : out) ASSERT_FLOAT_EQ(v, 1.0f / 32);
      }
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace yard::onednn
