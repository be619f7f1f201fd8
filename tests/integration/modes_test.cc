// SPDX-License-Identifier: Apache-2.0
// Static maps made in code, and modes that a program adds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/policy.h>

#include <atomic>

#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSchema =
    "step(out!: T[rows, hidden], x: T[rows, hidden], by: int = 0) where out may_alias x";

thread_local int32_t t_code = YARD_OK;
thread_local std::vector<intptr_t> t_tried;

int32_t try_it(yard_call_t* call, const yard_value_t*, uint32_t) {
  t_ran = reinterpret_cast<intptr_t>(call->self);
  t_tried.push_back(t_ran);
  return t_ran == 3 ? YARD_OK : t_code;
}

class Modes : public ::testing::Test {
 protected:
  Modes() : bare_(kSchema) {
    for (yard_kernel_t d :
         {kernel_of("step", "default.a", 1, 150), kernel_of("step", "default.b", 2, 140),
          kernel_of("step", "default.c", 3, 130)}) {
      d.run = try_it;
      bare_.add(d).or_throw();
    }
    t_code = YARD_OK;
  }
  Runtime& runtime() { return bare_.runtime; }
  Status load(const std::string& yaml) {
    ConfigReading r = parse_config("version: '1.0'\n" + yaml, "rules.yaml");
    if (!r.ok()) return Status(Code::kInvalidArgument, to_string(r.problems[0]));
    return runtime().rules().set(r.config);
  }
  Status call(int64_t rows, const Options& o = {}, int64_t by = 0) {
    std::vector<float> data(static_cast<size_t>(rows) * 4), out(data.size());
    t_ran = 0;
    t_tried.clear();
    const TensorView to(out.data(), DType::f32, {rows, 4}), x(data.data(), DType::f32, {rows, 4});
    return runtime().call("step", {to, x, {"by", by}}, o);
  }
  // Returns the kernel that a call runs, or -1 for an error.
  intptr_t ran(int64_t rows, const Options& o = {}, int64_t by = 0) {
    return call(rows, o, by).ok() ? t_ran : -1;
  }
  Explanation explain(int64_t rows, const Options& o = {}) {
    return runtime().explain("step(f32[" + std::to_string(rows) + ",4])", o).value();
  }
  static Options in_mode(std::string name) {
    Options o;
    o.mode_name = std::move(name);
    return o;
  }
  // Serves calls below 10 rows by b and below 20 rows by c, then b. There is no answer for other
  // calls.
  static ModeProvider by_rows(std::atomic<int>* asked = nullptr) {
    ModeProvider p;
    p.reads = {"rows"};
    p.plan = [asked](const ModeCall& c) -> std::vector<std::string> {
      if (asked != nullptr) ++*asked;
      if (c.read[0] < 10) return {"default.b"};
      if (c.read[0] < 20) return {"default.c", "default.b"};
      return {};
    };
    return p;
  }

  Bare bare_;
};

TEST_F(Modes, AStaticMapPutsItsKernelFirst) {
  EXPECT_EQ(ran(4), 1);
  runtime().rules().set_static_map({{"step", "default.b"}}).or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_EQ(runtime().rules().static_map().at("step"), "default.b");
  ResultRecord record;
  Options o;
  o.result = &record;
  ran(4, o);
  EXPECT_EQ(record.mode, Mode::kStatic);
  o.mode = Mode::kStatic;
  EXPECT_EQ(ran(4, o), 2);
  o.mode = Mode::kDynamic;
  EXPECT_EQ(ran(4, o), 1);
  runtime().rules().set_static_map({}).or_throw();
  EXPECT_EQ(ran(4), 1);
  o.mode = Mode::kStatic;
  EXPECT_EQ(call(4, o).code(), Code::kUnmapped);
}

TEST_F(Modes, AStaticMapInCodeIsStrongerThanTheFiles) {
  load("static_kernel_map: {step: default.c}\n").or_throw();
  EXPECT_EQ(ran(4), 3);
  EXPECT_EQ(explain(4).candidates[0].detail, "chosen by static_kernel_map (rules.yaml:2)");
  EXPECT_EQ(explain(4).candidates[1].detail,
            "the op is mapped to default.c by static_kernel_map (rules.yaml:2)");
  runtime().rules().set_static_map({{"step", "default.b"}}).or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_EQ(explain(4).candidates[0].detail, "chosen by the program's static map");
  EXPECT_THAT(explain(4).to_text(), HasSubstr("chosen by the program's static map"));
  runtime().rules().set_static_map({}).or_throw();
  EXPECT_EQ(ran(4), 3);
}

