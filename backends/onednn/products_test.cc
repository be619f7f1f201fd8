// SPDX-License-Identifier: Apache-2.0
// Compares linear and matmul of oneDNN with the reference kernel.
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/runtime.h>
#include <yard/verify.h>

#include <numeric>
#include <thread>

#include "cost.h"
#include "kernels.h"
#include "packed.h"
#include "primitives.h"

namespace yard::onednn {
namespace {

KernelReport verified(const char* op, const char* kernel) {
  VerifyOptions options;
  options.op = op, options.kernel = kernel, options.cases = 150;
  const auto report = verify(Runtime::shared(), options);
  EXPECT_TRUE(report.ok()) << report.status().to_string();
  if (!report.ok() || report->kernels.size() != 1) return {};
  const KernelReport& k = report->kernels[0];
  EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
  return k;
}

// Takes half a minute, and the conformance tests run it there.
#ifndef YARD_UNDER_ASAN
TEST(OnednnProducts, AreVerified) {
  EXPECT_TRUE(verified("linear", "vendor.onednn").verified());
  EXPECT_TRUE(verified("matmul", "vendor.onednn").verified());
}
#endif

TEST(OnednnProducts, InBf16AreVerifiedWhereTheProcessorHasIt) {
  if (product_ns(true, 1, 1, 1) < 0) GTEST_SKIP() << "oneDNN has no product in bf16 here";
  for (const char* op : {"linear", "matmul"}) {
    const KernelReport r = verified(op, "vendor.onednn_bf16");
    EXPECT_TRUE(r.verified() || r.ran() == 0) << op;  // it needs avx512bf16
  }
}

// Returns the kernel with packed weights, even if oneDNN does not pack into blocks here and the
// kernel would not be selected.
yard_kernel_t packed_kernel(const char* id) {
  const yard_plugin_t& all = *descriptor();
  for (uint32_t i = 0; i < all.kernel_count; ++i)
    if (std::string_view(all.kernels[i]->id) == "vendor.onednn_packed") {
      yard_kernel_t k = *all.kernels[i];
      k.id = id, k.verify = nullptr, k.verify_reads = nullptr, k.cost = nullptr;
      k.cost_reads = nullptr;
      return k;
    }
  ADD_FAILURE() << "no kernel with packed weights";
  return {};
}

struct PackedRuntime {
  static RuntimeSettings settings() {
    RuntimeSettings s;
    s.environment = false, s.plugins.installed = false;
    return s;
  }
  PackedRuntime() : runtime(settings()) {
    Changes c;
    yard_kernel_t k = packed_kernel("vendor.packed");
    k.priority = 900;
    c.add_kernel(k);
    runtime.apply(std::move(c)).or_throw();
  }
  std::string call(const Instance& instance, const TensorView& out, const TensorView& x,
                   const TensorView& weight, const char* force = "vendor.packed") {
    ResultRecord record;
    Options o;
    o.result = &record, o.force = force;
    const Status s = instance.call({out, x, weight}, o);
    return s.ok() ? record.kernel : s.to_string();
  }
  Runtime runtime;
};

#ifndef YARD_UNDER_ASAN
TEST(OnednnPacked, IsVerified) {
  PackedRuntime r;
  VerifyOptions options;
  options.op = "linear", options.kernel = "vendor.packed", options.cases = 200;
  const auto report = verify(r.runtime, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->kernels.size(), 1u);
  const KernelReport& k = report->kernels[0];
  EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
  EXPECT_TRUE(k.verified());
  EXPECT_GE(k.ran(), 150u);
}
#endif

TEST(OnednnPacked, InBf16IsVerifiedWhereOnednnPacksIt) {
  if (!packs_weights(true)) GTEST_SKIP() << "oneDNN packs no weights in bf16 here";
  const KernelReport r = verified("linear", "vendor.onednn_packed_bf16");
  EXPECT_TRUE(r.verified() || r.ran() == 0);  // it needs avx512bf16
}

TEST(OnednnPacked, OneCopyServesAllNumbersOfRows) {
  PackedRuntime r;
  constexpr int64_t kN = 70, kK = 45;
  std::vector<float> w(kN * kK);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 13) - 6;
  const TensorView weight = view(w, {kN, kK});
  Instance project = Instance::make(r.runtime, "linear").value();
  project.load({{"weight", weight}}).or_throw();
  for (const int64_t rows : {1, 7, 64, 65, 3}) {
    std::vector<float> from(static_cast<size_t>(rows * kK)), to(static_cast<size_t>(rows * kN));
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 7);
    std::vector<float> expected = to;
    const TensorView x = view(from, {rows, kK});
    ASSERT_EQ(r.call(project, view(to, {rows, kN}), x, weight), "vendor.packed");
    ASSERT_EQ(r.call(project, view(expected, {rows, kN}), x, weight, "reference.cpp"),
              "reference.cpp");
    EXPECT_EQ(to, expected) << rows << " rows";  // exact, because all values are small integers
    EXPECT_EQ(project.states(), 1u);
  }
  EXPECT_GE(project.state_bytes(), w.size() * sizeof(float));
}

