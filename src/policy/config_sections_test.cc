// SPDX-License-Identifier: Apache-2.0
// Tests the sections canary and settings.breaker of a rule file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/config.h>

#include <limits>

#include "policy/check.h"
#include "policy/testing_config.h"

namespace yard::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Config canary_file(const std::string& section) {
  const ConfigReading r =
      parse_config_from("version: 1\ncanary: " + section, "/etc/rules.yaml", opener({}));
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return r.config;
}

TEST(ConfigCanary, OneMapOrAListOfThem) {
  const Config one = canary_file("{op: rms_norm, one_in: 100}");
  ASSERT_EQ(one.canary.size(), 1u);
  const CanaryRule& r = one.canary[0];
  EXPECT_EQ(r.op, "rms_norm");
  EXPECT_EQ(r.kernel, "*");
  EXPECT_EQ(r.against, "reference");
  EXPECT_EQ(r.check, CanaryRule::Check::kValues);
  EXPECT_FALSE(r.tolerance.rtol || r.tolerance.atol);
  EXPECT_EQ(r.dump_most, 16);
  EXPECT_EQ(canary_file("[{op: rms_norm, one_in: 100}]"), one);
}

TEST(ConfigCanary, EverythingIsReadPrintedAndReadAgain) {
  const Config c = canary_file(
      "[{op: 'rms_*', kernel: default.*, one_in: 7, against: vendor.onednn, "
      "tolerance: {rtol: 1e-3, atol: 0.5}, dump: dumps, dump_most: 3, optional: true}, "
      "{op: rotary, one_in: 1, check: finite}]");
  const CanaryRule& r = c.canary.at(0);
  EXPECT_EQ(r.kernel, "default.*");
  EXPECT_EQ(r.one_in, 7);
  EXPECT_EQ(r.against, "vendor.onednn");
  EXPECT_EQ(r.tolerance.rtol, 1e-3);
  EXPECT_EQ(r.tolerance.atol, 0.5);
  EXPECT_EQ(r.dump, "/etc/dumps");  // relative to the folder of the file
  EXPECT_EQ(r.dump_most, 3);
  EXPECT_TRUE(r.optional);
  EXPECT_EQ(c.canary.at(1).check, CanaryRule::Check::kFinite);
  const ConfigReading again = parse_config_from(to_yaml(c), "again.yaml", opener({}));
  EXPECT_TRUE(again.ok());
  EXPECT_EQ(again.config, c) << to_yaml(c);
}

TEST(ConfigCanary, DifferencesAreToldRuleByRule) {
  const Config a = canary_file("{op: rms_norm, one_in: 100}");
  const Config b = canary_file("[{op: rms_norm, one_in: 50}, {op: rotary, one_in: 1}]");
  const std::vector<ConfigChange> none = diff(a, a), more = diff(Config(), a), other = diff(a, b);
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(more, ElementsAre(ConfigChange{"canary[0]", "", "{op: rms_norm, one_in: 100}"}));
  EXPECT_EQ(other.size(), 3u);
}

TEST(ConfigCanary, RulesOfIncludedFilesComeAfterTheOwn) {
  const ConfigReading r =
      parse_config_from("version: 1\ninclude: more.yaml\ncanary: {op: rms_norm, one_in: 2}",
                        "rules.yaml", opener({{"more.yaml", "canary: [{op: '*', one_in: 3}]"}}));
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r.config.canary.size(), 2u);
  EXPECT_EQ(r.config.canary[0].one_in, 2);
  EXPECT_EQ(r.config.canary[1].op, "*");
}

TEST(ConfigCanary, RulesMadeInCodeAreChecked) {
  const auto problem = [](const CanaryRule& wrong) {
    Config c;
    c.canary.push_back(wrong);
    const std::vector<ConfigProblem> problems = check_config(c, usual_ops());
    return problems.size() == 1 ? to_string(problems[0]) : std::to_string(problems.size());
  };
  EXPECT_THAT(problem({}), HasSubstr("canary[0].op: missing; expected the name of an op"));
  EXPECT_THAT(problem({.op = "rms_norm", .one_in = 0}), HasSubstr("canary[0].one_in: expected a"));
  EXPECT_THAT(problem({.op = "rms_norm", .dump_most = 0}),
              HasSubstr("canary[0].dump_most: expected a whole number"));
  EXPECT_THAT(problem({.op = "rms_norm", .tolerance = {.rtol = -1}}),
              HasSubstr("canary[0].tolerance.rtol: expected a number from 0 to 1000000, got -1"));
}