TEST_F(Modes, AStaticMapWithUnknownNamesChangesNothing) {
  runtime().rules().set_static_map({{"step", "default.b"}}).or_throw();
  const Status s = runtime().rules().set_static_map(
      {{"step", "default.bb"}, {"stepp", "default.a"}, {"zzz", "default.a"}});
  EXPECT_EQ(s.code(), Code::kNotFound);
  EXPECT_THAT(s.to_string(), HasSubstr("'default.bb' for op 'step', which has no such kernel; did "
                                       "you mean 'default.b'?"));
  EXPECT_THAT(s.to_string(), HasSubstr("op 'stepp', which is not known; did you mean 'step'?"));
  EXPECT_THAT(s.to_string(), HasSubstr("op 'zzz', which is not known"));
  EXPECT_EQ(ran(4), 2);
}

TEST_F(Modes, AStaticMapBypassesNeitherDenyNorCapability) {
  runtime().rules().set_static_map({{"step", "default.b"}}).or_throw();
  Policy p;
  p.deny_kernels = {"default.b"};
  runtime().set_policy(p).or_throw();
  EXPECT_EQ(ran(4), 1);
  Options o;
  o.mode = Mode::kStatic;
  EXPECT_EQ(call(4, o).code(), Code::kNoKernel);
}

TEST_F(Modes, StaticExplainsWhatIsNotMapped) {
  Explanation e = explain(4, in_mode("static"));
  EXPECT_EQ(e.selected, "");
  for (const Candidate& c : e.candidates) {
    EXPECT_EQ(c.reason, "not_mapped") << c.id;
    EXPECT_EQ(c.detail, "mode static serves mapped ops only, and step is not mapped");
  }
  EXPECT_THAT(e.counterfactuals,
              ElementsAre("mode static excluded default.a, which would have been first"));
  ASSERT_TRUE(load("static_kernel_map: {step: default.c}\n").ok());
  e = explain(4, in_mode("static"));
  EXPECT_EQ(e.selected, "default.c");
  EXPECT_EQ(e.candidates[1].detail,
            "mode static serves default.c only, by static_kernel_map (rules.yaml:2)");
  // A map names its kernel but does not keep it registered.
  ASSERT_TRUE(bare_.remove("step", "default.c").ok());
  EXPECT_THAT(call(4, in_mode("static")).to_string(),
              HasSubstr("static_kernel_map (rules.yaml:2), and it is not there"));
  EXPECT_EQ(ran(4), 1) << "in mode auto another one serves";
}

// ---- Fallback between modes ----

TEST_F(Modes, StaticWithoutAMapGoesOnInTheNextMode) {
  const std::string rule = "dispatch_rules: [{operation: step, kernel: default.b}]\n";
  ResultRecord record;
  Options o = in_mode("static");
  o.result = &record;
  load(rule).or_throw();
  EXPECT_EQ(call(4, o).code(), Code::kUnmapped) << "off by default";
  load(rule + "settings: {mode_fallback: [dynamic, config]}\n").or_throw();
  EXPECT_EQ(ran(4, o), 1);
  EXPECT_EQ(record.mode, Mode::kDynamic);
  load(rule + "settings: {mode_fallback: config}\n").or_throw();
  EXPECT_EQ(ran(4, o), 2);
  EXPECT_EQ(record.mode, Mode::kConfig);
  load("settings: {mode_fallback: [config, dynamic]}\n").or_throw();
  EXPECT_EQ(ran(4, o), 1);
  EXPECT_EQ(record.mode, Mode::kDynamic) << "no rule chooses a kernel";
}

TEST_F(Modes, StaticIsSetByCallScopeAndFile) {
  Config config;
  config.settings.mode = "static";
  runtime().rules().set(config).or_throw();
  EXPECT_EQ(call(4).code(), Code::kUnmapped);
  config.settings.mode_fallback = {"dynamic"};
  runtime().rules().set(config).or_throw();
  EXPECT_EQ(ran(4), 1);
  load("settings: {mode_fallback: [dynamic]}\n").or_throw();
  EXPECT_EQ(ran(4, in_mode("static")), 1);
  {
    const ScopedPolicy in(Scope().mode("static"));
    EXPECT_EQ(ran(4), 1);
  }
  load("settings: {mode: static, mode_fallback: [dynamic]}\n").or_throw();
  EXPECT_EQ(ran(4), 1);
  load("settings: {modes: {step: static}, mode_fallback: [dynamic]}\n").or_throw();
  EXPECT_EQ(ran(4), 1);
}

