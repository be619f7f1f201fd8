// SPDX-License-Identifier: Apache-2.0
// Tests rule files in force: what they select, what they do not affect, and that an invalid file
// changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>
#include <yard/policy.h>

#include <cstdlib>
#include <fstream>

#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kSchema =
    "step(out!: T[seq_len, hidden], x: T[seq_len, hidden], by: int = 0)";

class Rules : public ::testing::Test {
 protected:
  Rules() : bare_(kSchema) {
    yard_kernel_t k[] = {kernel_of("step", "default.a", 1, 150),
                         kernel_of("step", "default.b", 2, 140),
                         kernel_of("step", "default.c", 3, 130)};
    for (const yard_kernel_t& d : k) bare_.add(d).or_throw();
  }
  Status load(const std::string& yaml) {
    ConfigReading r = parse_config(yaml, "rules.yaml");
    problems_ = r.problems;
    if (!r.ok()) return Status(Code::kInvalidArgument, to_string(r.problems[0]));
    return bare_.runtime.rules().set(r.config, &problems_);
  }
  // Returns the kernel that a call of this length runs, or -1 for an error.
  intptr_t ran(int64_t seq, int64_t by = 0, const Options& o = {}) {
    std::vector<float> data(static_cast<size_t>(seq) * 8);
    std::vector<float> out(data.size());
    t_ran = 0;
    const TensorView to(out.data(), DType::f32, {seq, 4}), x(data.data(), DType::f32, {seq, 4});
    return bare_.runtime.call("step", {to, x, {"by", by}}, o).ok() ? t_ran : -1;
  }
  Explanation explain(int64_t seq, const Options& o = {}) {
    const std::string form = "f32[" + std::to_string(seq) + ",4]";
    return bare_.runtime.explain("step(" + form + ")", o).value();
  }

  Bare bare_;
  std::vector<ConfigProblem> problems_;
};

TEST_F(Rules, ChooseByPropertiesOfTheCall) {
  load(R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {seq_len_gte: 64}, kernel: default.b, priority: 10}
  - {operation: "st*", conditions: {seq_len_gte: 256, dtype: [float32]}, kernel: default.c,
     priority: 20}
  - {operation: step, conditions: {by: 7}, kernel: default.c}
)")
      .or_throw();
  EXPECT_EQ(ran(1), 1);
  EXPECT_EQ(ran(63), 1);
  EXPECT_EQ(ran(64), 2);
  EXPECT_EQ(ran(255), 2);
  EXPECT_EQ(ran(256), 3);
  EXPECT_EQ(ran(1, 7), 3);
  EXPECT_EQ(ran(64, 7), 3);  // the default priority is 50
  EXPECT_EQ(ran(64, 8), 2);
  bare_.runtime.rules().load("").or_throw();
  EXPECT_EQ(ran(256, 7), 1);
}

TEST_F(Rules, AreExplained) {
  load(
      "version: '1.0'\ndispatch_rules:\n"
      "  - {operation: step, conditions: {seq_len_gte: 64}, kernel: default.b}\n")
      .or_throw();
  const Explanation e = explain(64);
  EXPECT_EQ(e.selected, "default.b");
  EXPECT_EQ(e.candidates[0].detail, "chosen by dispatch_rules[0] (rules.yaml:3)");
  EXPECT_EQ(e.candidates[1].detail, "dispatch_rules[0] (rules.yaml:3) chose default.b");
  EXPECT_EQ(explain(63).selected, "default.a");
}

constexpr const char* kRestricting = R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {seq_len_gte: 64}, deny: [default.a, "default.d*"]}
  - {name: their choice, operation: "s*", conditions: {tenant: acme}, allow: [default.b, default.c]}
)";

