// SPDX-License-Identifier: Apache-2.0
// What a reload of a thousand rules takes, and what callers feel of it. Printed; only what must hold on any
// machine is asserted.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/testing_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

double ms(Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

// Of this thread's own time, so that other work on the machine does not count.
double cpu_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

// Rules for the built-in ops that read three fields; `salt` makes another file of it.
std::string thousand_rules(int salt) {
  std::string text = "version: \"1.0\"\ndispatch_rules:\n";
  const char* ops[] = {"rms_norm", "softmax", "silu_and_mul", "layer_norm"};
  for (int i = 0; i < 1000; ++i)
    text += std::string("  - operation: ") + ops[i % 4] + "\n    name: rule " + std::to_string(i) +
            "\n    conditions:\n      dtype: [float16, bfloat16]\n      tenant: t" +
            std::to_string(i % 50) + "\n      batch_size_gte: " + std::to_string(8 * (i % 100)) +
            "\n    kernel: reference.cpp\n    priority: " + std::to_string((i + salt) % 1000) +
            "\n";
  return text;
}

// The times of calls, in nanoseconds, until told to end.
std::vector<int64_t> call_until(Runtime& rt, const std::atomic<bool>& end) {
  std::vector<float> x(64), y(64), w(64, 1.0f);
  const TensorView to(y.data(), DType::f32, {1, 64}), from(x.data(), DType::f32, {1, 64});
  const TensorView weight(w.data(), DType::f32, {64});
  std::vector<int64_t> times;
  times.reserve(1 << 22);
  while (!end && times.size() < (1 << 22)) {
    const auto begin = Clock::now();
    EXPECT_TRUE(rt.call("rms_norm", {to, from, weight}).ok());
    times.push_back((Clock::now() - begin).count());
  }
  return times;
}

double percentile(std::vector<int64_t>& times, double p) {
  const auto at = times.begin() + static_cast<ptrdiff_t>(p * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), at, times.end());
  return static_cast<double>(*at);
}

TEST(ReloadTime, OfAThousandRules) {
  Runtime rt(RuntimeSettings{.environment = false});
  ConfigReading readings[2];
  double parse = 1e9, publish = 1e9, publish_wall = 1e9;
  for (int i = 0; i < 4; ++i) {
    const double begin = cpu_ms();
    readings[i % 2] = parse_config(thousand_rules(i), "rules.yaml");
    parse = std::min(parse, cpu_ms() - begin);
  }
  ASSERT_TRUE(readings[0].ok()) << to_string(readings[0].problems[0]);

  for (int64_t n = 1; n < 64; ++n) {  // classes to replan
    std::vector<float> x(static_cast<size_t>(2 * n));
    const TensorView to(x.data(), DType::f32, {1, n}), from(x.data() + n, DType::f32, {1, n});
    rt.call("softmax", {to, from}).or_throw();
  }
  for (int i = 0; i < 10; ++i) {
    Config c = readings[i % 2].config;
    const double begin = cpu_ms();
    const auto wall = Clock::now();
    rt.set_config(std::move(c)).or_throw();
    publish = std::min(publish, cpu_ms() - begin);
    publish_wall = std::min(publish_wall, ms(Clock::now() - wall));
  }
  int published = 0;
  for (const auto end = Clock::now() + 1s; Clock::now() < end; ++published)
    rt.set_config(readings[published % 2].config).or_throw();
  std::printf(
      "1000 rules: read %.1f ms, checked, dry-run, compiled and published after that %.2f ms (%.2f "
      "by "
      "the clock), %d publications in a second\n",
      parse, publish, publish_wall, published);
}

TEST(ReloadTime, AsCallersFeelIt) {
  Runtime rt(RuntimeSettings{.environment = false});
  const base::TempFolder folder;
  const std::string file = folder / "rules.yaml";
  base::replace(file, thousand_rules(0));
  rt.watch_config(file, {Watch::kAuto, 20ms, 10ms}).or_throw();
  const auto measure = [&](bool reloading) {
    std::atomic<bool> end{false};
    std::vector<int64_t> times;
    std::thread caller([&] { times = call_until(rt, end); });
    const auto stop = Clock::now() + 1500ms;
    for (int i = 1; Clock::now() < stop; ++i) {
      if (reloading) base::replace(file, thousand_rules(i));
      std::this_thread::sleep_for(50ms);
    }
    end = true;
    caller.join();
    return times;
  };
  auto quiet = measure(false);
  const uint64_t before = rt.config_history().back().number;
  auto busy = measure(true);
  const uint64_t reloads = rt.config_history().back().number - before;
  ASSERT_FALSE(quiet.empty() || busy.empty());
  EXPECT_GT(reloads, 0u);
  std::printf(
      "99.9th percentile of calls: %.0f ns, with %llu reloads of 1000 rules %.0f ns (%.2f x)\n",
      percentile(quiet, 0.999), static_cast<unsigned long long>(reloads), percentile(busy, 0.999),
      percentile(busy, 0.999) / percentile(quiet, 0.999));
}

}  // namespace
}  // namespace yard::testing