TEST_F(Modes, AStaticKernelThatFailsGoesOnInTheNextMode) {
  ResultRecord record;
  Options o = in_mode("static");
  o.result = &record;
  t_code = YARD_DECLINED;  // for all kernels but default.c
  const std::string map = "static_kernel_map: {step: default.b}\n";
  load(map).or_throw();
  EXPECT_EQ(ran(4, o), -1) << "off by default";
  load(map + "settings: {mode_fallback: [dynamic, config]}\n").or_throw();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ran(4, o), 3);
    EXPECT_THAT(t_tried, ElementsAre(2, 1, 3)) << "each once, the static kernel not again";
    EXPECT_EQ(record.mode, Mode::kDynamic);
    EXPECT_STREQ(record.kernel, "default.c");
    EXPECT_EQ(record.attempts, 3);
  }
  load(map + "dispatch_rules: [{operation: step, kernel: default.c}]\n" +
       "settings: {mode_fallback: [config, dynamic]}\n")
      .or_throw();
  EXPECT_EQ(ran(4, o), 3);
  EXPECT_THAT(t_tried, ElementsAre(2, 3));
  EXPECT_EQ(record.mode, Mode::kConfig);
  t_code = YARD_OK;
  EXPECT_EQ(ran(4, o), 2);
  EXPECT_EQ(record.mode, Mode::kStatic);
}

TEST_F(Modes, AStaticKernelThatCannotServeGoesOnInTheNextMode) {
  load(
      "static_kernel_map: {step: default.b}\nkernel_denies: [default.b]\n"
      "settings: {mode_fallback: [dynamic]}\n")
      .or_throw();
  EXPECT_EQ(ran(4, in_mode("static")), 1);
  const Explanation e = explain(4, in_mode("static"));
  EXPECT_EQ(e.selected, "default.a");
  EXPECT_EQ(e.policy.back().value, "static (then dynamic by settings.mode_fallback)");
}

TEST_F(Modes, FallbackBetweenModesObeysStrictAndItsLimit) {
  t_code = YARD_DECLINED;
  const std::string map =
      "static_kernel_map: {step: default.b}\nsettings: {mode_fallback: [dynamic]";
  load(map + "}\npolicy: {strict: true}\n").or_throw();
  EXPECT_EQ(ran(4, in_mode("static")), -1);
  EXPECT_THAT(t_tried, ElementsAre(2));
  load(map + ", max_fallback_attempts: 1}\n").or_throw();
  EXPECT_EQ(ran(4, in_mode("static")), -1);
  EXPECT_THAT(t_tried, ElementsAre(2, 1));
}

TEST_F(Modes, FallbackBetweenModesInTypedBoundAndFrozenCalls) {
  load("settings: {mode: static, mode_fallback: [dynamic]}\n").or_throw();
  constexpr Op<void(Out, In, int)> step{"step"};
  std::vector<float> data(16), out(16);
  const TensorView to(out.data(), DType::f32, {4, 4}), x(data.data(), DType::f32, {4, 4});
  const auto on = step.on(runtime());
  for (int i = 0; i < 4; ++i) {
    t_ran = 0;
    on(to, x, 0).or_throw();
    EXPECT_EQ(t_ran, 1);
  }
  const auto bound = bind(on, to, x).value();
  t_ran = 0;
  bound(to, x, 0).or_throw();
  EXPECT_EQ(t_ran, 1);
  EXPECT_EQ(freeze(on, to, x).value().kernel(), "default.a");
}

TEST_F(Modes, FallbackModesAreChecked) {
  EXPECT_THAT(load("settings: {mode_fallback: [static]}\n").to_string(),
              HasSubstr("settings.mode_fallback[0]: expected one or several of dynamic or config, "
                        "got static"));
  EXPECT_FALSE(load("settings: {mode_fallback: [dynamic, dynamic]}\n").ok());
  Config config;
  config.settings.mode_fallback = {"dynamic", "confg"};
  EXPECT_THAT(runtime().rules().set(config).to_string(), HasSubstr("did you mean 'config'?"));
}