TEST(OnednnPacked, ServesNoOtherWeight) {
  PackedRuntime r;
  std::vector<float> w(8 * 4, 1), other(8 * 4, 2), from(4, 1), to(8);
  const TensorView x = view(from, {1, 4}), out = view(to, {1, 8});
  Instance project = Instance::make(r.runtime, "linear").value();
  project.load({{"weight", view(w, {8, 4})}}).or_throw();
  EXPECT_EQ(r.call(project, out, x, view(w, {8, 4}), ""), "vendor.packed");
  EXPECT_NE(r.call(project, out, x, view(other, {8, 4}), ""), "vendor.packed");
  EXPECT_EQ(to[7], 8);
  // Load again after a change of the weight.
  w.assign(w.size(), 3);
  project.load({{"weight", view(w, {8, 4})}}).or_throw();
  EXPECT_EQ(r.call(project, out, x, view(w, {8, 4}), ""), "vendor.packed");
  EXPECT_EQ(to[7], 12);
  // Other kernels serve weights that cannot be packed.
  for (const TensorView& bad :
       {TensorView(), TensorView(w.data(), DType::f32, {32}),
        TensorView(w.data(), DType::f32, {8, 4}, {1, 8}), TensorView(nullptr, DType::f32, {8, 4}),
        TensorView(w.data(), DType::i32, {8, 4})}) {
    project.load({{"weight", bad}}).or_throw();
    EXPECT_NE(r.call(project, out, x, view(w, {8, 4}), ""), "vendor.packed");
    EXPECT_EQ(to[7], 12);
    EXPECT_EQ(project.states(), 0u);
  }
}

TEST(OnednnPacked, ThreadsShareOneCopy) {
  PackedRuntime r;
  std::vector<float> w(64 * 64, 1);
  const TensorView weight = view(w, {64, 64});
  Instance project = Instance::make(r.runtime, "linear").value();
  project.load({{"weight", weight}}).or_throw();
  std::vector<std::thread> threads;
  for (int64_t rows = 1; rows <= 4; ++rows)
    threads.emplace_back([&, rows] {
      std::vector<float> from(static_cast<size_t>(rows * 64), 1), to(from.size());
      for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(r.call(project, view(to, {rows, 64}), view(from, {rows, 64}), weight),
                  "vendor.packed");
        ASSERT_EQ(std::accumulate(to.begin(), to.end(), 0.0), static_cast<double>(rows * 64 * 64));
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(project.states(), 1u);
}

TEST(OnednnPacked, IsSelectedOnlyWhereOnednnPacks) {
  const auto of_call = [](const char* flags) {
    const auto e =
        Runtime::shared().explain("linear(f32[512,1024], f32[1024,1024])@cpu" + std::string(flags));
    for (const Candidate& c : e.value().candidates)
      if (c.id == "vendor.onednn_packed") return c;
    return Candidate();
  };
  EXPECT_EQ(of_call("").reason, "not_loaded");
  const Candidate loaded = of_call("+loaded");
  if (packs_weights(false)) {
    EXPECT_NE(loaded.verdict, "rejected");
    EXPECT_GT(product_ns(false, 512, 1024, 1024, true), 0);
  } else {
    EXPECT_NE(loaded.detail.find("oneDNN packs no such weights"), std::string::npos);
  }
}

}  // namespace
}  // namespace yard::onednn
