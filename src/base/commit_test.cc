// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <yard/function.h>

#include <thread>

#include "base/commit.h"

namespace yard {
namespace {

using detail::current_commit;
using Decisions = std::vector<CommitDecision>;

TEST(Commit, ThereIsNoGroupOutsideOfAny) {
  EXPECT_EQ(current_commit(), nullptr);
  { CommitGroup g; }
  EXPECT_EQ(current_commit(), nullptr);
}

TEST(Commit, AChoiceStaysUntilTheGroupEnds) {
  CommitGroup g;
  EXPECT_EQ(current_commit()->chosen("f"), nullptr);
  current_commit()->note("f", "a");
  ASSERT_NE(current_commit()->chosen("f"), nullptr);
  EXPECT_EQ(*current_commit()->chosen("f"), "a");
  EXPECT_EQ(g.decisions(), (Decisions{{"f", "a"}}));
}

TEST(Commit, AChoiceOfAnInnerGroupHoldsInTheOuterOne) {
  CommitGroup outer;
  {
    CommitGroup inner;
    current_commit()->note("f", "a");
  }
  EXPECT_EQ(*current_commit()->chosen("f"), "a");
}

TEST(Commit, WhatTheOuterGroupChoseStandsInTheInnerOneAndIsListedOnceUsed) {
  CommitGroup outer;
  current_commit()->note("f", "a");
  CommitGroup inner(Decisions{{"f", "b"}, {"g", "c"}});
  EXPECT_EQ(*current_commit()->chosen("f"), "a");
  EXPECT_EQ(*current_commit()->chosen("g"), "c");
  EXPECT_EQ(inner.decisions(), (Decisions{{"f", "a"}, {"g", "c"}}));
  CommitGroup unused;
  EXPECT_TRUE(unused.decisions().empty());
}

TEST(Commit, WhatAnInnerGroupBeginsWithIsTheOuterOnesOnlyOnceItIsUsed) {
  CommitGroup outer;
  const std::string nothing = outer.digest();
  {
    CommitGroup inner(Decisions{{"f", "a"}, {"g", "b"}});
    EXPECT_EQ(inner.decisions(), (Decisions{{"f", "a"}, {"g", "b"}}));
    EXPECT_EQ(outer.digest(), nothing);
    CommitGroup innermost;
    EXPECT_EQ(*current_commit()->chosen("g"), "b");
    EXPECT_EQ(outer.decisions(), (Decisions{{"g", "b"}}));
  }
  EXPECT_EQ(current_commit()->chosen("f"), nullptr);
  EXPECT_EQ(*current_commit()->chosen("g"), "b");
}

TEST(Commit, DecisionsOfOneGroupCanBeGivenToAnother) {
  Decisions made;
  std::string digest;
  {
    CommitGroup forward;
    current_commit()->note("f", "a");
    made = forward.decisions(), digest = forward.digest();
  }
  std::thread([&] {
    CommitGroup backward(made);
    EXPECT_EQ(*current_commit()->chosen("f"), "a");
    EXPECT_EQ(backward.digest(), digest);
  }).join();
}

TEST(Commit, OtherThreadsAreNotInTheGroup) {
  CommitGroup g;
  std::thread([] { EXPECT_EQ(current_commit(), nullptr); }).join();
}

TEST(Commit, AChoiceIsUndoneOnlyIfNoOtherCallUsedIt) {
  CommitGroup g;
  current_commit()->note("f", "a");
  EXPECT_TRUE(current_commit()->undo("f"));
  EXPECT_EQ(current_commit()->chosen("f"), nullptr);
  EXPECT_TRUE(g.decisions().empty());
  current_commit()->note("f", "b");
  EXPECT_EQ(*current_commit()->chosen("f"), "b");
  EXPECT_FALSE(current_commit()->undo("f"));
  EXPECT_EQ(*current_commit()->chosen("f"), "b");
}

TEST(Commit, NothingIsUndoneInACollectiveGroupNorInsideOfOne) {
  CommitGroup outer(CommitKind::kCollective);
  CommitGroup inner;
  EXPECT_EQ(inner.kind(), CommitKind::kCollective);
  EXPECT_TRUE(current_commit()->collective());
  current_commit()->note("f", "a");
  EXPECT_FALSE(current_commit()->undo("f"));
}

TEST(Commit, DigestsAreEqualExactlyWhenDecisionsAre) {
  const auto digest = [](const Decisions& d) { return CommitGroup(d).digest(); };
  EXPECT_EQ(digest({{"f", "a"}, {"g", "b"}}), digest({{"f", "a"}, {"g", "b"}}));
  EXPECT_NE(digest({{"f", "a"}, {"g", "b"}}), digest({{"g", "b"}, {"f", "a"}}));
  EXPECT_NE(digest({{"f", "a"}}), digest({{"f", "b"}}));
  EXPECT_NE(digest({{"f\"=\"a", "b"}}), digest({{"f", "a\"=\"b"}}));
  EXPECT_EQ(digest({}).size(), 64u);
}

TEST(Commit, ADecisionWithoutAPointOrAChoiceIsAnError) {
  EXPECT_THROW(const CommitGroup g(Decisions{{"", "a"}}), Error);
  EXPECT_THROW(const CommitGroup g(Decisions{{"f", ""}}), Error);
  EXPECT_EQ(current_commit(), nullptr);
}

}  // namespace
}  // namespace yard