TEST_F(Modes, ResetRemovesTheStaticMap) {
  Runtime r;
  r.rules().set_static_map({{"softmax", "reference.cpp"}}).or_throw();
  EXPECT_EQ(r.resolve("softmax(f32[4,8])").value().kernel, "reference.cpp");
  r.reset().or_throw();
  EXPECT_TRUE(r.rules().static_map().empty());
}

TEST_F(Modes, OfTheProgramAreNamedByCallScopeAndFile) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  EXPECT_EQ(ran(4), 1);
  EXPECT_EQ(ran(4, in_mode("by_rows")), 2);
  EXPECT_EQ(ran(15, in_mode("by_rows")), 3);
  {
    const ScopedPolicy in(Scope().mode("by_rows"));
    EXPECT_EQ(ran(4), 2);
    EXPECT_EQ(ran(15), 3);
    EXPECT_EQ(ran(4, in_mode("dynamic")), 1);
  }
  load("settings: {mode: by_rows}\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_EQ(ran(15), 3);
  load("settings: {modes: {step: by_rows}, mode: dynamic}\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  EXPECT_EQ(ran(4, in_mode("auto")), 1);
}

TEST_F(Modes, WithoutAnAnswerFallBackToDynamic) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  ResultRecord record;
  Options o = in_mode("by_rows");
  o.result = &record;
  EXPECT_EQ(ran(30, o), 1);
  EXPECT_EQ(record.mode, Mode::kDynamic);
  EXPECT_EQ(record.mode_name, nullptr);
  EXPECT_EQ(ran(4, o), 2);
  EXPECT_EQ(record.mode, Mode::kProgram);
  EXPECT_STREQ(record.mode_name, "by_rows");
}

TEST_F(Modes, NeverRunAKernelTwiceThatHasFailed) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  t_code = YARD_DECLINED;
  EXPECT_EQ(ran(4, in_mode("by_rows")), 3);
  EXPECT_THAT(t_tried, ElementsAre(2, 1, 3));
  EXPECT_EQ(ran(15, in_mode("by_rows")), 3);
  EXPECT_THAT(t_tried, ElementsAre(3));
}

TEST_F(Modes, OrderTheirKernelsBeforeAFallbackChain) {
  ModeProvider p;
  p.plan = [](const ModeCall&) { return std::vector<std::string>{"default.b"}; };
  runtime().rules().add_mode("b_first", p).or_throw();
  load("fallback_chains: {step: [default.c, default.a]}\nsettings: {mode: b_first}\n").or_throw();
  const Explanation e = explain(4);
  EXPECT_EQ(e.candidates[0].id + " " + e.candidates[1].id + " " + e.candidates[2].id,
            "default.b default.c default.a");
}

TEST_F(Modes, BypassNeitherDenyNorCapability) {
  yard_kernel_t d = kernel_of("step", "default.d", 4, 1);
  yard_limit_t limit{};
  limit.kind = YARD_LIMIT_MAX, limit.field = "rows", limit.a = 8;
  d.limits = &limit, d.limit_count = 1;
  bare_.add(d).or_throw();
  std::vector<std::string> seen;
  ModeProvider p;
  p.plan = [&](const ModeCall& c) {
    seen.clear();
    for (const ModeCall::Candidate& k : c.candidates) seen.emplace_back(k.id);
    return std::vector<std::string>{"default.d", "default.b", "default.b", "default.nobody"};
  };
  runtime().rules().add_mode("wants_d", p).or_throw();
  EXPECT_EQ(ran(8, in_mode("wants_d")), 4);
  EXPECT_EQ(ran(9, in_mode("wants_d")), 2);
  EXPECT_THAT(seen, ElementsAre("default.a", "default.b", "default.c"));
  Policy deny;
  deny.deny_kernels = {"default.b", "default.d"};
  runtime().set_policy(deny).or_throw();
  EXPECT_EQ(ran(8, in_mode("wants_d")), 1);
  EXPECT_THAT(seen, ElementsAre("default.a", "default.c"));
  const Explanation e = explain(8, in_mode("wants_d"));
  EXPECT_EQ(e.policy.back().field, "mode");
  EXPECT_EQ(e.policy.back().value, "wants_d ('default.d' cannot serve the call: as in dynamic)");
}

