// SPDX-License-Identifier: Apache-2.0
// Tests invalid files and their problems, and valid files that look invalid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "policy/testing_config.h"

namespace yard::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> problems(const std::string& text, const Known& known) {
  return problems_of(parse_config_from(text, "rules.yaml", opener({})), known);
}

TEST(ConfigErrors, AShadowedRuleIsFoundAmongAThousand) {
  std::string text = "version: \"1.0\"\ndispatch_rules:\n";
  const auto add = [&](int tenant, int length) {
    text += "  - {operation: attention.causal, kernel: torch_sdpa, conditions: {tenant: t" +
            std::to_string(tenant) + ", seq_len_gte: " + std::to_string(length) + "}}\n";
  };
  for (int i = 0; i < 1000; ++i) add(i, 16);
  add(3, 32);
  add(4, 8);  // wider than the one before it
  EXPECT_THAT(problems(text, usual_ops()),
              ElementsAre(HasSubstr("dispatch_rules[1000]: dispatch_rules[3] comes first")));
}

// testing_wrong_files.txt: `@ name`, the file, then each of its problems after `> `.
TEST(ConfigErrors, EveryWrongFileIsAnsweredInFull) {
  std::ifstream in(std::string(YARD_SOURCE_DIR) + "/src/policy/testing_wrong_files.txt");
  ASSERT_TRUE(in.is_open());
  const TestKnown known = usual_ops();
  std::string line, name, text;
  std::vector<std::string> expected;
  int files = 0;
  const auto check = [&] {
    if (name.empty()) return;
    ++files;
    EXPECT_FALSE(expected.empty()) << name;
    EXPECT_EQ(problems(text, known), expected) << name << "\n" << text;
    text.clear();
    expected.clear();
  };
  while (std::getline(in, line)) {
    if (line.starts_with("@ ")) {
      check();
      name = line.substr(2);
    } else if (line.starts_with("> ")) {
      expected.push_back(line.substr(2));
    } else if (!name.empty()) {
      text += line + "\n";
    }
  }
  check();
  EXPECT_GE(files, 60);
}

TEST(ConfigErrors, TheExampleHasNone) {
  ConfigReading r = read_config(std::string(YARD_SOURCE_DIR) + "/examples/rules.yaml");
  EXPECT_EQ(r.config.dispatch_rules.size(), 2u);
  EXPECT_THAT(problems_of(std::move(r), usual_ops()), ElementsAre());
}

TEST(ConfigErrors, WhatIsOptionalMayBeMissing) {
  const TestKnown known = usual_ops();
  EXPECT_THAT(problems(R"(version: 1
defaults: {fallback_policy: [{kernel: later, optional: true}]}
dispatch_rules:
- {operation: later_op, kernel: k, optional: true}
- {operation: rms_norm, kernel: later, optional: true}
kernel_locks: {later_op: {kernel: k, optional: true}, rms_norm: {kernel: later, optional: true}}
kernel_denies: [{kernel: later_too, optional: true}]
fallback_chains: {rms_norm: [{kernel: later, optional: yes}, default.simd]}
)",
                       known),
              ElementsAre());
}

TEST(ConfigErrors, FieldsOfAnAnnouncedOpAreNotJudged) {
  TestKnown known = usual_ops();
  known.announce("conv", {"acme.conv"});
  EXPECT_THAT(problems("version: 1\ndispatch_rules:\n- {operation: conv, kernel: acme.conv, "
                       "conditions: {channels_gte: 3}}\n",
                       known),
              ElementsAre());
}

TEST(ConfigErrors, AFieldThatSomeOpsOfAPatternLackIsFine) {
  EXPECT_THAT(problems("version: 1\ndispatch_rules:\n- {operation: \"*\", kernel: reference.cpp, "
                       "conditions: {hidden_gte: 3}}\n",
                       usual_ops()),
              ElementsAre());
}

