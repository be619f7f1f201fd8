// SPDX-License-Identifier: Apache-2.0
// Measures the time to publish a change for several numbers of plans in use, and the time to
// publish a file of 1,000 rules that has been read, compared with the budget. Prints JSON.
#include <fmt/format.h>
#include <yard/yard.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace {

using namespace yard;
using Clock = std::chrono::steady_clock;

constexpr double kBudgetMs = 5;
constexpr int kRounds = 15;

int32_t run(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }
int32_t accept(const yard_query_t*, yard_verdict_t*) { return YARD_OK; }

// Adds an op whose kernels read n, so that each size is a class with its own plan.
void add_op(Runtime& runtime) {
  static const char* const reads[] = {"n", nullptr};
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "bench";
  yard_op_t op{};
  op.size = sizeof op, op.schema = "step(out!: T[rows, n], x: T[rows, n])";
  Changes changes;
  changes.add_backend(backend).add_op(op);
  for (const char* id : {"bench.a", "bench.b", "bench.c"}) {
    yard_kernel_t kernel{};
    kernel.size = sizeof kernel, kernel.op = "step", kernel.id = id, kernel.backend = "bench";
    kernel.kind = YARD_KIND_DEFAULT;
    kernel.run = run, kernel.verify = accept, kernel.verify_reads = reads;
    changes.add_kernel(kernel);
  }
  runtime.apply(std::move(changes)).or_throw();
}

void call_classes(Runtime& runtime, int64_t count) {
  std::vector<float> x(8192), y(8192);
  for (int64_t n = 1; n <= count; ++n)
    runtime
        .call("step",
              {TensorView(y.data(), DType::f32, {1, n}), TensorView(x.data(), DType::f32, {1, n})})
        .or_throw();
}

// Returns the median of the rounds in milliseconds. The time of `before` does not count.
template <class B, class F>
double median_ms(const B& before, const F& f) {
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    before();
    const auto begin = Clock::now();
    f(i);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

Config thousand_rules(int salt) {
  std::string text = "version: \"1.0\"\ndispatch_rules:\n";
  for (int i = 0; i < 1000; ++i)
    text += fmt::format(
        "  - {{operation: step, kernel: {}, priority: {}, conditions: {{dtype: [float32, "
        "bfloat16], tenant: t{}, batch_size_gte: {}}}}}\n",
        (i + salt) % 2 == 0 ? "bench.a" : "bench.b", i, i, i % 8);
  ConfigReading reading = parse_config(text, "rules.yaml");
  if (!reading.ok()) std::abort();
  reading.config.settings.labels = {"tenant"};
  return reading.config;
}

}  // namespace

int main() {
  RuntimeSettings settings;
  settings.environment = false;
  std::string json;
  for (const int64_t plans : {10, 256, 4096}) {
    Runtime runtime(settings);
    add_op(runtime);
    call_classes(runtime, plans);
    const auto change = [&](int) { runtime.set_policy({}).or_throw(); };
    const double time = median_ms([&] { call_classes(runtime, plans); }, change);
    json += fmt::format("  \"publish_{}_plans_ms\": {:.4f},\n", plans, time);
  }
  Runtime runtime(settings);
  add_op(runtime);
  const Config versions[2] = {thousand_rules(0), thousand_rules(1)};
  const double rules = median_ms([&] { call_classes(runtime, 64); },
                                 [&](int i) { runtime.rules().set(versions[i % 2]).or_throw(); });
  fmt::print(
      "{{\n{}  \"publish_1000_rules_ms\": {:.3f},\n  \"budget_ms\": {:.1f},\n"
      "  \"within_budget\": {}\n}}\n",
      json, rules, kBudgetMs, rules <= kBudgetMs);
  return 0;
}