TEST_F(Rules, DenyAndAllowKernelsForTheCallsThatTheyMatch) {
  const Op<void(Out, In, int64_t)> step("step");
  const auto typed = [&](int64_t seq) {
    std::vector<float> data(static_cast<size_t>(seq) * 8);
    const TensorView to(data.data(), DType::f32, {seq, 4}),
        x(data.data() + 4 * seq, DType::f32, {seq, 4});
    t_ran = 0;
    return step.on(bare_.runtime)(to, x, 0).ok() ? t_ran : -1;
  };
  const auto bound = [&](int64_t seq) {
    std::vector<float> data(static_cast<size_t>(seq) * 8);
    const TensorView to(data.data(), DType::f32, {seq, 4}),
        x(data.data() + 4 * seq, DType::f32, {seq, 4});
    const auto handle = bind(step.on(bare_.runtime), to, x).value();
    t_ran = 0;
    return handle(to, x, 0).ok() ? t_ran : -1;
  };
  Options acme;
  acme.labels = {{"tenant", "acme"}};
  Options forced;
  forced.force = "default.a";
  load(kRestricting).or_throw();
  const auto check = [&](bool restricted) {
    for (int again = 0; again < 4; ++again) {
      EXPECT_EQ(ran(63), 1);
      EXPECT_EQ(typed(63), 1);
      EXPECT_EQ(bound(63), 1);
      for (const intptr_t got : {ran(64), typed(64), bound(64)}) EXPECT_EQ(got, restricted ? 2 : 1);
      EXPECT_EQ(ran(63, 0, acme), restricted ? 2 : 1);
      EXPECT_EQ(ran(64, 0, forced), restricted ? -1 : 1);
      const ScopedPolicy in(Scope().label("tenant", "acme"));
      EXPECT_EQ(ran(63), restricted ? 2 : 1);
      EXPECT_EQ(typed(63), restricted ? 2 : 1);
    }
  };
  check(true);
  load("version: '1.0'\n").or_throw();
  check(false);
  load(kRestricting).or_throw();
  check(true);
}

TEST_F(Rules, DenyAndAllowCountInEveryMode) {
  for (const char* mode : {"auto", "dynamic", "config", "hot_reload"}) {
    load(std::string(kRestricting) + "settings: {mode: " + mode + "}\n").or_throw();
    EXPECT_EQ(ran(63), 1) << mode;
    EXPECT_EQ(ran(64), 2) << mode;
  }
  Bare other(kSchema);
  for (const yard_kernel_t& k :
       {kernel_of("step", "default.a", 1), kernel_of("step", "default.b", 2)})
    other.add(k).or_throw();
  const ConfigReading fixed =
      parse_config(std::string(kRestricting) +
                       "static_kernel_map: {step: default.a}\nsettings: {mode: static}\n",
                   "rules.yaml");
  other.runtime.rules().set(fixed.config).or_throw();
  EXPECT_TRUE(other.runtime.resolve("step(f32[63,4])").ok());
  EXPECT_FALSE(other.runtime.resolve("step(f32[64,4])").ok());
}

TEST_F(Rules, ThatDenyOrAllowAreExplained) {
  load(kRestricting).or_throw();
  const auto rejected = [](const Explanation& e, const std::string& id) {
    for (const Candidate& c : e.candidates)
      if (c.id == id) return c.reason + ": " + c.detail;
    return std::string();
  };
  const Explanation denied = explain(64);
  EXPECT_EQ(denied.selected, "default.b");
  EXPECT_EQ(rejected(denied, "default.a"),
            "denied_kernel: dispatch_rules[0] (rules.yaml:4) denies it");
  EXPECT_THAT(denied.counterfactuals,
              ElementsAre("dispatch_rules[0] (rules.yaml:4) excluded default.a, which would have "
                          "been first"));
  Options acme;
  acme.labels = {{"tenant", "acme"}};
  const Explanation not_allowed = explain(63, acme);
  EXPECT_EQ(not_allowed.selected, "default.b");
  EXPECT_EQ(rejected(not_allowed, "default.a"),
            "not_allowed_kernel: rule 'their choice' (rules.yaml:5) does not allow it");
  EXPECT_EQ(explain(63).selected, "default.a");
}

