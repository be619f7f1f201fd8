// SPDX-License-Identifier: Apache-2.0
// A thousand kernels of other ops do not make a hit slower. The test compares medians within one
// run and retries: the bound only catches costs that grow with the number of kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>

#include "testing.h"

namespace yard::testing::scale {
namespace {

constexpr int kOps = 100, kKernelsEach = 10;

double median_ns(const std::function<void()>& call) {
  std::vector<double> samples;
  for (int i = 0; i < 31; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < 2000; ++k) call();
    samples.push_back(
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(samples.begin(), samples.begin() + 15, samples.end());
  return samples[15];
}

void add_many(Runtime& runtime) {
  Changes c;
  std::deque<std::string> names;
  for (int i = 0; i < kOps; ++i) {
    const char* op = names.emplace_back("many" + std::to_string(i)).c_str();
    c.add_op(op_of(names.emplace_back(std::string(op) + "(out!: T[n], x: T[n])").c_str()));
    for (int k = 0; k < kKernelsEach; ++k)
      c.add_kernel(kernel_of(op, names.emplace_back("k" + std::to_string(k)).c_str(), k));
  }
  runtime.apply(std::move(c)).or_throw();
}

TEST(Scale, KernelsOfOtherOpsCostAHitNothing) {
  Bare few, many;
  for (Bare* b : {&few, &many}) ASSERT_TRUE(b->add(kernel_of("copy", "a", 1)).ok());
  add_many(many.runtime);
  ASSERT_EQ(many.runtime.list().ops.size(), size_t{kOps} + 1);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on_few = copy.on(few.runtime), on_many = copy.on(many.runtime);
  Floats out(64), x(64);
  double best = 1e9;
  for (int attempt = 0; attempt < 10 && best > 1.2; ++attempt) {
    const double a = median_ns([&] { on_few(out.view, x.view, 0).ignore(); });
    const double b = median_ns([&] { on_many(out.view, x.view, 0).ignore(); });
    best = std::min(best, b / a);
  }
  EXPECT_LT(best, 1.5);
}

TEST(Scale, AChangeOfOneOpLeavesThePlansOfOthers) {
  Bare bare;
  ASSERT_TRUE(bare.add(kernel_of("copy", "a", 1)).ok());
  add_many(bare.runtime);
  Floats out(64), x(64);
  constexpr Op<void(Out, In, int)> copy{"copy"};
  const auto on = copy.on(bare.runtime);
  ASSERT_TRUE(on(out.view, x.view, 0).ok());
  const uint64_t before = bare.runtime.stats(false).selections;
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(bare.remove("many3", ("k" + std::to_string(i % 10)).c_str()).ok() || i >= 10);
  ASSERT_TRUE(on(out.view, x.view, 0).ok());
  EXPECT_EQ(bare.runtime.stats(false).selections, before);
  EXPECT_EQ(bare.runtime.stats(false).plans, 1u);
}

}  // namespace
}  // namespace yard::testing::scale
