// SPDX-License-Identifier: Apache-2.0
// Prints the cost of selection, rules and failures. The tests check only that costs do not grow
// where they must not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>

#include "testing.h"

namespace yard::testing {
namespace {

constexpr const char* kAttend =
    "attend(out!: T[batch, seq_len], x: T[batch, seq_len], causal: bool = false)";
constexpr Op<void(Out, In, bool)> attend{"attend"};

// Measures the CPU time of this thread, so that other work on the machine does not count.
double now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

template <class F>
double nanos(F f, int runs = 40, int calls = 200) {
  double best = 1e18;
  for (int i = 0; i < runs; ++i) {
    const double begin = now_ns();
    for (int k = 0; k < calls; ++k) f();
    best = std::min(best, (now_ns() - begin) / calls);
  }
  return best;
}

// Eight kernels that can serve every call. One of them states its cost by sequence length.
struct World {
  World() : bare(kAttend) {
    static const char* const reads[] = {"seq_len", nullptr};
    Changes c;
    for (int i = 0; i < 8; ++i) {
      yard_kernel_t k =
          kernel_of("attend", names.emplace_back("k" + std::to_string(i)).c_str(), 1 + i, 100 + i);
      k.cost = [](void*, const int64_t* fields, uint32_t) { return double(fields[0]); };
      k.cost_reads = reads;
      c.add_kernel(k);
    }
    bare.runtime.apply(std::move(c)).or_throw();
  }
  void rules(int count) {
    std::string text = "version: \"1.0\"\n";
    if (count > 0) text += "dispatch_rules:\n";
    for (int i = 0; i < count; ++i)
      text += fmt::format(
          "  - {{operation: attend, kernel: k{}, priority: {}, conditions: {{batch_gte: {}, "
          "seq_len_lt: {}, dtype: [bfloat16, float16]}}}}\n",
          i % 8, i % 1000, 1000 + i % 10, 16 * (1 + i % 10));
    const auto r = parse_config(text, "rules.yaml");
    ASSERT_TRUE(r.ok()) << to_string(r.problems.at(0));
    ASSERT_TRUE(bare.runtime.rules().set(r.config).ok());
  }
  Status call(int64_t n, const Options& o = {}) {
    return attend.on(bare.runtime)
        .with(o)(TensorView(memory.data(), DType::f32, {2, n}),
                 TensorView(memory.data() + 32768, DType::f32, {2, n}), false);
  }

  std::deque<std::string> names;
  Bare bare;
  std::vector<float> memory = std::vector<float>(65536);
};

TEST(Figures, SelectionAmongEightKernels) {
  World w;
  const auto hit = attend.on(w.bare.runtime);
  const TensorView out(w.memory.data(), DType::f32, {2, 8}),
      x(w.memory.data() + 32768, DType::f32, {2, 8});
  Options cached, fresh;
  fresh.cache = false;
  // Consecutive shapes differ, and each has its own class.
  std::vector<std::pair<TensorView, TensorView>> shapes;
  for (int64_t n = 8; n <= 128; n += 8)
    shapes.emplace_back(TensorView(w.memory.data(), DType::f32, {2, n}),
                        TensorView(w.memory.data() + 32768, DType::f32, {2, n}));
  size_t at = 0;
  const auto another = [&] {
    const auto& [to, from] = shapes[at++ % shapes.size()];
    hit(to, from, false).ignore();
  };
  struct Costs {
    double plain = 1e9, varied = 1e9, cold = 1e9;
  };
  // The least cost for each number of rules, because other programs may keep the machine busy.
  std::map<int, Costs> least;
  const auto measure = [&](int count) {
    w.rules(count);
    const double plain = nanos([&] { hit(out, x, false).ignore(); }, 100, 1000);
    const double varied = nanos(another, 100, 1600);
    const double found = nanos([&] { w.call(8, cached).ignore(); });
    const double selected = nanos([&] { w.call(8, fresh).ignore(); });
    std::printf(
        "%4d rules: a hit %.1f ns, of another shape each time %.1f ns, with options %.0f ns, "
        "selected again %.0f ns: %.2f us\n",
        count, plain, varied, found, selected, (selected - found) / 1000);
    Costs& c = least[count];
    c = {std::min(c.plain, plain), std::min(c.varied, varied), std::min(c.cold, selected - found)};
  };
  // With a thousand rules over the same fields, a hit costs as much as with ten, and a selection
  // costs much less than ten times as much as with a hundred.
  const auto is_flat = [&] {
    return least[1000].plain < 1.5 * least[10].plain &&
           least[1000].varied < 1.5 * least[10].varied && least[1000].cold < 5 * least[100].cold &&
           least[100].cold < 3 * least[0].cold;
  };
  for (int pass = 0; pass < 5; ++pass) {
    for (const int count : {0, 10, 100, 1000}) measure(count);
    if (is_flat()) break;
  }
  EXPECT_TRUE(is_flat());
}

TEST(Figures, ADecodeLoopNeedsFewPlans) {
  World w;
  const auto r = parse_config(
      "version: \"1.0\"\ndispatch_rules:\n"
      "  - {operation: attend, kernel: k3, conditions: {seq_len_gte: 4096}}\n",
      "rules.yaml");
  ASSERT_TRUE(r.ok());
  ASSERT_TRUE(w.bare.runtime.rules().set(r.config).ok());
  for (int64_t n = 1; n <= 8192; ++n) ASSERT_TRUE(w.call(n).ok());
  const size_t plans = w.bare.runtime.stats(false).plans;
  std::printf("sequence lengths 1 to 8192: %zu plans\n", plans);
  EXPECT_GE(plans, 2u);
  EXPECT_LE(plans, 32u);
}

thread_local bool t_fails = false;

TEST(Figures, AFallback) {
  Bare bare(kAttend);
  yard_kernel_t bad = kernel_of("attend", "bad", 1, 200);
  bad.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    return t_fails ? YARD_FAULT : YARD_OK;
  };
  ASSERT_TRUE(bare.add(bad).ok());
  ASSERT_TRUE(bare.add(kernel_of("attend", "good", 2, 100)).ok());
  BreakerSettings s;
  s.failure_threshold = 10'000, s.failure_percent = 0;  // keeps the kernel failing
  ASSERT_TRUE(bare.runtime.health().set_settings(s).ok());
  std::vector<float> memory(64);
  const auto op = attend.on(bare.runtime);
  const auto call = [&] {
    op(TensorView(memory.data(), DType::f32, {2, 8}),
       TensorView(memory.data() + 32, DType::f32, {2, 8}), false)
        .ignore();
  };
  const double well = nanos(call, 100, 1000);
  t_fails = true;
  const double failing = nanos(call, 40, 200);
  t_fails = false;
  std::printf("a call %.1f ns, one that falls back %.0f ns more\n", well, failing - well);
  uint64_t failures = 0;
  for (const KernelHealth& k : bare.runtime.health().report().kernels)
    if (k.kernel == "bad") failures = k.failures.of(ErrorClass::kFault);
  EXPECT_EQ(failures, 40 * 200u) << "not every call fell back";
  // A fallback takes about 40 times as long; the aim is 1 us. A step that allocates or waits would
  // take far longer.
  EXPECT_LT(failing - well, 200 * well);
}

}  // namespace
}  // namespace yard::testing