TEST(ConfigNumbers, NumbersInCodeThatAreNotFiniteAreErrorsWithPathExpectationAndValue) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kInf = std::numeric_limits<double>::infinity();
  const auto problem = [](const auto& set) {
    Config c;
    set(c);
    std::string text;
    for (const ConfigProblem& p : check_config(c, usual_ops())) text += to_string(p) + "\n";
    return text;
  };
  const auto score = [](double ScoreRule::*member, double value) {
    return [=](Config& c) {
      c.score.resize(2);
      for (ScoreRule& s : c.score) s.kernel = "*";
      c.score[1].*member = value;
    };
  };
  EXPECT_EQ(problem(score(&ScoreRule::add, kNan)),
            "configuration: error: score[1].add: expected a number from -1000000 to 1000000, got "
            "nan\n");
  EXPECT_THAT(problem(score(&ScoreRule::add, -kInf)), HasSubstr("score[1].add: expected"));
  EXPECT_THAT(problem(score(&ScoreRule::multiply, kInf)),
              HasSubstr("score[1].multiply: expected a number from 0 to 1000000, got inf"));
  EXPECT_THAT(
      problem([=](Config& c) { c.canary = {{.op = "rms_norm", .tolerance = {.atol = kNan}}}; }),
      HasSubstr("canary[0].tolerance.atol: expected a number from 0 to 1000000, got nan"));
  EXPECT_THAT(problem([=](Config& c) { c.settings.breaker.cooldown_growth = kNan; }),
              HasSubstr("settings.breaker.cooldown_growth: expected a number from 1 to 100, got "
                        "nan"));
  for (double RolloutRule::*member : {&RolloutRule::percent, &RolloutRule::hold_s,
                                      &RolloutRule::max_error_rate, &RolloutRule::max_slowdown})
    for (const double value : {kNan, kInf, -kInf})
      EXPECT_THAT(problem([&](Config& c) { c.rollout.emplace().*member = value; }),
                  HasSubstr("error: rollout."));
  EXPECT_THAT(problem([](Config& c) {
                c.dispatch_rules.resize(1);
                c.dispatch_rules[0].operation = "rms_norm";
                c.dispatch_rules[0].kernel = "default.simd";
                c.dispatch_rules[0].conditions = {{"eps_lt", {{".inf", false}}, false, {}}};
              }),
              HasSubstr("dispatch_rules[0].conditions.eps_lt: expected a finite number, got .inf"));
}

TEST(ConfigNumbers, NumbersInFilesThatAreNotFiniteAreErrors) {
  for (const char* text :
       {"score: [{kernel: '*', add: %}]", "score: [{kernel: '*', multiply: %}]",
        "canary: {op: rms_norm, one_in: 1, tolerance: {rtol: %}}", "rollout: {percent: %}",
        "rollout: {hold_s: %}", "rollout: {max_error_rate: %}", "rollout: {max_slowdown: %}",
        "settings: {breaker: {cooldown_growth: %}}", "settings: {breaker: {cooldown: %}}",
        "settings: {cache: {size: %}}",
        "dispatch_rules: [{operation: rms_norm, kernel: default.simd, conditions: {eps_lt: %}}]",
        "dispatch_rules: [{operation: rms_norm, kernel: default.simd, conditions: {eps: [1, %]}}]"})
    for (const std::string value :
         {".nan", ".NaN", "nan", ".inf", "-.inf", "inf", "1e999", "-1e999"}) {
      std::string file = "version: 1\n" + std::string(text);
      file.replace(file.find('%'), 1, value);
      ConfigReading r = parse_config_from(file, "rules.yaml", opener({}));
      check_reading(r, usual_ops(), nullptr);
      ASSERT_EQ(r.problems.size(), 1u) << file;
      EXPECT_THAT(to_string(r.problems[0]), HasSubstr("expected ")) << file;
      EXPECT_THAT(to_string(r.problems[0]), HasSubstr("got " + value)) << file;
    }
}

Config breaker_file(const std::string& settings) {
  const ConfigReading r = parse_config_from("version: 1\nsettings: {breaker: {" + settings + "}}",
                                            "rules.yaml", opener({}));
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return r.config;
}

TEST(ConfigBreaker, SettingsThatAreNotStatedAreThoseGiven) {
  BreakerSettings base;
  base.failure_threshold = 9;
  EXPECT_EQ(breaker_of(breaker_file(""), base), base);
  const Config c = breaker_file("enabled: off, failure_percent: 100");
  base.enabled = false;
  base.failure_percent = 100;
  EXPECT_EQ(breaker_of(c, base), base);
}

TEST(ConfigBreaker, SettingsMadeInCodeAreChecked) {
  Config c;
  c.settings.breaker.failure_threshold = int64_t{1} << 32;  // neither 0 nor valid
  EXPECT_EQ(breaker_of(c).failure_threshold, UINT32_MAX);
  const std::vector<ConfigProblem> problems = check_config(c, usual_ops());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(
      to_string(problems[0]),
      "configuration: error: settings.breaker.failure_threshold: expected a whole number from 1 to "
      "10000, got 4294967296");
}

}  // namespace
}  // namespace yard::policy
