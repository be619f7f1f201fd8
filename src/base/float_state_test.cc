// SPDX-License-Identifier: Apache-2.0
#include "base/float_state.h"

#include <gtest/gtest.h>

#include <cfenv>

namespace yard::base {
namespace {

TEST(FloatStates, AreRestoredAtTheEndOfTheirScope) {
  const FloatState of_test;
  for (const int outside : {FE_TONEAREST, FE_DOWNWARD}) {
    std::fesetround(outside);
    {
      const FloatState restored;
      std::fesetround(FE_UPWARD);
    }
    EXPECT_EQ(std::fegetround(), outside);
  }
}

TEST(FloatStates, TellWhetherTheyWereChanged) {
  const FloatState state;
  EXPECT_FALSE(state.restore());
  std::fesetround(FE_TOWARDZERO);
  EXPECT_TRUE(state.restore());
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_FALSE(state.restore());
}

TEST(FloatStates, DoNotIncludeStickyFlags) {
  std::feclearexcept(FE_ALL_EXCEPT);
  const FloatState state;
  std::feraiseexcept(FE_INEXACT);
  EXPECT_FALSE(state.restore());
  std::fesetround(FE_UPWARD);
  EXPECT_TRUE(state.restore());
  EXPECT_NE(std::fetestexcept(FE_INEXACT), 0);
}

}  // namespace
}  // namespace yard::base
