// SPDX-License-Identifier: Apache-2.0
// Measures reading, checking, compiling and matching a thousand rules. The times are printed, and
// only values that must not grow are checked.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "policy/testing_config.h"

namespace yard::policy {
namespace {

// Uses this thread's CPU time, so that other work on the machine does not count.
double now() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

// Returns the best of some runs, in microseconds.
template <class F>
double micros(int runs, F f) {
  double best = 1e18;
  for (int i = 0; i < runs; ++i) {
    const double begin = now();
    f();
    best = std::min(best, now() - begin);
  }
  return best;
}

// Returns rules that read three fields, with `distinct` thresholds of each.
std::string rules_text(int count, int distinct) {
  std::string text = "version: \"1.0\"\ndispatch_rules:\n";
  for (int i = 0; i < count; ++i)
    text += fmt::format(
        "  - operation: \"attention.*\"\n    name: rule {}\n    conditions:\n"
        "      batch_size_gte: {}\n      seq_len_lt: {}\n      dtype: [float16, bfloat16]\n"
        "    kernel: {}\n    priority: {}\n",
        i, 1000 + i % distinct, 16 * (1 + i % distinct),
        i % 2 ? "flash_attention_v2" : "torch_sdpa", i % 1000);
  return text;
}

TEST(RulesTime, AThousandRules) {
  const TestKnown known = usual_ops();
  for (const int distinct : {10, 1000}) {
    const std::string text = rules_text(1000, distinct);
    ConfigReading reading;
    const double parse = micros(5, [&] { reading = parse_config(text, "rules.yaml"); });
    ASSERT_TRUE(reading.ok());
    RulesByOp compiled;
    const double check = micros(5, [&] {
      compiled.clear();
      // There are only warnings, because rules with the same conditions shadow each other.
      for (const ConfigProblem& p : check_config(reading.config, known, &compiled))
        ASSERT_EQ(p.severity, Severity::kWarning) << to_string(p);
    });
    const auto program = known.ops.at("attention.causal").program;
    const double compile = micros(5, [&] { compile_rules(reading.config, *program); });
    const Conditions& conditions = compiled.at(program)->conditions();
    const TestCall call(known, "attention.causal(bf16[8,64,4,32], bf16[8,9,2,32], bf16[8,9,2,32])");
    const CallView view = call.view();
    const KernelFacts kernels[] = {{"flash_attention_v2"}, {"torch_sdpa"}};
    ClauseSources sources;
    sources.rules = compiled.at(program);
    const Clauses clauses(std::move(sources), "attention.causal", kernels);
    Rulings rulings;
    const double match = micros(200,
                                [&] {
                                  for (int i = 0; i < 10; ++i) clauses.evaluate(view, rulings);
                                }) /
                         10;
    uint64_t key[8] = {};
    ASSERT_LE(conditions.key_words(), 8u);
    const double fold = micros(100,
                               [&] {
                                 for (int i = 0; i < 100; ++i) conditions.fold(view, key);
                               }) /
                        100;
    std::printf(
        "1000 rules, %d thresholds a field, %zu KB: read %.1f ms, check and compile for 4 ops %.2f "
        "ms,"
        " compile for one %.2f ms, match %.2f us (%zu tests), fold %.1f ns (%u words)\n",
        distinct, text.size() / 1000, parse / 1000, check / 1000, compile / 1000, match,
        conditions.tests().size(), fold * 1000, conditions.key_words());
    EXPECT_EQ(rulings.kernels[0].chosen, kNoClause);
    // The key has at most a bit per distinct test, however many rules there are.
    EXPECT_EQ(conditions.key_words(), 1u);
  }
}

}  // namespace
}  // namespace yard::policy
