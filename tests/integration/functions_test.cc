// SPDX-License-Identifier: Apache-2.0
// Tests dispatched functions from outside: signatures, order, verifiers, switches, failures.
#include <gmock/gmock.h>
#include <yard/plugin_function.hpp>

#include <memory>
#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {

const char* signature_in_another_file();
void bring_from_another_file(Changes& c);

namespace {

using ::testing::HasSubstr;

struct Args {
  int64_t heads = 1;
  int64_t head_dim = 64;
};
enum class Mode { kFused, kChunked };

YARD_DISPATCHED(chunk, "t_kda")(const Args& a, Mode m)->std::string {
  return "original " + std::to_string(a.head_dim) + (m == Mode::kFused ? " fused" : " chunked");
};

const Function<int(int)> twice{"t_math", "twice", [](int x) { return 2 * x; }};
const Function<void(std::vector<int>&, int)> push{
    "t_math", "push", [](std::vector<int>& v, int x) { v.push_back(x); }};
const Function<std::unique_ptr<int>(std::unique_ptr<int>)> bump{"t_math", "bump",
                                                                [](std::unique_ptr<int> p) {
                                                                  ++*p;
                                                                  return p;
                                                                }};
const Function<int&(int&)> same{"t_math", "same", [](int& x) -> int& { return x; }};
const Function<size_t(std::string&&)> sink{
    "t_math", "sink", [](std::string&& s) { return std::string(std::move(s)).size(); }};
const Function<int()> nothing{"t_math", "nothing", [] { return 0; }};

using Functions = FunctionTest;

TEST_F(Functions, WithoutBackendsTheOriginalRuns) {
  EXPECT_EQ(chunk(Args{1, 32}, Mode::kFused), "original 32 fused");
  EXPECT_EQ(twice(21), 42);
  EXPECT_STREQ(twice.last_selected(), "original");
}

int whole_half(int x) { return x / 2; }
double exact_half(double x) { return x / 2; }
int other_half(int x) { return x - x / 2; }

// No program could declare all of these signatures, because a name has only one.
TEST_F(Functions, EachSignatureOfAnUndeclaredFunctionIsListed) {
  Changes c;
  c.add_function(plugin::function<whole_half>("t_unknown", "half", "f_whole").d);
  c.add_function(plugin::function<exact_half>("t_unknown", "half", "f_exact").d);
  c.add_function(plugin::function<other_half>("t_unknown", "half", "f_other").d);
  runtime().apply(std::move(c)).or_throw();
  std::vector<std::string> found;
  for (const FunctionInfo& f : runtime().functions().list()) {
    if (f.group != "t_unknown") continue;
    EXPECT_FALSE(f.declared);
    for (const FunctionProvider& p : f.providers) found.push_back(f.signature + " " + p.backend);
  }
  EXPECT_EQ(found,
            (std::vector<std::string>{"f64(f64) f_exact", "i32(i32) f_other", "i32(i32) f_whole"}));
}

TEST_F(Functions, SignaturesOfAllKindsPassTheirArgumentsOn) {
  add(twice, "b1", [](int x) { return 20 * x; });
  add(push, "b2", [](std::vector<int>& v, int x) { v.push_back(-x); });
  add(bump, "b3", [](std::unique_ptr<int> p) {
    *p += 10;
    return p;
  });
  add(same, "b4", [](int& x) -> int& { return ++x; });
  add(sink, "b5", [](std::string&& s) { return std::string(std::move(s)).size() + 100; });
  add(nothing, "b6", [] { return 7; });
  EXPECT_EQ(twice(2), 40);
  std::vector<int> v;
  push(v, 3);
  EXPECT_EQ(v, std::vector<int>{-3});
  EXPECT_EQ(*bump(std::make_unique<int>(1)), 11);
  int x = 4;
  EXPECT_EQ(&same(x), &x);
  EXPECT_EQ(x, 5);
  std::string text = "abc";
  EXPECT_EQ(sink(std::move(text)), 103u);
  EXPECT_EQ(nothing(), 7);
}

TEST_F(Functions, TheHighestPriorityRunsAndTiesGoByName) {
  add(twice, "low", [](int) { return 1; }, {}, {.priority = 1});
  add(twice, "high", [](int) { return 2; }, {}, {.priority = 5});
  add(twice, "also_high", [](int) { return 3; }, {}, {.priority = 5});
  EXPECT_EQ(twice(0), 3);
  EXPECT_STREQ(twice.last_selected(), "also_high");
  EXPECT_STREQ(last_selected(), "also_high");
}

TEST_F(Functions, ARegistrationMayCountPrioritiesDownwards) {
  add(twice, "five", [](int) { return 5; }, {}, {.priority = 5, .lower_first = true});
  add(twice, "three", [](int) { return 3; }, {}, {.priority = 3, .lower_first = true});
  EXPECT_EQ(twice(0), 3);
}

Verdict small(const Args& a, Mode m) {
  if (a.head_dim > 256) return Reject("head dimension {0} is above {1}", a.head_dim, 256);
  if (a.heads % 2 != 0) return Reject("{0} heads, which is odd", a.heads);
  if (m == Mode::kChunked) return Reject(YARD_REASON_LAYOUT);
  return Accept();
}

TEST_F(Functions, EachBranchOfAVerifierLeadsToTheNextAndToTheOriginalAtLast) {
  add(chunk, "first", [](const Args&, Mode) { return std::string("first"); }, small,
      {.priority = 2});
  EXPECT_EQ(chunk(Args{2, 64}, Mode::kFused), "first");
  EXPECT_EQ(chunk(Args{2, 512}, Mode::kFused), "original 512 fused");
  EXPECT_EQ(chunk(Args{3, 64}, Mode::kFused), "original 64 fused");
  EXPECT_EQ(chunk(Args{2, 64}, Mode::kChunked), "original 64 chunked");
  EXPECT_STREQ(chunk.last_selected(), "original");
  add(chunk, "second", [](const Args&, Mode) { return std::string("second"); });
  EXPECT_EQ(chunk(Args{2, 512}, Mode::kFused), "second");
  EXPECT_EQ(chunk(Args{2, 64}, Mode::kFused), "first");
}

TEST_F(Functions, EveryReasonIsLoggedOnce) {
  const auto& log = messages_with("t_kda/chunk");
  add(
      chunk, "first", [](const Args&, Mode) { return std::string("first"); }, small);
  for (int i = 0; i < 3; ++i) chunk(Args{2, 512}, Mode::kFused);
  chunk(Args{3, 64}, Mode::kFused);
  EXPECT_EQ(log, (std::vector<std::string>{
                     "Backend 'first' refuses a call of function 't_kda/chunk': head dimension 512 "
                     "is above 256",
                     "Backend 'first' refuses a call of function 't_kda/chunk': 3 heads, which is "
                     "odd"}));
  EXPECT_EQ(info("t_kda/chunk").original_calls, 4u);
}

TEST_F(Functions, ExplainCallsAllVerifiersAndRunsNothing) {
  int runs = 0;
  add(chunk, "first", [&](const Args&, Mode) { return ++runs, std::string(); }, small,
      {.priority = 3});
  add(chunk, "second", [&](const Args&, Mode) { return ++runs, std::string(); });
  add(chunk, plugin::Backend("third").enable(YARD_ENABLE_OFF).env("T_THIRD").d,
      [](const Args&, Mode) { return std::string(); });
  const FunctionExplanation e = chunk.explain(Args{2, 300}, Mode::kFused);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(e.selected, "second");
  EXPECT_EQ(
      e.to_text(),
      "t_kda/chunk: second\n"
      "  first            refused  own: head dimension 300 is above 256\n"
      "  second           selected\n"
      "  third            out      disabled: switched off by default; T_THIRD=on enables it\n");
}

TEST_F(Functions, AVerifierThatThrowsIsBrokenAndAskedAgain) {
  const auto& log = messages_with("t_math/twice");
  bool broken = true;
  add(
      twice, "first", [](int) { return 1; },
      [&](int) -> Verdict {
        if (broken) throw std::out_of_range("no entry 7");
        return Accept();
      });
  EXPECT_EQ(twice(5), 10);
  EXPECT_EQ(log, std::vector<std::string>{"The verifier of backend 'first' for function "
                                          "'t_math/twice' is broken: it threw: no entry 7"});
  const FunctionExplanation e = twice.explain(5);
  EXPECT_EQ(e.candidates[0].verdict, "broken");
  EXPECT_EQ(e.candidates[0].detail, "it threw: no entry 7");
  broken = false;
  EXPECT_EQ(twice(5), 1);
}

TEST_F(Functions, VerifiersQueryTheHostAndReadTheScope) {
  add(
      twice, "b1", [](int) { return 1; },
      [](const FunctionQuery& q, int) -> Verdict {
        if (q.has_feature("a feature that no machine has")) return Reject("what a machine");
        if (q.training()) return Reject(YARD_REASON_INFERENCE_ONLY);
        return Accept();
      });
  EXPECT_EQ(twice(4), 8);
  {
    ScopedPolicy in(Scope().inference());
    EXPECT_EQ(twice(4), 1);
  }
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(twice.explain(4).candidates[0].reason, "inference_only");
}

TEST_F(Functions, AnUnavailableBackendIsNotCalled) {
  static const char* const reasons[] = {"no such device"};
  plugin::Backend b("absent");
  b.reasons(reasons).probe([](void*, const yard_host_t*, yard_device_t, yard_verdict_t* why) {
    why->reason = YARD_REASON_OWN;
    return int32_t{YARD_DECLINED};
  });
  add(twice, b.d, [](int) { return 1; });
  EXPECT_EQ(twice(4), 8);
  EXPECT_EQ(provider("t_math/twice", "absent").reason, "unavailable");
}

TEST_F(Functions, CountersShowWhichBackendRanAndSurviveUnrelatedChanges) {
  add(
      twice, "b1", [](int x) { return x; },
      [](int x) -> Verdict {
        return x > 0 ? Verdict(Accept()) : Reject("{0} is not positive", x);
      });
  for (int i = 0; i < 5; ++i) twice(1);
  add(nothing, "b2", [] { return 1; });
  for (int i = 0; i < 3; ++i) twice(1), twice(-1);
  EXPECT_EQ(provider("t_math/twice", "b1").calls, 8u);
  EXPECT_EQ(info("t_math/twice").original_calls, 3u);
}

TEST_F(Functions, ABackendProvidesAFunctionOnce) {
  add(twice, "b1", [](int x) { return x; });
  Changes c;
  implement(c, twice, "b1", [](int x) { return -x; });
  const Status s = runtime().apply(std::move(c)).status();
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_EQ(twice(1), 1);
}

TEST_F(Functions, NoBackendMayHaveTheNameOfTheOriginal) {
  Changes c;
  c.add_backend(backend("original"));
  implement(c, twice, "original", [](int x) { return -x; });
  EXPECT_THAT(runtime().apply(std::move(c)).status().to_string(),
              HasSubstr("its backend is called 'original', which is what the function's own body "
                        "is called"));
  EXPECT_EQ(twice(1), 2);
}

TEST_F(Functions, OnlyTheFirstSixteenReasonsAreLogged) {
  static std::string texts[20];
  for (int i = 0; i < 20; ++i) texts[i] = "reason number " + std::to_string(i);
  const auto& logged = messages_with("refuses");
  add(
      twice, "b1", [](int x) { return x; },
      [](int x) -> Verdict { return Reject(texts[x].c_str()); });
  for (int i = 0; i < 20; ++i) twice(i), twice(i);
  EXPECT_EQ(logged.size(), 16u);
}

struct OfThisFile {
  int64_t first;
  double second;
};

TEST_F(Functions, ATypeOfAnUnnamedNamespaceIsOfItsFile) {
  const std::string text = signature_of<int(const OfThisFile&)>();
  const size_t at = text.find("::OfThisFile{16:8}@");
  ASSERT_NE(at, text.npos) << text;
  EXPECT_NE(text.substr(at), "::OfThisFile{16:8}@&)");
  // functions_other_file.cc has another type of this name and size.
  EXPECT_NE(text, signature_in_another_file());
  EXPECT_NE(std::string(signature_in_another_file()).find("::OfThisFile{16:8}@"), text.npos);
  const Function<int(const OfThisFile&)> f{"t_math", "of_this_file",
                                           [](const OfThisFile&) { return 0; }};
  Changes c;
  c.add_backend(backend("of_other"));
  bring_from_another_file(c);
  const Status s = runtime().apply(std::move(c)).status();
  EXPECT_EQ(s.code(), Code::kConflict) << s.to_string();
  EXPECT_EQ(f({1, 2.0}), 0);
}

TEST_F(Functions, UndeclaredFunctionsAreListed) {
  auto unused =
      std::make_unique<Function<int(int)>>("t_math", "forgotten", [](int x) { return x; });
  add(*unused, "b1", [](int x) { return x; });
  EXPECT_TRUE(info("t_math/forgotten").declared);
  unused.reset();
  EXPECT_FALSE(info("t_math/forgotten").declared);
  EXPECT_THAT(runtime().functions().find("t_math/forgoten").status().to_string(),
              HasSubstr("did you mean 't_math/forgotten'"));
}

TEST_F(Functions, RemovingABackendRunsTheNextAndReportsWhenItIsReleased) {
  auto alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = alive;
  add(twice, "b1", [keep = std::move(alive)](int x) { return x + *keep; });
  EXPECT_EQ(twice(3), 3);
  const Ticket gone = remove("b1");
  EXPECT_EQ(twice(3), 6);
  EXPECT_TRUE(gone.wait(std::chrono::seconds(10)).ok());
  EXPECT_TRUE(watch.expired());
}

TEST_F(Functions, ACallMayRemoveTheBackendThatRunsIt) {
  add(twice, "b1", [](int x) { return remove("b1"), x + 1000; });
  EXPECT_EQ(twice(1), 1001);
  EXPECT_EQ(twice(1), 2);
}

TEST_F(Functions, FunctionsCallFunctions) {
  add(twice, "b1", [](int x) { return x > 0 ? twice(x - 1) + 1 : 0; });
  EXPECT_EQ(twice(50), 50);  // deeper than the slots of a thread
}

}  // namespace
}  // namespace yard::testing
