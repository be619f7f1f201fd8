// SPDX-License-Identifier: Apache-2.0
// Tests that sample calls fit their op, and match and just miss every rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "op/call.h"
#include "op/testing.h"
#include "policy/clauses.h"
#include "verify/generator.h"

namespace yard::verification {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kAttend =
    "attend(out!: T[seq_len, heads, head_dim], q: T[seq_len, heads, head_dim], mask?: T[seq_len], "
    "scale: float = 1.0, causal: bool = false, kind: enum{full, local} = full, note: string = "
    "\"\", "
    "window: int = 0) where T in {f32, bf16}, head_dim % 8 == 0, window <= seq_len";

// Returns the conditions of one rule for every op.
Config rule(const std::string& conditions) {
  ConfigReading r = parse_config(
      "version: '1.0'\ndispatch_rules: [{operation: '*', kernel: '*', conditions: " + conditions +
          "}]\n",
      "rules.yaml");
  EXPECT_TRUE(r.ok()) << to_string(r.problems.at(0));
  return r.config;
}

std::vector<std::string> samples(const op::Program& p, const std::vector<Config>& configs,
                                 size_t limit = 2000) {
  return sample_calls(p, nullptr, configs, limit);
}

// Returns for how many calls the rule holds, and for how many it does not.
std::pair<size_t, size_t> sides(const op::Program& p, const Config& config) {
  const policy::OpRules rules = policy::compile_rules(config, p);
  std::pair<size_t, size_t> to;
  for (const std::string& text : samples(p, {config})) {
    const auto call = op::Call::from_spec(p, op::parse_call_spec(text).value()).value();
    const auto matches = rules.match({call.args(), call.flags(), call.device(), &call.labels()});
    ++(matches.empty() ? to.second : to.first);
  }
  return to;
}

TEST(Samples, FitAndReadBack) {
  for (const char* schema : op::kBuiltIn) {
    const op::Program p = op::Program::compile(schema).value();
    const auto texts = samples(p, {rule("{batch_size_gte: 32, dtype: bf16, tenant: a}")});
    EXPECT_GE(texts.size(), 8u) << schema;
    EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
    for (const std::string& text : texts) {
      const auto call = op::Call::from_spec(p, op::parse_call_spec(text).value());
      ASSERT_TRUE(call.ok()) << text;
      EXPECT_EQ(op::to_string(call->to_spec(p)), text);
    }
  }
}

TEST(Samples, HaveEveryDtypeAndLayoutWithoutRules) {
  const op::Program p = op::Program::compile(kAttend).value();
  const auto texts = samples(p, {});
  EXPECT_THAT(texts, Contains(HasSubstr("bf16[")));
  EXPECT_THAT(texts, Contains(HasSubstr("f32[")));
  EXPECT_THAT(texts, Contains(HasSubstr(";")));
  EXPECT_THAT(texts, Contains(HasSubstr("+deterministic")));
  EXPECT_THAT(texts, Each(HasSubstr("attend(")));
}

TEST(Samples, GiveWhatDtypesRequireAndInputsDoNotDetermine) {
  const op::Program linear = op::Program::compile(op::kLinear).value();
  EXPECT_THAT(samples(linear, {}), Contains(HasSubstr("i8[128,128], f32[128]")));
  EXPECT_THAT(samples(linear, {}), Contains(Not(HasSubstr("i8["))));
  const op::Program top = op::Program::compile(op::kTopK).value();
  EXPECT_THAT(samples(top, {}), Contains(HasSubstr("ids=i64[")));
}

TEST(Samples, CoverBothSidesOfABound) {
  const op::Program p = op::Program::compile(kAttend).value();
  const auto texts = samples(p, {rule("{seq_len_gte: 512, heads: 4}")});
  for (const char* shape :
       {"[511,4,128]", "[512,4,128]", "[513,4,128]", "[512,3,128]", "[512,5,128]"})
    EXPECT_THAT(texts, Contains(HasSubstr(shape)));
}

TEST(Samples, MatchRulesOnEveryKindOfField) {
  const op::Program p = op::Program::compile(kAttend).value();
  for (const char* conditions :
       {"{seq_len_gt: 8, seq_len_lt: 64}",
        "{head_dim_ne: 128}",
        "{heads_not_in: [128, 129]}",
        "{scale_lt: 0.25}",
        "{causal: true}",
        "{kind: local}",
        "{note: quick}",
        "{window_gte: 16}",
        "{dtype: [bfloat16]}",
        "{layout: dense}",
        "{contiguous: false}",
        "{layout: strided}",
        "{deterministic: true}",
        "{tenant: acme}",
        "{phase_match: 'dec*'}",
        "{tp_size_gte: 4}",
        "{model_regex: 'llama|qwen'}",
        "{label.zone_ne: b}",
        "{mask.size_gte: 4096}",
        "{q.rank: 3}",
        "{device: 'cuda:1'}",
        "{platform: cuda}",
        "{dtype: bf16, seq_len_gte: 512, causal: true, tenant_in: [a, b]}"}) {
    const auto [held, others] = sides(p, rule(conditions));
    EXPECT_GE(held, 1u) << conditions;
    if (conditions == std::string_view("{q.rank: 3}")) continue;  // no call has another rank
    EXPECT_GE(others, 1u) << conditions;
  }
}

TEST(Samples, OmitUnsatisfiableRules) {
  const op::Program p = op::Program::compile(kAttend).value();
  const size_t plain = samples(p, {}).size();
  // Other ops' fields, multiples the schema forbids, and numbers beyond every tensor.
  EXPECT_THAT(samples(p, {rule("{cache_gte: 4}")}), SizeIs(plain));
  EXPECT_THAT(samples(p, {rule("{head_dim: 9}")}), Not(Contains(HasSubstr(",9]"))));
  EXPECT_THAT(samples(p, {rule("{seq_len_gte: 9223372036854775807}")}), SizeIs(plain));
}

TEST(Samples, AreBounded) {
  const op::Program p = op::Program::compile(kAttend).value();
  EXPECT_THAT(samples(p, {rule("{seq_len_gte: 512}")}, 3), SizeIs(3));
}

}  // namespace
}  // namespace yard::verification
