// SPDX-License-Identifier: Apache-2.0
// Groups of dispatched functions: loaded when first called, and choosing together.
#include <yard/commit.h>

#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {
namespace {

class Groups : public FunctionTest {};

TEST_F(Groups, AProviderIsAskedAtTheFirstCall) {
  static const Function<int(int)> f{"g_lazy", "f", [](int x) { return x; }};
  int asked = 0;
  add_provider("g_lazy", [&](Changes& c) {
    ++asked;
    c.add_backend(backend("lazy"));
    implement(c, f, "lazy", [](int x) { return x + 1; });
    return Status();
  });
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, AProviderThatFailsIsReportedIsolatedAndAskedAgain) {
  static const Function<int(int)> f{"g_fails", "f", [](int x) { return x; }};
  bool ready = false;
  int asked = 0;
  add_provider(
      "g_fails",
      [&](Changes& c) {
        ++asked;
        c.add_backend(backend("late"));
        implement(c, f, "late", [](int x) { return x + 100; }, {}, {.priority = 9});
        if (!ready) throw std::runtime_error("no driver");
        return Status();
      },
      "driver");
  add_provider("g_fails", [&](Changes& c) {
    c.add_backend(backend("good"));
    implement(c, f, "good", [](int x) { return x + 1; });
    return Status();
  });
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
  std::string error;
  for (const FunctionSource& s : runtime().functions().sources())
    if (s.group == "g_fails" && s.name == "driver") error = s.error;
  EXPECT_NE(error.find("it threw: no driver"), std::string::npos) << error;
  const Status still = runtime().functions().load("g_fails");
  EXPECT_FALSE(still.ok());
  ready = true;
  EXPECT_TRUE(runtime().functions().load("g_fails").ok());
  EXPECT_EQ(f(1), 101);
  EXPECT_TRUE(runtime().functions().load("g_fails").ok());
  EXPECT_EQ(asked, 3);
}

TEST_F(Groups, AnErrorOfAProviderLeavesNothingOfItBehind) {
  static const Function<int(int)> f{"g_half", "f", [](int x) { return x; }};
  add_provider("g_half", [&](Changes& c) {
    c.add_backend(backend("half_done"));
    implement(c, f, "half_done", [](int x) { return x + 1; });
    return Status(Code::kUnsupported, "on second thoughts");
  });
  EXPECT_EQ(f(1), 1);
  EXPECT_TRUE(info("g_half/f").providers.empty());
}

TEST_F(Groups, AProviderThatComesLateIsAskedAtOnce) {
  static const Function<int(int)> f{"g_late", "f", [](int x) { return x; }};
  EXPECT_EQ(f(1), 1);
  add_provider("g_late", [&](Changes& c) {
    c.add_backend(backend("late"));
    implement(c, f, "late", [](int x) { return x + 1; });
    return Status();
  });
  EXPECT_EQ(f(1), 2);
}

TEST_F(Groups, AProviderMayCallTheFunctionsOfItsGroup) {
  static const Function<int(int)> f{"g_self", "f", [](int x) { return x; }};
  int seen = 0;
  add_provider("g_self", [&](Changes& c) {
    seen = f(5);
    c.add_backend(backend("self"));
    implement(c, f, "self", [](int x) { return x + 1; });
    return Status();
  });
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(seen, 5);
}

// ---- Commit groups ----

int add_ten(int x) { return x + 10; }
int add_twenty(int x) { return x + 20; }
int breaks(int) { throw std::runtime_error("broken"); }

const Function<int(int)> forward{"g_pair", "forward", [](int x) { return x; }, {.choice = "pair"}};
const Function<int(int)> backward{
    "g_pair", "backward", [](int x) { return -x; }, {.choice = "pair"}};
const Function<int(int)> alone{"g_pair", "alone", [](int x) { return x; }};

class Committed : public FunctionTest {};

Verdict only_small(int x) { return x < 100 ? Verdict(Accept()) : Reject("{0} is not small", x); }

TEST_F(Committed, WhatIsChosenOnceStaysChosen) {
  add(alone, "first", add_ten, only_small, {.priority = 2});
  CommitGroup group;
  EXPECT_EQ(alone(1), 11);
  add(alone, "second", add_twenty, {}, {.priority = 5});
  EXPECT_EQ(alone(1), 11);
  EXPECT_EQ(group.decisions(), (std::vector<CommitDecision>{{"g_pair/alone", "first"}}));
  const FunctionExplanation e = alone.explain(1);
  EXPECT_EQ(e.selected, "first");
  EXPECT_EQ(e.why, "the commit group has chosen first");
}

TEST_F(Committed, ARefusalAfterTheChoiceIsAnErrorAndNoFallback) {
  add(alone, "first", add_ten, only_small);
  CommitGroup group;
  EXPECT_EQ(alone(1), 11);
  try {
    alone(200);
    FAIL() << "went on with another one";
  } catch (const Error& e) {
    EXPECT_STREQ(e.status().message().data(),
                 "function 'g_pair/alone' must run on 'first', as its commit group has chosen, and "
                 "that refuses the call: 200 is not small");
  }
}

TEST_F(Committed, ABackendThatIsRemovedMeanwhileIsAnError) {
  add(alone, "first", add_ten);
  CommitGroup group;
  EXPECT_EQ(alone(1), 11);
  Changes c;
  c.remove_backend("first");
  runtime().apply(std::move(c)).or_throw();
  EXPECT_THROW(alone(1), Error);
}

TEST_F(Committed, ForwardAndBackwardChooseOnce) {
  add(forward, "first", add_ten, {}, {.priority = 9});  // has no backward
  add(forward, "second", add_twenty, {}, {.priority = 2});
  Changes c;
  implement(c, backward, "second", [](int x) { return -x - 20; });
  c.add_backend(backend("third"));
  implement(c, backward, "third", [](int x) { return -x - 30; }, {}, {.priority = 9});
  runtime().apply(std::move(c)).or_throw();
  EXPECT_EQ(forward(1), 11);
  EXPECT_EQ(backward(1), -31);  // apart, they choose apart
  std::vector<CommitDecision> made;
  {
    CommitGroup group;
    EXPECT_EQ(forward(1), 21);
    EXPECT_EQ(backward(1), -21);
    made = group.decisions();
  }
  EXPECT_EQ(made, (std::vector<CommitDecision>{{"pair", "second"}}));
  CommitGroup later(made);
  EXPECT_EQ(backward(1), -21);
}

TEST_F(Committed, TheOriginalIsAChoiceToo) {
  CommitGroup group;
  EXPECT_EQ(alone(1), 1);
  add(alone, "first", add_ten);
  EXPECT_EQ(alone(1), 1);
  EXPECT_EQ(group.decisions()[0].chosen, "original");
}

TEST_F(Committed, TheFirstCallMayStillFallBackInAPlainGroup) {
  add(alone, "bad", breaks, {}, {.priority = 5, .fails_before_writing = true});
  add(alone, "good", add_ten);
  CommitGroup group;
  EXPECT_EQ(alone(1), 11);
  EXPECT_EQ(group.decisions()[0].chosen, "good");
}

TEST_F(Committed, NothingFallsBackInsideACollective) {
  add(alone, "bad", breaks, {}, {.priority = 5, .fails_before_writing = true});
  add(alone, "good", add_ten);
  CommitGroup group(CommitKind::kCollective);
  EXPECT_THROW(alone(1), std::runtime_error);
  EXPECT_THROW(alone(1), std::runtime_error);
  EXPECT_EQ(group.decisions()[0].chosen, "bad");
}

TEST_F(Committed, AFailureAfterTheChoiceIsTheCallers) {
  int calls = 0;
  add(alone, "moody", [&](int x) { return ++calls > 1 ? breaks(x) : x + 10; }, {},
      {.fails_before_writing = true});
  CommitGroup group;
  EXPECT_EQ(alone(1), 11);
  EXPECT_THROW(alone(1), std::runtime_error);
}

TEST_F(Committed, CallsThatTheChosenOneMakesFollow) {
  add(forward, "second", [](int x) { return backward(x) - 1; });
  Changes c;
  implement(c, backward, "second", [](int x) { return -x - 20; });
  runtime().apply(std::move(c)).or_throw();
  CommitGroup group;
  EXPECT_EQ(forward(1), -22);
  EXPECT_EQ(group.decisions().size(), 1u);
}

}  // namespace
}  // namespace yard::testing
