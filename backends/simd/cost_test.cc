// SPDX-License-Identifier: Apache-2.0
// Tests that estimates grow with the work, do not share small calls, and cost almost nothing.
#include "cost.h"

#include "testing_reference.h"

namespace yard::simd {
namespace {

TEST(Rates, AreThoseOfARealMachine) {
  const Rates& r = rates();
  EXPECT_EQ(&r, &rates());
  EXPECT_GT(r.ns_per_byte, 1e-4);
  EXPECT_LT(r.ns_per_byte, 100);
  EXPECT_GT(r.ns_per_operation, 1e-4);
  EXPECT_LT(r.ns_per_operation, 100);
}

TEST(Estimate, GrowsWithTheElements) {
  const Rates machine{0.03, 0.05};
  double before = 0;
  for (double n = 0; n < 1e9; n = n * 1.3 + 1) {
    const double now = estimate(machine, {8, 6}, n, 8);
    EXPECT_GT(now, before);
    before = now;
  }
}

// Products take longer if the second matrix fits no cache, least so for few rows.
TEST(Estimate, OfMatmulCountsWhereItsMatrixLies) {
  const MatmulTimes times{{{0.15, 0.5, 3}}, 0.2, 0.6};
  const auto more = [&](double m) {
    return estimate_matmul(times, 1, m, 4096, 4096) - estimate_matmul(times, 64, m, 512, 512);
  };
  EXPECT_GT(more(1), 0);
  EXPECT_GT(more(16), 2 * more(8));
  EXPECT_GT(more(512), 2 * more(16));
}

TEST(Estimate, SharesOnlyLargeCalls) {
  const Rates machine{0.03, 0.05};
  EXPECT_EQ(estimate(machine, {8, 6}, 1000, 1), estimate(machine, {8, 6}, 1000, 8));
  EXPECT_LT(estimate(machine, {8, 6}, 1e8, 8), estimate(machine, {8, 6}, 1e8, 1) / 7);
}

TEST(Estimate, TakesTheSlowerOfMovingAndComputing) {
  const Rates machine{1, 1};
  EXPECT_EQ(estimate(machine, {8, 2}, 100), estimate(machine, {2, 8}, 100));
}

TEST(LinearRates, AreThoseOfARealMachine) {
  const LinearRates& r = linear_rates();
  EXPECT_EQ(&r, &linear_rates());
  EXPECT_GT(r.ns_of_one, 1e-4);
  EXPECT_LT(r.ns_of_one, 1000);
  EXPECT_GT(r.ns_of_four, 1e-4);
  EXPECT_LT(r.ns_of_four, 1000);
  EXPECT_GT(r.far_of_one, 1e-4);
  EXPECT_GT(r.far_of_four, 1e-4);
}

TEST(EstimateLinear, CountsWhereTheWeightsLie) {
  const LinearRates machine{1, 2, 3, 5};
  const double small = 1 << 18, large = small + 1;
  EXPECT_GT(estimate_linear(machine, 1, large), 2.9 * estimate_linear(machine, 1, small));
  EXPECT_GT(estimate_linear(machine, 4, large), 2.4 * estimate_linear(machine, 4, small));
}

TEST(EstimateLinear, CountsRowsInFoursAndAlone) {
  const LinearRates machine{1, 2, 1, 2};
  const double none = estimate_linear(machine, 0, 100);
  EXPECT_EQ(estimate_linear(machine, 1, 100) - none, 100);
  EXPECT_EQ(estimate_linear(machine, 3, 100) - none, 300);
  EXPECT_EQ(estimate_linear(machine, 4, 100) - none, 200);
  EXPECT_EQ(estimate_linear(machine, 9, 100) - none, 500);
}

TEST(EstimateLinear, SharesOnlyLargeCalls) {
  const LinearRates machine{1, 2, 1, 2};
  const double fixed = estimate_linear(machine, 0, 0);
  const double threads = plugin::threads_now(), large = 1e9;
  EXPECT_LE(estimate_linear(machine, 1, large) - fixed, large);
  if (threads > 1) {
    EXPECT_LT(estimate_linear(machine, 1, large) - fixed, large * 0.6);
  }
  EXPECT_GE(estimate_linear(machine, 1, large) - fixed, large / threads);
}

TEST(MatmulTimes, AreThoseOfARealMachine) {
  const MatmulTimes& t = matmul_times();
  EXPECT_EQ(&t, &matmul_times());
  for (const double ns : t.cached.ns) EXPECT_GT(ns, 1e-4);
  for (const double ns : {t.far_of_few, t.far_of_pass}) {
    EXPECT_GE(ns, 0);
    EXPECT_LT(ns, 1000);
  }
}

// The program may limit the host's threads at any time.
TEST(Estimate, IsForTheThreadsOfTheHost) {
  yard_host_t host{};
  host.size = sizeof host;
  static int32_t threads = 1;
  host.concurrency = [](void*) { return threads; };
  plugin::set_cost_host(&host);
  EXPECT_EQ(plugin::speed_of_threads(100), 1);
  const double alone = estimate(rates(), {8, 6}, 1e8);
  threads = 4;
  EXPECT_NEAR(plugin::speed_of_threads(100), 3.55, 1e-9);
  EXPECT_LT(estimate(rates(), {8, 6}, 1e8), alone / 3);
  EXPECT_LT(estimate_linear({1, 2, 1, 2}, 1, 1e9), 1e9 / 3);
  host.concurrency = nullptr;
  plugin::set_cost_host(&host);
  EXPECT_GE(plugin::threads_now(), 1);
  plugin::set_cost_host(nullptr);
}

// Kernels compute their cost from their fields, even if fields are absent.
TEST(Costs, OfEveryKernelGrow) {
  const yard_plugin_t* p = descriptor();
  for (uint32_t i = 0; i < p->kernel_count; ++i) {
    const yard_kernel_t& k = *p->kernels[i];
    uint32_t count = 0;
    while (k.cost_reads[count] != nullptr) ++count;
    std::vector<int64_t> small(count, 1), large(count, 256), absent(count, INT64_MIN);
    const double s = k.cost(k.self, small.data(), count);
    EXPECT_GT(s, 0);
    EXPECT_GT(k.cost(k.self, large.data(), count), s);
    EXPECT_GE(k.cost(k.self, absent.data(), count), 0);
  }
}

}  // namespace
}  // namespace yard::simd