TEST_F(Rules, HoldForKernelsThatAreRegisteredLater) {
  const yard_kernel_t zeta = kernel_of("step", "default.zeta", 9, 900);
  // An allow list of unknown ids allows no kernel yet.
  load("version: '1.0'\nkernel_allows: [default.zeta]\n").or_throw();
  EXPECT_EQ(ran(4), -1);
  bare_.add(zeta).or_throw();
  EXPECT_EQ(ran(4), 9);
  bare_.remove("step", "default.zeta").or_throw();
  bare_.runtime.rules().load("").or_throw();
  // A deny takes effect when its kernel is registered.
  load(
      "version: '1.0'\ndispatch_rules: [{operation: step, conditions: {seq_len_gte: 8}, deny: "
      "default.zeta}]\n")
      .or_throw();
  EXPECT_TRUE(problems_.size() == 1 && problems_[0].severity == Severity::kWarning);
  bare_.add(zeta).or_throw();
  EXPECT_EQ(ran(7), 9);
  EXPECT_EQ(ran(8), 1);
  // A misspelt id is an error.
  EXPECT_FALSE(load("version: '1.0'\nkernel_denies: [default.zetta]\n").ok());
  EXPECT_THAT(to_string(problems_[0]), HasSubstr("did you mean 'default.zeta'?"));
}

TEST_F(Rules, ThatLockAnOpToAKernelThatIsRegisteredLaterLeaveNoOther) {
  load("version: '1.0'\nkernel_locks: {step: default.zeta}\n").or_throw();
  EXPECT_TRUE(problems_.size() == 1 && problems_[0].severity == Severity::kWarning);
  std::vector<float> data(32);
  const TensorView to(data.data(), DType::f32, {4, 4}), x(data.data() + 16, DType::f32, {4, 4});
  EXPECT_THAT(bare_.runtime.call("step", {to, x}).to_string(),
              HasSubstr("locked_out: The op is locked to default.zeta, and no kernel of that name "
                        "is registered."));
  bare_.add(kernel_of("step", "default.zeta", 9, 900)).or_throw();
  EXPECT_EQ(ran(4), 9);
}

TEST_F(Rules, ThatNameAnUnableKernelAreSkipped) {
  yard_kernel_t d = kernel_of("step", "default.d", 4, 1);
  yard_limit_t limit{};
  limit.kind = YARD_LIMIT_MAX, limit.field = "seq_len", limit.a = 100;
  d.limits = &limit, d.limit_count = 1;
  bare_.add(d).or_throw();
  load(R"(
version: "1.0"
dispatch_rules:
  - {operation: step, kernel: default.d, priority: 20}
  - {operation: step, kernel: default.c, priority: 10}
)")
      .or_throw();
  EXPECT_EQ(ran(100), 4);
  EXPECT_EQ(ran(101), 3);
}

// A decode loop needs one plan for each side of the rule, not one for each length.
TEST_F(Rules, DistinguishOnlyWhatTheyRead) {
  load(R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {seq_len_gt: 512}, kernel: default.b}
)")
      .or_throw();
  for (int64_t seq = 1; seq <= 2048; ++seq) ASSERT_EQ(ran(seq), seq > 512 ? 2 : 1) << seq;
  EXPECT_EQ(bare_.runtime.stats(false).plans, 2u);
}

TEST_F(Rules, ReadLabelsOfProcessScopeAndCall) {
  load(R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {tenant: blue}, kernel: default.b, priority: 9}
  - {operation: step, conditions: {label.tier_in: [gold, silver]}, kernel: default.c, priority: 8}
)")
      .or_throw();
  EXPECT_EQ(ran(4), 1);
  {
    const ScopedPolicy in(Scope().label("tenant", "blue"));
    EXPECT_EQ(ran(4), 2);
    EXPECT_EQ(ran(4), 2);
    Options red;
    red.labels["tenant"] = "red";
    EXPECT_EQ(ran(4, 0, red), 1);
    EXPECT_EQ(explain(4).selected, "default.b");
    EXPECT_EQ(explain(4, red).selected, "default.a");
  }
  EXPECT_EQ(ran(4), 1);
  bare_.runtime.rules().set_labels({{"tier", "gold"}}).or_throw();
  EXPECT_EQ(ran(4), 3);
  const ScopedPolicy in(Scope().label("tier", "tin"));
  EXPECT_EQ(ran(4), 1);
}