TEST_F(Modes, AreCalledOnceForEachClassOfWhatTheyRead) {
  std::atomic<int> asked = 0;
  runtime().rules().add_mode("by_rows", by_rows(&asked)).or_throw();
  const Options o = in_mode("by_rows");
  for (int i = 0; i < 5; ++i)
    for (const int64_t by : {0, 1, 2}) EXPECT_EQ(ran(4, o, by), 2);
  EXPECT_EQ(asked, 1);
  ran(5, o);
  EXPECT_EQ(asked, 2);
}

TEST_F(Modes, ThatDeclareNothingAreTakenToReadEverything) {
  ModeProvider p;
  p.plan = [](const ModeCall& c) -> std::vector<std::string> {
    for (const auto& [name, value] : c.labels)
      if (name == "tenant" && value == "blue") return {"default.c"};
    return {c.args[2].u.i % 2 == 0 ? "default.a" : "default.b"};
  };
  runtime().rules().add_mode("parity", p).or_throw();
  Options o = in_mode("parity");
  for (const int64_t by : {0, 1, 2, 3, 1, 0}) EXPECT_EQ(ran(4, o, by), by % 2 == 0 ? 1 : 2) << by;
  o.labels["tenant"] = "blue";
  EXPECT_EQ(ran(4, o, 1), 3);
  o.labels["tenant"] = "red";
  EXPECT_EQ(ran(4, o, 1), 2);
  runtime().rules().set_labels({{"tenant", "blue"}}).or_throw();
  EXPECT_EQ(ran(4, in_mode("parity"), 1), 3);
}

TEST_F(Modes, MayAnswerForACallSpec) {
  std::string seen;
  ModeProvider p;
  p.kernel = [&](std::string_view call) -> std::string {
    seen = call;
    return call.find("[7,4]") != std::string_view::npos ? "default.c" : "";
  };
  runtime().rules().add_mode("by_text", p).or_throw();
  EXPECT_EQ(runtime().resolve("step(f32[7,4])", in_mode("by_text")).value().kernel, "default.c");
  EXPECT_EQ(seen, "step(f32[7,4], by=0)@cpu");
  EXPECT_EQ(ran(7, in_mode("by_text")), 3);
  EXPECT_EQ(ran(8, in_mode("by_text")), 1);
  // The runtime asks plan() first, and kernel() if plan() has no answer.
  ModeProvider both = p;
  both.reads = {"rows"};
  both.plan = [](const ModeCall& c) -> std::vector<std::string> {
    if (c.read[0] == 8) return {"default.b"};
    return {};
  };
  runtime().rules().add_mode("both", both).or_throw();
  EXPECT_EQ(ran(7, in_mode("both")), 3);
  EXPECT_EQ(ran(8, in_mode("both")), 2);
}

TEST_F(Modes, AreExplained) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  const Explanation e = explain(4, in_mode("by_rows"));
  EXPECT_EQ(e.selected, "default.b");
  EXPECT_EQ(e.candidates[0].detail, "chosen by mode 'by_rows'");
  EXPECT_EQ(e.candidates[1].detail, "mode 'by_rows' chose default.b");
  EXPECT_THAT(e.to_text(), HasSubstr("policy: mode = by_rows (from call)"));
  load("settings: {mode: by_rows}\n").or_throw();
  EXPECT_THAT(explain(30).to_text(),
              HasSubstr("policy: mode = by_rows (it gave no answer: as in dynamic) (from file)"));
}

TEST_F(Modes, ThatThrowGiveNoAnswer) {
  ModeProvider p;
  p.plan = [](const ModeCall&) -> std::vector<std::string> { throw std::runtime_error("broken"); };
  runtime().rules().add_mode("throws", p).or_throw();
  EXPECT_EQ(ran(4, in_mode("throws")), 1);
  EXPECT_EQ(explain(4, in_mode("throws")).policy.back().value,
            "throws (it threw: broken: as in dynamic)");
}

TEST_F(Modes, MustNotChangeTheRuntimeWhileTheyRun) {
  Status inner;
  ModeProvider p;
  p.plan = [&](const ModeCall&) -> std::vector<std::string> {
    inner = runtime().set_policy({});
    return {};
  };
  runtime().rules().add_mode("meddles", p).or_throw();
  EXPECT_EQ(ran(4, in_mode("meddles")), 1);
  EXPECT_EQ(inner.code(), Code::kWouldDeadlock);
}

