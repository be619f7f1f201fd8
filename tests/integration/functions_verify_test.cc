// SPDX-License-Identifier: Apache-2.0
// Tests the verification of verifiers by sample calls, for programs and for plugins.
#include <yard/verify.h>
#include <yard/plugin_function.hpp>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "functions_testing.h"

namespace yard::testing::verified {
namespace {

using State = FunctionReport::State;

void some_numbers(const SampleCalls<int(int)>& call) {
  for (int x : {1, 5, 100}) call(x);
}
const Function<int(int)> f{"v_group", "f", [](int x) { return x; }, {}, some_numbers};
const Function<int(int)> bare{"v_group", "bare", [](int x) { return x; }};
const Function<int(double)> odd{"v_group",
                                "odd",
                                [](double) { return 0; },
                                {},
                                [](const SampleCalls<int(double)>& call) {
                                  call(1.0);
                                  throw std::runtime_error("out of ideas");
                                }};
const Function<int(char)> none{
    "v_group", "none", [](char) { return 0; }, {}, [](const SampleCalls<int(char)>&) {}};

class FunctionVerify : public FunctionTest {
 protected:
  static FunctionReport verify(const char* function) {
    VerifyOptions o;
    o.function = function;
    const VerifyReport all = yard::verify(runtime(), o).value();
    EXPECT_TRUE(all.kernels.empty());
    EXPECT_EQ(all.functions.size(), 1u);
    EXPECT_EQ(all.ok(), all.functions[0].state == State::kPassed);
    return all.functions[0];
  }
};

Verdict small(int x) { return x < 10 ? Verdict(Accept()) : Reject("{0} is too large", x); }

TEST_F(FunctionVerify, AGoodOnePasses) {
  add(
      f, "v_good", [](int x) { return x; }, small);
  const FunctionReport r = verify("v_group/f");
  EXPECT_EQ(r.state, State::kPassed);
  EXPECT_EQ(r.backend, "v_good");
  EXPECT_EQ(r.samples, 3u);
  EXPECT_EQ(r.accepted, 2u);
  EXPECT_EQ(r.refused, 1u);
  EXPECT_EQ(provider("v_group/f", "v_good").calls, 0u);  // sample calls are not counted
}

TEST_F(FunctionVerify, OneThatReturnsOtherValuesThanTheOriginalIsBroken) {
  add(
      f, "v_wrong", [](int x) { return x == 5 ? 6 : x; }, small);
  const FunctionReport r = verify("v_group/f");
  EXPECT_EQ(r.state, State::kBroken);
  EXPECT_EQ(r.problems,
            std::vector<std::string>{"sample 2: the result is 6 where the original has 5"});
}

TEST_F(FunctionVerify, RefusedSamplesAreNotRun) {
  add(
      f, "v_small", [](int x) { return x < 10 ? x : throw std::runtime_error("too large"); },
      small);
  EXPECT_EQ(verify("v_group/f").state, State::kPassed);
}

TEST_F(FunctionVerify, OneThatThrowsIsBroken) {
  add(
      f, "v_throws", [](int) -> int { throw std::runtime_error("no driver"); }, small);
  EXPECT_EQ(verify("v_group/f").problems[0], "sample 1: the implementation threw: no driver");
}

TEST_F(FunctionVerify, OneOfAnUnavailableBackendIsNotRun) {
  const yard_backend_t absent = plugin::Backend("v_absent")
                                    .probe([](void*, const yard_host_t*, yard_device_t,
                                              yard_verdict_t*) -> int32_t { return YARD_DECLINED; })
                                    .d;
  add(
      f, absent, [](int) { return 7; }, small);
  EXPECT_EQ(verify("v_group/f").state, State::kPassed);  // the verifier passes
}

using Floats = std::vector<float>;
const Function<Floats(const Floats&)> scaled{"v_group",
                                             "scaled",
                                             [](const Floats& x) {
                                               Floats y = x;
                                               for (float& v : y) v *= 3;
                                               return y;
                                             },
                                             {},
                                             [](const SampleCalls<Floats(const Floats&)>& call) {
                                               call(Floats{1, 2, NAN});
                                             }};

TEST_F(FunctionVerify, WithoutAVerifierResultsAreComparedToo) {
  float factor = 3.0001f;
  size_t missing = 0;
  add(scaled, "v_scaled", [&](const Floats& x) {
    Floats y(x.size() - missing);
    for (size_t i = 0; i < y.size(); ++i) y[i] = factor * x[i];
    return y;
  });
  FunctionReport r = verify("v_group/scaled");
  EXPECT_EQ(r.state, State::kPassed);
  EXPECT_EQ(r.accepted, 1u);
  factor = 3.1f;
  EXPECT_EQ(verify("v_group/scaled").problems[0],
            "sample 1: the result[0] is 3.1 where the original has 3");
  missing = 1;
  EXPECT_EQ(verify("v_group/scaled").problems[0],
            "sample 1: the result has 2 numbers where the original has 3");
}

const Function<int*(int*)> opaque{"v_group",
                                  "opaque",
                                  [](int* p) { return p; },
                                  {},
                                  [](const SampleCalls<int*(int*)>& call) { call(nullptr); }};
TEST_F(FunctionVerify, WhatCannotBeComparedIsNotRun) {
  add(opaque, "v_opaque", [](int* p) { return *p = 1, p; });
  EXPECT_EQ(verify("v_group/opaque").state, State::kNoVerifier);
  add(
      opaque, "v_checked", [](int* p) { return *p = 1, p; },
      [](const int*) -> Verdict { return Accept(); });
  VerifyOptions o;
  o.backend = "v_checked";
  EXPECT_EQ(yard::verify(runtime(), o).value().functions[0].state, State::kPassed);
}

TEST_F(FunctionVerify, OneThatDiffersBetweenThreadsIsBroken) {
  add(
      f, "v_thread", [](int x) { return x; },
      [here = std::this_thread::get_id()](int) {
        return std::this_thread::get_id() == here ? Verdict(Accept())
                                                  : Verdict(Reject("elsewhere"));
      });
  EXPECT_EQ(verify("v_group/f").problems[0],
            "sample 1: inconsistent answers: yes; on another thread: no, elsewhere");
}

TEST_F(FunctionVerify, WithoutSamplesNothingHasPassed) {
  add(
      bare, "v_good", [](int x) { return x; }, small);
  const FunctionReport r = verify("v_group/bare");
  EXPECT_EQ(r.state, State::kNotChecked);
  EXPECT_EQ(r.why, "declares no sample arguments");
  add(
      none, "v_good2", [](char) { return 1; }, [](char) -> Verdict { return Accept(); });
  EXPECT_EQ(verify("v_group/none").why, "makes no sample call");
  add(bare, "v_all", [](int x) { return x; });
  VerifyOptions o;
  o.backend = "v_all";
  EXPECT_EQ(yard::verify(runtime(), o).value().functions[0].state, State::kNoVerifier);
}

TEST_F(FunctionVerify, SamplesThatCannotBeMadeAreAProblem) {
  add(
      odd, "v_odd", [](double) { return 0; }, [](double) -> Verdict { return Accept(); });
  const FunctionReport r = verify("v_group/odd");
  EXPECT_EQ(r.state, State::kBroken);
  EXPECT_EQ(r.problems,
            std::vector<std::string>{"sample 1: making a sample call threw: out of ideas"});
}

TEST_F(FunctionVerify, AllFunctionsAreVerifiedWithTheKernels) {
  add(
      f, "v_good", [](int x) { return x; }, small);
  VerifyOptions o;
  o.backend = "v_good";
  const VerifyReport all = yard::verify(runtime(), o).value();
  ASSERT_EQ(all.functions.size(), 1u);
  o.backend.clear();
  o.function = "v_group/ff";
  EXPECT_NE(yard::verify(runtime(), o).status().to_string().find("did you mean 'v_group/f'"),
            std::string::npos);
}

int as_it_is(int x) { return x; }
constexpr const char* kListed[] = {"{0} is too large"};
Verdict says_what_it_did_not_list(int x) {
  if (x > 50) return Reject("{0} is out of bounds", x);
  if (x > 10) return Reject("{0} is too large", x);
  return Accept();
}

TEST_F(FunctionVerify, APluginsReasonThatIsNotInItsListIsNoticed) {
  Changes c;
  c.add_backend(backend("v_listed"));
  c.add_function(plugin::function<as_it_is>("v_group", "f", "v_listed")
                     .verify<says_what_it_did_not_list>(kListed)
                     .d);
  runtime().apply(std::move(c)).or_throw();
  EXPECT_EQ(f.explain(20).candidates[0].detail, "20 is too large");
  EXPECT_EQ(f.explain(100).candidates[0].detail, "reason " + std::to_string(YARD_REASON_OWN + 1) +
                                                     ", for which the backend has no text");
  const FunctionReport r = verify("v_group/f");
  EXPECT_EQ(r.state, State::kBroken);
  ASSERT_EQ(r.problems.size(), 1u);
  EXPECT_EQ(r.problems[0], "sample 3: it refuses for a reason that is not in its list of texts");
}

}  // namespace
}  // namespace yard::testing::verified