TEST_F(Rules, AdjustScores) {
  load(R"(
version: "1.0"
score:
  - {kernel: default.c, add: 25, conditions: {seq_len_gte: 10}}
  - {kernel: "default.*", multiply: 0.5, conditions: {seq_len_gte: 100}}
  - {kernel: default.b, multiply: 9, conditions: {seq_len_gte: 100}}
)")
      .or_throw();
  EXPECT_EQ(ran(9), 1);
  EXPECT_EQ(ran(10), 3);
  EXPECT_EQ(ran(100), 2);
  EXPECT_THAT(explain(10).candidates[1].detail, HasSubstr("priority 150 against 155"));
}

TEST_F(Rules, ScoresThatGrowWithoutEndStayNumbers) {
  std::string file = "version: 1\nscore:\n";
  for (int i = 0; i < 60; ++i) file += "  - {kernel: default.b, multiply: 1e6}\n";
  load(file).or_throw();
  EXPECT_EQ(ran(4), 2);
  load(file + "  - {kernel: default.b, multiply: 0}\n").or_throw();
  EXPECT_EQ(ran(4), 1);
  for (const Candidate& c : explain(4).candidates)
    EXPECT_TRUE(c.id != "default.b" || c.adjusted_priority == 0) << c.adjusted_priority;
}

TEST_F(Rules, SetTheFallbackOrder) {
  load(R"(
version: "1.0"
defaults: {fallback_policy: default.c}
)")
      .or_throw();
  EXPECT_THAT(bare_.runtime.resolve("step(f32[4,4])").value().fallbacks,
              ElementsAre("default.c", "default.b"));
  load(R"(
version: "1.0"
defaults: {fallback_policy: default.c}
fallback_chains: {step: [default.a, default.b]}
)")
      .or_throw();
  const Resolution r = bare_.runtime.resolve("step(f32[4,4])").value();
  EXPECT_EQ(r.kernel, "default.a");
  EXPECT_THAT(r.fallbacks, ElementsAre("default.b", "default.c"));
}

