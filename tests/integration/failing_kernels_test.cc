// SPDX-License-Identifier: Apache-2.0
// A million calls on kernels that fail in every possible way all return right results.
#include <gtest/gtest.h>
#include <yard/abi.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "fault.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

using fault::FaultKernel;

constexpr Op<void(Out, In, In, float)> rms_norm{"rms_norm"};

// The work of every kernel here when it does not fail.
int32_t serve(yard_call_t*, const yard_value_t* args, uint32_t) {
  const yard_tensor_t& x = *args[1].u.tensor;
  const auto* from = static_cast<const float*>(x.data);
  const auto* weight = static_cast<const float*>(args[2].u.tensor->data);
  auto* to = static_cast<float*>(args[0].u.tensor->data);
  const int64_t rows = x.shape[0], hidden = x.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < hidden; ++c) sum += double{from[r * hidden + c]} * from[r * hidden + c];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(hidden) + args[3].u.f);
    for (int64_t c = 0; c < hidden; ++c)
      to[r * hidden + c] = static_cast<float>(from[r * hidden + c] * scale * weight[c]);
  }
  return YARD_OK;
}

TEST(FailingKernels, AMillionCallsReturnRightResults) {
#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
  const int calls = scaled(20'000);
#else
  const int calls = scaled(1'000'000);
#endif
  constexpr int kThreads = 4;
  constexpr int64_t kRows = 2, kHidden = 16;

  fault::FaultBackend backend;
  Runtime runtime(RuntimeSettings{.environment = false});
  // If these kernels do not fail, the reference kernel does their work.
  const fault::Behaviour ways[] = {
      {.rate = 0.3, .code = YARD_FAULT},
      {.rate = 0.3, .throws = fault::Throws::kStandard},
      {.rate = 0.3, .after_writing = true, .code = YARD_TRANSIENT},
      {.rate = 0.3, .after_writing = true, .throws = fault::Throws::kForeign},
      {.rate = 0.3, .wrong_numbers = true, .offset = 0.5},
  };
  yard_kernel_t honest = kernel_of("rms_norm", "honest", 0);
  honest.run = serve;
  std::vector<std::unique_ptr<FaultKernel>> kernels;
  Changes changes;
  changes.add_backend(backend.descriptor());
  int i = 0;
  for (fault::Behaviour b : ways) {
    b.delegate = &honest;
    kernels.push_back(std::make_unique<FaultKernel>(
        fault::Spec{.op = "rms_norm", .id = "fault." + std::to_string(i), .priority = 1000 - i},
        b));
    changes.add_kernel(kernels.back()->descriptor());
    ++i;
  }
  ASSERT_TRUE(runtime.apply(std::move(changes)).ok());
  auto reading = parse_config(
      "version: \"1.0\"\n"
      "canary: {op: rms_norm, kernel: fault.4, one_in: 1}\n"
      "settings: {breaker: {cooldown: 1ms, cooldown_cap: 1ms, failure_threshold: 6}}\n",
      "rules.yaml");
  ASSERT_TRUE(reading.ok()) << to_string(reading.problems.at(0));
  ASSERT_TRUE(runtime.rules().set(reading.config).ok());

  std::atomic<uint64_t> failed{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> x(kRows * kHidden), w(kHidden, 1), out(kRows * kHidden);
      for (size_t k = 0; k < x.size(); ++k) x[k] = 1 + static_cast<float>((k * 7 + t) % 5);
      std::vector<float> right(out.size());
      {
        const TensorView to(right.data(), DType::f32, {kRows, kHidden}),
            from(x.data(), DType::f32, {kRows, kHidden}), weight(w.data(), DType::f32, {kHidden});
        yard_value_t args[] = {Value(to).c(), Value(from).c(), Value(weight).c(), {}};
        args[3].tag = YARD_TAG_FLOAT, args[3].u.f = 1e-6;
        serve(nullptr, args, 4);
      }
      const auto op = rms_norm.on(runtime);
      for (int n = 0; n < calls / kThreads; ++n) {
        std::fill(out.begin(), out.end(), -7.f);
        const Status s = op(TensorView(out.data(), DType::f32, {kRows, kHidden}),
                            TensorView(x.data(), DType::f32, {kRows, kHidden}),
                            TensorView(w.data(), DType::f32, {kHidden}), 1e-6f);
        if (!s.ok()) ++failed;
        for (size_t k = 0; k < out.size(); ++k)
          if (!(std::fabs(out[k] - right[k]) < 1e-4f)) {
            ++wrong;
            break;
          }
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(failed.load(), 0u);
  EXPECT_EQ(wrong.load(), 0u);
  // Each kernel failed often, although breakers excluded it at times.
  for (size_t k = 0; k < kernels.size(); ++k)
    EXPECT_GT(kernels[k]->failures() + kernels[k]->corrupted(), static_cast<uint64_t>(calls) / 2000)
        << k;
  EXPECT_GT(runtime.health().report().breakers.opened, 0u);
  EXPECT_TRUE(runtime.reset().ok());
}

}  // namespace
}  // namespace yard::testing
