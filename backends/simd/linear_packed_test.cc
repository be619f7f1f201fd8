// SPDX-License-Identifier: Apache-2.0
// Tests `linear` with weights that instances pack: results, other weights, changed weights, the
// bound on packed bytes, and the choice of the kernel.
#include <gmock/gmock.h>
#include <yard/bound.h>
#include <yard/explain.h>
#include <yard/runtime.h>
#include <yard/verify.h>

#include <numeric>
#include <thread>

#include "testing_blocks.h"

namespace yard::simd {
namespace {

using testing::BlockTensor;

constexpr const char kPackedId[] = "default.simd_int8_packed", kStoredId[] = "default.simd_int8";
constexpr Format kPackedFormats[] = {Format::kQ8_0, Format::kQ4_0, Format::kQ4_1, Format::kQ6_K};

bool packs() { return quant_kernels().packed.strip_rows != 0; }

class PackedLinear : public ::testing::Test {
 protected:
  static RuntimeSettings settings() {
    RuntimeSettings s;
    s.environment = false, s.plugins.installed = false;
    return s;
  }
  PackedLinear() : runtime_(settings()) {}
  void SetUp() override {
    if (!packs()) GTEST_SKIP() << "this processor has no instructions for packed weights";
  }
  Instance loaded(const TensorView& weight) {
    Instance project = Instance::make(runtime_, "linear").value();
    project.load({{"weight", weight}}).or_throw();
    return project;
  }
  // Returns the kernel that served the call, or the error.
  std::string call(const Instance& instance, const TensorView& out, const TensorView& x,
                   const TensorView& weight, const char* force = kPackedId) {
    ResultRecord record;
    Options o;
    o.result = &record, o.force = force;
    const Status s = instance.call({out, x, weight}, o);
    return s.ok() ? record.kernel : s.to_string();
  }
  void bound(int64_t bytes) {
    Config config;
    config.settings.state_bytes = bytes;
    runtime_.rules().set(config).or_throw();
  }
  Runtime runtime_;
};

std::vector<float> normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = values(random);
  for (size_t i = 5; i < x.size(); i += 211) x[i] *= 60;  // some blocks have rests
  return x;
}

// Odd numbers of weight rows, strides of weights and activations, and all numbers of rows that are
// multiplied in different ways.
TEST_F(PackedLinear, HasTheBitsOfTheUnpackedKernel) {
  for (const Format format : kPackedFormats)
    for (const int64_t n : {1, 15, 16, 17, 70, 131})
      for (const int64_t blocks : {1, 3, 20}) {
        const int64_t k = is_super_block(format) ? (blocks + 1) / 2 * 256 : blocks * 32;
        const BlockTensor w(format, n, k, static_cast<uint32_t>(n + k), n % 3);
        const TensorView weight(*w.c());
        const Instance project = loaded(weight);
        for (const int64_t rows : {1, 2, 3, 4, 5, 9, 20, 130}) {
          const int64_t stride = k + rows % 2 * 7;
          std::vector<float> from = normal(rows * stride, static_cast<uint32_t>(rows));
          std::vector<float> to(static_cast<size_t>(rows * n), -1), expected(to.size(), -2);
          const TensorView x = view(from.data(), {rows, k}, {stride, 1});
          ASSERT_EQ(call(project, view(to, {rows, n}), x, weight), kPackedId);
          ASSERT_EQ(call(project, view(expected, {rows, n}), x, weight, kStoredId), kStoredId);
          ASSERT_EQ(to, expected) << static_cast<int>(format) << ": " << rows << " x " << n << " x "
                                  << k;
        }
        EXPECT_EQ(project.states(), 1u);
      }
}

TEST_F(PackedLinear, TakesEmptySizes) {
  for (const auto& [rows, n, k] : {std::array<int64_t, 3>{0, 20, 64}, {2, 0, 64}}) {
    const BlockTensor w(Format::kQ4_1, n, k, 1);
    const TensorView weight(*w.c());
    const Instance project = loaded(weight);
    std::vector<float> from(static_cast<size_t>(rows * k + 1), 1), to(rows * n + 1, 5);
    // Calls without results run no kernel.
    ASSERT_EQ(call(project, view(to, {rows, n}), view(from, {rows, k}), weight), "");
    EXPECT_EQ(to[0], 5);
  }
}

#ifndef YARD_UNDER_ASAN
TEST_F(PackedLinear, IsVerified) {
  VerifyOptions options;
  options.op = "linear", options.kernel = kPackedId, options.cases = 200;
  const auto report = verify(runtime_, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  ASSERT_EQ(report->kernels.size(), 1u);
  const KernelReport& k = report->kernels[0];
  EXPECT_EQ(k.failed, 0u) << k.worst.call << ": " << k.worst.what;
  EXPECT_TRUE(k.verified());
  EXPECT_GE(k.ran(), 150u);
}
#endif

// The memory holds the weight and its padding to whole panels, and no more.
TEST_F(PackedLinear, TakesTheMemoryOfTheWeight) {
  const BlockTensor w(Format::kQ4_1, 160, 1024, 1);
  const TensorView weight(*w.c());
  const Instance project = loaded(weight);
  std::vector<float> from(1024, 1), to(160);
  ASSERT_EQ(call(project, view(to, {1, 160}), view(from, {1, 1024}), weight), kPackedId);
  EXPECT_EQ(project.state_bytes(), 160u * 1024 / 32 * 20);
}

TEST_F(PackedLinear, ServesNoOtherWeightAndNoticesAReload) {
  constexpr int64_t kN = 32, kK = 64;
  std::vector<uint8_t> bytes(kN * kK / 32 * 34), other;
  const auto set_all = [&](uint8_t value) {  // each element is `value`, with a scale of 1
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = i % 34 == 0 ? uint8_t{0} : i % 34 == 1 ? uint8_t{0x3c} : value;
  };
  set_all(2);
  other = bytes;
  const TensorView weight(bytes.data(), DType::q8_0, {kN, kK}),
      same(other.data(), DType::q8_0, {kN, kK});
  std::vector<float> from(kK, 1), to(kN);
  const TensorView x = view(from, {1, kK}), out = view(to, {1, kN});
  Instance project = loaded(weight);
  EXPECT_EQ(call(project, out, x, weight, ""), kPackedId);
  EXPECT_EQ(to[31], 128);
  EXPECT_EQ(call(project, out, x, same, ""), kStoredId);
  EXPECT_EQ(to[31], 128);
  set_all(3);
  project.load({{"weight", weight}}).or_throw();
  EXPECT_EQ(call(project, out, x, weight, ""), kPackedId);
  EXPECT_EQ(to[31], 192);
  // Other kernels serve weights that cannot be packed.
  for (const TensorView& bad :
       {TensorView(), TensorView(bytes.data(), DType::q8_0, {kN * kK}),
        TensorView(nullptr, DType::q8_0, {kN, kK}), TensorView(from.data(), DType::f32, {1, kK})}) {
    project.load({{"weight", bad}}).or_throw();
    EXPECT_EQ(call(project, out, x, weight, ""), kStoredId);
    EXPECT_EQ(project.states(), 0u);
  }
}

// Threads pack more weights than the bound allows. The kernel that packs nothing serves the rest.
TEST_F(PackedLinear, KeepsTheBoundUnderThreads) {
  constexpr int64_t kN = 64, kK = 512, kBytes = kN * kK / 32 * 20, kWeights = 12, kFit = 5;
  bound(kFit * kBytes + kBytes / 2);
  std::vector<std::unique_ptr<BlockTensor>> weights;
  std::vector<Instance> projects;
  for (int64_t i = 0; i < kWeights; ++i) {
    weights.push_back(std::make_unique<BlockTensor>(Format::kQ4_1, kN, kK, i));
    projects.push_back(loaded(TensorView(*weights.back()->c())));
  }
  std::vector<float> from = normal(kK, 1);
  std::atomic<int64_t> packed{0}, stored{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> to(kN), expected(kN);
      for (int64_t i = 0; i < kWeights; ++i) {
        const auto at = static_cast<size_t>((i + 3 * t) % kWeights);
        const TensorView weight(*weights[at]->c()), x = view(from, {1, kK});
        const std::string by = call(projects[at], view(to, {1, kN}), x, weight, "");
        (by == kPackedId ? packed : stored) += by == kPackedId || by == kStoredId;
        ASSERT_EQ(call(projects[at], view(expected, {1, kN}), x, weight, kStoredId), kStoredId);
        ASSERT_EQ(to, expected);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(packed + stored, 4 * kWeights);
  EXPECT_GE(packed, kFit);
  EXPECT_GE(stored, 4 * (kWeights - kFit));
  EXPECT_EQ(runtime_.stats().states, static_cast<size_t>(kFit));
  EXPECT_EQ(runtime_.stats().state_bytes, static_cast<uint64_t>(kFit * kBytes));
  // A call that may use only this kernel says why it does not run.
  std::vector<float> to(kN);
  std::string errors;
  for (int64_t i = 0; i < kWeights; ++i) {
    const auto at = static_cast<size_t>(i);
    errors += call(projects[at], view(to, {1, kN}), view(from, {1, kK}),
                   TensorView(*weights[at]->c()), kPackedId);
  }
  EXPECT_THAT(errors, ::testing::HasSubstr("all states together hold at most"));
}

TEST_F(PackedLinear, IsSelectedByItsEstimate) {
  for (const char* format : {"q8_0", "q4_0", "q4_1", "q6_k"})
    for (const char* rows : {"1", "4", "16", "512"})
      for (const char* shape : {"576,512", "1536,768", "14336,4096"}) {
        const std::string text = std::string("linear(f32[") + rows +
                                 std::string(shape).substr(std::string(shape).find(',')) + "], " +
                                 format + "[" + shape + "])@cpu";
        const auto verdicts = [&](const std::string& spec) {
          std::pair<std::string, std::string> found;  // selected, reason of the packed kernel
          const auto e = runtime_.explain(spec);
          EXPECT_TRUE(e.ok()) << e.status().to_string();
          if (!e.ok()) return found;
          for (const Candidate& c : e->candidates) {
            if (c.verdict == "selected") found.first = c.id;
            if (c.id == kPackedId) found.second = c.reason;
          }
          return found;
        };
        EXPECT_EQ(verdicts(text + "+loaded").first, kPackedId) << text;
        EXPECT_EQ(verdicts(text), std::make_pair(std::string(kStoredId), std::string("not_loaded")))
            << text;
      }
}

}  // namespace
}  // namespace yard::simd
