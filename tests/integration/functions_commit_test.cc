// SPDX-License-Identifier: Apache-2.0
// Dispatched functions in commit groups: what is chosen once stays chosen, for all that choose together.
#include <yard/function.h>

#include <stdexcept>

#include "functions_testing.h"

namespace yard::testing {
namespace {

int add_ten(int x) { return x + 10; }
int add_twenty(int x) { return x + 20; }
int breaks(int) { throw std::runtime_error("broken"); }

const Function<int(int)> forward{"g_pair", "forward", [](int x) { return x; }, {.choice = "pair"}};
const Function<int(int)> backward{
    "g_pair", "backward", [](int x) { return -x; }, {.choice = "pair"}};
const Function<int(int)> alone{"g_pair", "alone", [](int x) { return x; }};

class Committed : public FunctionTest {};

Verdict only_small(int x) { return x < 100 ? Verdict(Accept()) : Reject("{0} is not small", x); }

TEST_F(Committed, AChoiceOnceMadeIsKept) {
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

TEST_F(Committed, NestedCallsFollowTheChoice) {
  add(forward, "second", [](int x) { return backward(x) - 1; });
  Changes c;
  implement(c, backward, "second", [](int x) { return -x - 20; });
  runtime().apply(std::move(c)).or_throw();
  CommitGroup group;
  EXPECT_EQ(forward(1), -22);
  EXPECT_EQ(group.decisions().size(), 1u);
}

const Function<int(int)> front{"g_front", "front", [](int x) { return x; }, {.choice = "doors"}};
const Function<int(int)> back{"g_back", "back", [](int x) { return -x; }, {.choice = "doors"}};

TEST_F(Committed, FunctionsOfTwoLazyGroupsChooseTogetherFromTheFirstCall) {
  add_provider("g_front", [](Changes& c) {
    c.add_backend(backend("both"));
    implement(c, front, "both", add_ten);
    return Status();
  });
  add_provider("g_back", [](Changes& c) {
    implement(c, back, "both", add_twenty);
    return Status();
  });
  CommitGroup group;
  EXPECT_EQ(front(1), 11);
  EXPECT_EQ(back(1), 21);
}

TEST_F(Committed, TheMasterSwitchDoesNotUndoAChoice) {
  add(forward, "first", add_ten);
  Changes c;
  implement(c, backward, "first", add_twenty);
  runtime().apply(std::move(c)).or_throw();
  Policy off;
  off.reference_only = true;
  {
    CommitGroup group;
    EXPECT_EQ(forward(1), 11);
    runtime().set_policy(off).or_throw();
    EXPECT_EQ(
        backward.explain(1).why,
        "the master switch: every call is the original; the commit group has chosen first, so "
        "a call is an error");
    try {
      backward(1);
      FAIL() << "went on with another one";
    } catch (const Error& e) {
      EXPECT_STREQ(e.status().message().data(),
                   "function 'g_pair/backward' must run on 'first', as its commit group has "
                   "chosen, and functions are switched off: by YARD_DISABLE or a policy that is "
                   "reference_only");
    }
  }
  EXPECT_EQ(backward(1), -1);
  CommitGroup group;
  EXPECT_EQ(forward(1), 1);
  runtime().reset_policy().or_throw();
  EXPECT_EQ(backward(1), -1);
  EXPECT_EQ(group.decisions(), (std::vector<CommitDecision>{{"pair", "original"}}));
}

}  // namespace
}  // namespace yard::testing