TEST(ConfigErrors, ConfigsMadeInCodeAreCheckedAsWell) {
  Config c;
  c.dispatch_rules.emplace_back();
  DispatchRule r;
  r.operation = "rms_norm";
  r.kernel = "default.smid";
  r.conditions.push_back({"rows_gte", {{"many", false}}, false, {}});
  c.dispatch_rules.push_back(r);
  std::vector<std::string> lines;
  for (const ConfigProblem& p : check_config(c, usual_ops())) lines.push_back(to_string(p));
  EXPECT_THAT(lines, ElementsAre("configuration: error: dispatch_rules[0]: an op or a kernel is "
                                 "missing; expected both",
                                 "configuration: error: dispatch_rules[1].kernel: rms_norm has no "
                                 "kernel called 'default.smid'; did you mean 'default.simd'?",
                                 "configuration: error: dispatch_rules[1].conditions.rows_gte: "
                                 "expected a whole number, got many"));
}

TEST(ConfigErrors, VeryManyProblemsAreCut) {
  std::string text = "version: 1\n";
  for (int i = 0; i < 1000; ++i) text += "zebra" + std::to_string(i) + ": 1\n";
  const auto lines = problems(text, usual_ops());
  ASSERT_EQ(lines.size(), 201u);
  // The note about the limit comes last and is not an error, so 200 errors are reported.
  EXPECT_EQ(lines.back(), "rules.yaml: warning: there are more problems; fix these first");
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& l) { return l.find(": error: ") != l.npos; }),
            200);
}

TEST(ConfigErrors, VeryManyWarningsAreNoError) {
  std::string text = "version: 1\ndispatch_rules:\n";
  for (int i = 0; i < 300; ++i)
    text += "  - {operation: 'nothing" + std::to_string(i) + "*', kernel: default.simd}\n";
  const auto lines = problems(text, usual_ops());
  ASSERT_EQ(lines.size(), 201u);
  for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr(": warning: "));
}

TEST(ConfigErrors, OfVeryManyProblemsErrorsAreKeptBeforeWarnings) {
  std::string text = "version: 1\ndispatch_rules:\n";
  for (int i = 0; i < 300; ++i)
    text += "  - {operation: 'nothing" + std::to_string(i) + "*', kernel: default.simd}\n";
  text += "  - {operation: rms_norm, kernel: default.smid}\n";
  const auto lines = problems(text, usual_ops());
  ASSERT_EQ(lines.size(), 201u);
  EXPECT_THAT(lines.back(), HasSubstr("there are more problems"));
  EXPECT_THAT(lines[199], HasSubstr("rms_norm has no kernel called 'default.smid'"));
}

TEST(ConfigErrors, AnUnknownOpHidesNothingElse) {
  // The conditions are checked against the op that was probably meant.
  EXPECT_THAT(
      problems("version: 1\ndispatch_rules:\n"
               "  - operation: rms_nrm\n"
               "    conditions: {rows_gte: abc, dtype: zzz, row: 1}\n"
               "    kernel: default.smid\n",
               usual_ops()),
      ElementsAre(HasSubstr("3:16: error: dispatch_rules[0].operation: no op is called"),
                  HasSubstr("conditions.rows_gte: expected a whole number, got abc"),
                  HasSubstr("conditions.dtype: expected a dtype as f32, bf16 or float16, got zzz"),
                  HasSubstr("conditions.row: calls of rms_norm have no such field; did "
                            "you mean 'rows'?"),
                  HasSubstr("rms_norm has no kernel called 'default.smid'; did you mean "
                            "'default.simd'?")));
  // An op that a plugin may bring is checked when it is registered.
  EXPECT_THAT(problems("version: 1\ndispatch_rules: [{operation: rms_nrm, optional: true, "
                       "conditions: {rows_gte: abc}, kernel: x}]\n",
                       usual_ops()),
              ElementsAre());
}

}  // namespace
}  // namespace yard::policy
