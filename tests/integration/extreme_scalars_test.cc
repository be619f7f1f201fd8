// SPDX-License-Identifier: Apache-2.0
// The smallest integer is an ordinary value: rules and limits see it, and it has its own class.
#include <gtest/gtest.h>

#include <climits>
#include <iterator>
#include <utility>

#include "testing.h"

namespace yard::testing {
namespace {

class ExtremeScalars : public ::testing::Test {
 protected:
  ExtremeScalars() : bare_("shift(out!: T[d], x: T[d], n: int = 1)") {}
  void add(std::vector<yard_limit_t> limits = {}) {
    limits_ = std::move(limits);
    yard_kernel_t a = kernel_of("shift", "default.a", 1, 200);
    a.limits = limits_.data(), a.limit_count = static_cast<uint32_t>(limits_.size());
    bare_.add(a).or_throw();
    bare_.add(kernel_of("shift", "default.b", 2, 100)).or_throw();
  }
  void rule(const std::string& condition) {
    bare_.runtime.rules().load("").or_throw();  // drops all plans
    const ConfigReading r = parse_config(
        "version: \"1.0\"\ndispatch_rules:\n"
        "  - {operation: shift, conditions: {" +
            condition + "}, kernel: default.b}\n",
        "rules.yaml");
    ASSERT_TRUE(r.ok()) << to_string(r.problems[0]);
    bare_.runtime.rules().set(r.config).or_throw();
  }
  // Returns the kernel that ran, after checking that a fresh selection agrees.
  intptr_t ran(int64_t n) {
    Floats out(4), x(4);
    t_ran = 0;
    bare_.runtime.call("shift", {out.view, x.view, {"n", n}}).or_throw();
    const intptr_t cached = t_ran;
    Options fresh;
    fresh.cache = false;
    bare_.runtime.call("shift", {out.view, x.view, {"n", n}}, fresh).or_throw();
    EXPECT_EQ(cached, t_ran) << "n = " << n;
    return cached;
  }

  Bare bare_;
  std::vector<yard_limit_t> limits_;
};

TEST_F(ExtremeScalars, RulesSeeTheSmallestInteger) {
  add();
  for (const bool smallest_first : {true, false}) {
    rule("n_lt: 10");
    EXPECT_EQ(ran(smallest_first ? INT64_MIN : 5), 2);
    EXPECT_EQ(ran(smallest_first ? 5 : INT64_MIN), 2);
    EXPECT_EQ(ran(20), 1);
    EXPECT_EQ(ran(INT64_MAX), 1);
  }
  rule("n: -9223372036854775808");
  EXPECT_EQ(ran(INT64_MIN), 2);
  EXPECT_EQ(ran(INT64_MIN + 1), 1);
  rule("n_gt: -9223372036854775808");
  EXPECT_EQ(ran(INT64_MIN + 1), 2);
  EXPECT_EQ(ran(INT64_MIN), 1);
}

TEST_F(ExtremeScalars, LimitsHoldForTheSmallestInteger) {
  add({plugin::at_least("n", 0)});
  EXPECT_EQ(ran(INT64_MIN), 2);
  EXPECT_EQ(ran(-1), 2);
  EXPECT_EQ(ran(3), 1);
  EXPECT_EQ(ran(INT64_MAX), 1);
}

TEST_F(ExtremeScalars, LimitsSeeItAsItIs) {
  add({plugin::multiple_of("n", 8)});
  EXPECT_EQ(ran(INT64_MIN), 1);
  EXPECT_EQ(ran(INT64_MIN + 1), 2);
  EXPECT_EQ(ran(INT64_MAX), 2);
}

}  // namespace
}  // namespace yard::testing