TEST_F(Modes, InvalidNamesAreRefused) {
  EXPECT_EQ(runtime().rules().add_mode("static", by_rows()).code(), Code::kConflict);
  EXPECT_EQ(runtime().rules().add_mode("program", by_rows()).code(), Code::kConflict);
  for (const char* name : {"", "By rows", "9", "a-b", "a\nb"})
    EXPECT_EQ(runtime().rules().add_mode(name, by_rows()).code(), Code::kInvalidArgument) << name;
  EXPECT_THAT(runtime().rules().add_mode("idle", {}).to_string(),
              HasSubstr("neither plan nor kernel"));
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  const Status again = runtime().rules().add_mode("by_rows", by_rows());
  EXPECT_EQ(again.code(), Code::kConflict);
  EXPECT_THAT(again.to_string(), HasSubstr("mode 'by_rows' exists already"));
}

TEST_F(Modes, UnknownNamesAreErrorsInCallsScopesAndFiles) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  const Status s = call(4, in_mode("by_row"));
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("no mode is called \"by_row\"; did you mean 'by_rows'?"));
  EXPECT_FALSE(runtime().explain("step(f32[4,4])", in_mode("by_row")).ok());
  {
    const ScopedPolicy in(Scope().mode("nothing_like_it"));
    EXPECT_THAT(call(4).to_string(),
                HasSubstr("expected auto, static, dynamic, config, hot_reload or "
                          "by_rows"));
    EXPECT_THAT(call(4).to_string(), HasSubstr("set by the scope"));
  }
  EXPECT_THAT(load("settings: {mode: by_row}\n").to_string(),
              HasSubstr("no mode is called 'by_row'; did you mean 'by_rows'?"));
  Options both = in_mode("by_rows");
  both.mode = Mode::kAuto;
  EXPECT_EQ(call(4, both).code(), Code::kInvalidArgument);
  Options program;
  program.mode = Mode::kProgram;
  EXPECT_EQ(call(4, program).code(), Code::kInvalidArgument);
}

TEST_F(Modes, InUseByTheFileCannotBeRemoved) {
  runtime().rules().add_mode("by_rows", by_rows()).or_throw();
  load("settings:\n  modes:\n    step: by_rows\n").or_throw();
  EXPECT_EQ(ran(4), 2);
  const Status s = runtime().rules().remove_mode("by_rows");
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_THAT(s.to_string(), HasSubstr("mode 'by_rows' is in use: settings.modes.step"));
  EXPECT_THAT(s.to_string(), HasSubstr("rules.yaml:4"));
  EXPECT_EQ(ran(4), 2);
  runtime().rules().load("").or_throw();
  runtime().rules().remove_mode("by_rows").or_throw();
  EXPECT_EQ(ran(4, in_mode("by_rows")), -1);
  EXPECT_THAT(runtime().rules().remove_mode("by_rows").to_string(), HasSubstr("has added no mode"));
  // Earlier rules that name the mode cannot be rolled back to.
  EXPECT_THAT(runtime().rules().roll_back(1).to_string(), HasSubstr("no mode is called 'by_rows'"));
}

TEST_F(Modes, ReleaseTheirProviderWhenTheyAreRemoved) {
  auto held = std::make_shared<int>(1);
  ModeProvider p = by_rows();
  p.plan = [held, plan = p.plan](const ModeCall& c) { return plan(c); };
  runtime().rules().add_mode("by_rows", std::move(p)).or_throw();
  EXPECT_EQ(ran(4, in_mode("by_rows")), 2);
  EXPECT_GT(held.use_count(), 1);
  runtime().rules().remove_mode("by_rows").or_throw();
  runtime().set_policy({}).or_throw();  // a change releases unused objects
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(Modes, OfTheSettingsExistBeforeTheFile) {
  RuntimeSettings settings;
  settings.builtin_backends = true, settings.environment = false;
  ModeProvider p;
  p.reads.emplace();
  p.plan = [](const ModeCall&) { return std::vector<std::string>{"reference.cpp"}; };
  settings.modes["exact"] = p;
  Runtime r(settings);
  EXPECT_TRUE(r.problems().empty());
  Config config;
  config.settings.mode = "exact";
  r.rules().set(config).or_throw();
  EXPECT_EQ(r.resolve("softmax(f32[4,8])").value().kernel, "reference.cpp");
  settings.modes["static"] = p;
  EXPECT_THAT(Runtime(settings).problems().at(0).message,
              HasSubstr("'static' is the name of a mode"));
}

}  // namespace
}  // namespace yard::testing
