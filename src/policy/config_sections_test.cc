// SPDX-License-Identifier: Apache-2.0
// The sections canary and settings.breaker of a rule file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/config.h>

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
  EXPECT_EQ(r.check, CanaryCheck::kValues);
  EXPECT_FALSE(r.rtol || r.atol);
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
  EXPECT_EQ(r.rtol, 1e-3);
  EXPECT_EQ(r.atol, 0.5);
  EXPECT_EQ(r.dump, "/etc/dumps");  // seen from the folder of the file
  EXPECT_EQ(r.dump_most, 3);
  EXPECT_TRUE(r.optional);
  EXPECT_EQ(c.canary.at(1).check, CanaryCheck::kFinite);
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
  for (const CanaryRule& wrong :
       {CanaryRule{}, CanaryRule{.op = "rms_norm", .one_in = 0},
        CanaryRule{.op = "rms_norm", .dump_most = 0}, CanaryRule{.op = "rms_norm", .rtol = -1}}) {
    Config c;
    c.canary.push_back(wrong);
    const std::vector<ConfigProblem> problems = check_config(c, usual_ops());
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_THAT(to_string(problems[0]), HasSubstr("canary[0]: an op is missing"));
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
  const Config c = breaker_file("enabled: off, dry_run: 100");
  base.enabled = false;
  base.dry_run = 100;
  EXPECT_EQ(breaker_of(c, base), base);
}

TEST(ConfigBreaker, SettingsMadeInCodeAreChecked) {
  Config c;
  c.settings.breaker.failure_threshold = int64_t{1} << 32;  // not 0, and not right either
  EXPECT_EQ(breaker_of(c).failure_threshold, UINT32_MAX);
  const std::vector<ConfigProblem> problems = check_config(c, usual_ops());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(
      to_string(problems[0]),
      "configuration: error: settings.breaker: failure_threshold is 4294967295; expected from 1 to "
      "10000");
}

}  // namespace
}  // namespace yard::policy
