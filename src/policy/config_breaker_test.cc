// SPDX-License-Identifier: Apache-2.0
// settings.breaker of a rule file, as the settings of breakers.
#include <gtest/gtest.h>
#include <yard/config.h>

#include "policy/check.h"
#include "policy/testing_config.h"

namespace yard::policy {
namespace {

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