TEST_F(Rules, LocksDeniesAndAllowsApply) {
  load("version: '1.0'\nkernel_locks: {step: default.c}\n").or_throw();
  EXPECT_EQ(explain(4).selected, "default.c");
  load("version: '1.0'\nkernel_locks: {step: default.c}\nkernel_denies: ['*.c']\n").or_throw();
  EXPECT_EQ(ran(4), -1);  // a lock does not bypass a deny
  load("version: '1.0'\nkernel_allows: ['*.b']\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  // The policy of the process overrides the file.
  Policy p;
  p.allow_kernels = {"*.c"};
  bare_.runtime.set_policy(p).or_throw();
  EXPECT_EQ(ran(4), 3);
}

TEST_F(Rules, MapOpsInStaticModeAndInAuto) {
  Options fixed;
  fixed.mode = Mode::kStatic;
  EXPECT_EQ(ran(4, 0, fixed), -1);
  load(
      "version: '1.0'\nstatic_kernel_map: {step: default.b}\n"
      "dispatch_rules: [{operation: step, kernel: default.c}]\n")
      .or_throw();
  EXPECT_EQ(ran(4), 2);  // mode auto uses the static map where it has an entry
  EXPECT_EQ(ran(4, 0, fixed), 2);
  Options config;
  config.mode = Mode::kConfig;
  ResultRecord record;
  config.result = fixed.result = &record;
  EXPECT_EQ(ran(4, 0, config), 3);
  EXPECT_EQ(record.mode, Mode::kConfig);
  EXPECT_EQ(ran(4, 0, fixed), 2);
  EXPECT_EQ(record.mode, Mode::kStatic);
  Options dynamic;
  dynamic.mode = Mode::kDynamic;
  EXPECT_EQ(ran(4, 0, dynamic), 1);
  load("version: '1.0'\nstatic_kernel_map: {step: default.b}\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_THAT(bare_.runtime.resolve("step(f32[4,4])").value().fallbacks, SizeIs(2));
  EXPECT_THAT(bare_.runtime.resolve("step(f32[4,4])", fixed).value().fallbacks, SizeIs(0));
}

TEST_F(Rules, ModesAreSettingsToo) {
  load("version: '1.0'\nsettings: {mode: static}\n").or_throw();
  std::vector<float> x(4), y(4);
  EXPECT_EQ(bare_.runtime.call("step", {view(y, {1, 4}), view(x, {1, 4})}).code(), Code::kUnmapped);
  load(
      "version: '1.0'\nsettings: {mode: static, modes: {step: dynamic}}\n"
      "dispatch_rules: [{operation: step, kernel: default.c}]\n")
      .or_throw();
  EXPECT_EQ(ran(4), 1);
}

TEST_F(Rules, SettingsOfTheCacheApply) {
  load("version: '1.0'\nsettings: {cache: {enabled: false}}\n").or_throw();
  EXPECT_EQ(ran(4), 1);
  EXPECT_EQ(ran(4), 1);
  EXPECT_EQ(bare_.runtime.stats(false).plans, 0u);
  load(
      "version: '1.0'\nsettings: {cache: {size: 8}}\ndispatch_rules:\n"
      "  - {operation: step, conditions: {seq_len_in: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}, "
      "kernel: default.b}\n")
      .or_throw();
  for (int64_t seq = 1; seq <= 30; ++seq) EXPECT_EQ(ran(seq), seq <= 12 ? 2 : 1);
  EXPECT_LE(bare_.runtime.stats(false).plans, 8u);
}

TEST_F(Rules, LimitTheFallbacks) {
  const auto tried = [&] {
    ResultRecord record;
    Options o;
    o.result = &record;
    std::vector<float> x(4), y(4);
    bare_.runtime.call("step", {view(y, {1, 4}), view(x, {1, 4})}, o).ignore();
    return record.attempts;
  };
  const auto decline = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
    return YARD_DECLINED;
  };
  for (const char* id : {"default.a", "default.b", "default.c"}) {
    Changes c;
    yard_kernel_t k = kernel_of("step", id, 1);
    k.run = decline;
    bare_.runtime.apply(std::move(c.replace_kernel(k))).or_throw();
  }
  EXPECT_EQ(tried(), 3);
  load("version: '1.0'\nsettings: {max_fallback_attempts: 1}\n").or_throw();
  EXPECT_EQ(tried(), 2);
  load("version: '1.0'\nsettings: {max_fallback_attempts: 0}\n").or_throw();
  EXPECT_EQ(tried(), 1);
}

TEST_F(Rules, ThatAreInvalidChangeNothing) {
  load("version: '1.0'\nkernel_locks: {step: default.b}\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_FALSE(load(R"(
version: "1.0"
dispatch_rules:
  - {operation: step, conditions: {seq_len_gte: 64}, kernel: default.x}
  - {operation: stepp, kernel: default.a}
)")
                   .ok());
  ASSERT_THAT(problems_, SizeIs(2));
  EXPECT_THAT(to_string(problems_[0]), HasSubstr("dispatch_rules[0].kernel"));
  EXPECT_THAT(to_string(problems_[1]), HasSubstr("did you mean 'step'"));
  EXPECT_EQ(ran(4), 2);
  EXPECT_THAT(bare_.runtime.problems(), SizeIs(2));
  EXPECT_EQ(bare_.runtime.rules().config().kernel_locks.size(), 1u);
}

// vllm-plugin-FL silently ignores a missing configuration file.
TEST(PeersDefects, AMissingConfigurationFileIsReported) {
  Runtime runtime(RuntimeSettings{.environment = false, .config = "/nowhere/rules.yaml"});
  ASSERT_THAT(runtime.problems(), SizeIs(1));
  EXPECT_THAT(runtime.problems()[0].message, HasSubstr("/nowhere/rules.yaml"));
  EXPECT_FALSE(runtime.rules().load("/nowhere/rules.yaml").ok());
  ::setenv("YARD_CONFIG", "/nowhere/else.yaml", 1);
  Runtime named;
  ::unsetenv("YARD_CONFIG");
  ASSERT_THAT(named.problems(), SizeIs(1));
  EXPECT_THAT(named.problems()[0].message, HasSubstr("/nowhere/else.yaml"));
}

TEST_F(Rules, ApplyToOpsThatAreRegisteredLater) {
  load(
      "version: '1.0'\ndispatch_rules: [{operation: later, kernel: default.y, optional: true, "
      "conditions: {n_gte: 8}}]\n")
      .or_throw();
  Changes c;
  c.add_op(op_of("later(out!: T[n], x: T[n])"));
  c.add_kernel(kernel_of("later", "default.x", 5, 900))
      .add_kernel(kernel_of("later", "default.y", 6));
  bare_.runtime.apply(std::move(c)).or_throw();
  EXPECT_EQ(bare_.runtime.resolve("later(f32[7])").value().kernel, "default.x");
  EXPECT_EQ(bare_.runtime.resolve("later(f32[8])").value().kernel, "default.y");
}

TEST_F(Rules, OnOpsThatAreRegisteredLaterAreCheckedThen) {
  load(
      "version: '1.0'\ndispatch_rules:\n  - {operation: later, kernel: default.y, optional: true, "
      "conditions: {nn_gte: 8}}\n  - {operation: 'late*', kernel: default.y, optional: true, "
      "conditions: {n_gte: abc}}\n")
      .or_throw();
  const auto told = [&] {
    std::vector<std::string> to;
    for (const Runtime::Problem& p : bare_.runtime.problems())
      if (p.error) to.push_back(p.message);
    return to;
  };
  EXPECT_THAT(told(), SizeIs(0));
  Changes other;
  other.add_op(op_of("other(out!: T[n], x: T[n])"));
  bare_.runtime.apply(std::move(other)).or_throw();
  EXPECT_THAT(told(), SizeIs(0));
  std::vector<std::string> logged;
  set_log_sink([&](const LogMessage& m) {
    if (m.logger == "policy" && m.level == LogLevel::kError) logged.emplace_back(m.text);
  });
  Changes c;
  c.add_op(op_of("later(out!: T[n], x: T[n])")).add_kernel(kernel_of("later", "default.y", 6));
  bare_.runtime.apply(std::move(c)).or_throw();
  set_log_sink({});
  const auto both = ElementsAre(
      HasSubstr("rules.yaml:3:72: error: dispatch_rules[0].conditions.nn_gte: calls of later have "
                "no such field; did you mean 'n_gte'?"),
      HasSubstr("error: dispatch_rules[1].conditions.n_gte: expected a whole number, got abc"));
  EXPECT_THAT(told(), both);
  EXPECT_THAT(logged, both);
  // The warning comes once, and only while the rules are in force.
  Changes more;
  more.add_kernel(kernel_of("later", "default.z", 7));
  bare_.runtime.apply(std::move(more)).or_throw();
  EXPECT_THAT(told(), both);
  bare_.runtime.rules().load("").or_throw();
  EXPECT_THAT(told(), SizeIs(0));
}

TEST_F(Rules, ThatAdjustScoresAreExplainedByName) {
  load(R"(
version: "1.0"
score:
  - {kernel: "*.c", add: 900, name: boost c}
  - {operation: step, kernel: default.c, multiply: 2, conditions: {seq_len_gte: 64}}
  - {kernel: default.a, multiply: 0}
)")
      .or_throw();
  const Explanation e = explain(64);
  ASSERT_EQ(e.selected, "default.c");
  const Candidate& c = e.candidates[0];
  EXPECT_EQ(c.priority, 130);
  EXPECT_EQ(c.adjusted_priority, (130 + 900) * 2);
  ASSERT_THAT(c.scores, SizeIs(2));
  EXPECT_EQ(to_string(c.scores[0]), "'boost c', score[0] (rules.yaml:4): + 900");
  EXPECT_EQ(to_string(c.scores[1]), "score[1] (rules.yaml:5): x 2");
  EXPECT_EQ(e.candidates[1].detail, "priority 140 against 2060");
  const std::string text = e.to_text();
  EXPECT_THAT(text, HasSubstr("\n      priority 130 counts as 2060: 'boost c', score[0] "
                              "(rules.yaml:4): + 900; score[1] (rules.yaml:5): x 2\n"));
  EXPECT_THAT(text, HasSubstr("\n      priority 150 counts as 0: score[2] (rules.yaml:6): x 0\n"));
  EXPECT_THAT(text, HasSubstr("policy: score = 'boost c', score[0] (rules.yaml:4): + 900 (from "
                              "file)"));
  const std::string json = e.to_json();
  EXPECT_THAT(json,
              HasSubstr(R"j("priority": 130, "adjusted_priority": 2060, "scores": [{"name": )j"
                        R"j("boost c", "place": "score[0] (rules.yaml:4)", "add": 900, )j"
                        R"j("multiply": 1}, {"name": null,)j"));
  // An entry that does not apply to the call is not mentioned.
  EXPECT_THAT(explain(63).candidates[0].scores, SizeIs(1));
}

TEST_F(Rules, ThatSetTheFallbackOrderAreExplained) {
  load("version: '1.0'\nfallback_chains:\n  step: [default.c]\n").or_throw();
  Explanation e = explain(64);
  ASSERT_EQ(e.candidates[1].id, "default.c");
  EXPECT_EQ(e.candidates[0].placed_by, "");
  EXPECT_EQ(e.candidates[1].placed_by, "fallback_chains.step (rules.yaml:3)");
  EXPECT_EQ(e.candidates[1].detail,
            "priority 130 against 150; tried here by fallback_chains.step (rules.yaml:3)");
  EXPECT_EQ(e.candidates[2].placed_by, "");
  EXPECT_THAT(e.to_text(), HasSubstr("policy: fallback_chains = fallback_chains.step "
                                     "(rules.yaml:3): default.c (from file)"));
  EXPECT_THAT(e.to_json(), HasSubstr("\"placed_by\": \"fallback_chains.step (rules.yaml:3)\""));
  load("version: '1.0'\ndefaults: {fallback_policy: default.c}\n").or_throw();
  e = explain(64);
  EXPECT_EQ(e.candidates[1].placed_by, "defaults.fallback_policy (rules.yaml:2)");
}

// Loads an unchanged file of the system that introduced such rules, with its ops and kernels.
TEST(PeersRules, LoadUnchanged) {
  Bare bare(
      "attention.causal(out!: T[batch, seq, dim], q: T[batch, seq, dim]) where T in {f16, bf16, "
      "f32}");
  for (const char* id : {"flash_attention_v2", "torch_sdpa", "xformers_memory_efficient",
                         "flash_attn.fast", "new_experimental"})
    bare.add(kernel_of("attention.causal", id, 1)).or_throw();
  const ConfigReading r = parse_config(R"(
version: "1.0"
defaults: {fallback_policy: torch_sdpa, default_priority: 50}     # priority 0–1000
dispatch_rules:
  - operation: "attention.*"                                      # glob
    conditions: {batch_size_gte: 8, dtype: [float16, bfloat16]}   # a list means one of
    kernel: flash_attention_v2
    priority: 100
kernel_locks:    {attention.causal: flash_attention_v2}           # op or glob
kernel_denies:   ["*_experimental"]
kernel_allows:   ["flash_attn.*", "torch_sdpa"]
fallback_chains: {attention.causal: [flash_attention_v2, xformers_memory_efficient, torch_sdpa]}
)",
                                       "layerzero.yaml");
  ASSERT_TRUE(r.ok()) << to_string(r.problems[0]);
  ASSERT_TRUE(bare.runtime.rules().set(r.config).ok());
  // The file locks the op to a kernel that it does not allow, so no kernel is left, and the error
  // says so.
  const Status s = bare.runtime.resolve("attention.causal(bf16[8,4,4])").status();
  EXPECT_EQ(s.code(), Code::kNoKernel);
  EXPECT_THAT(s.to_string(), HasSubstr("flash_attention_v2: not_allowed_kernel"));
}

}  // namespace
}  // namespace yard::testing
