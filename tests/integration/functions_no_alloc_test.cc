// SPDX-License-Identifier: Apache-2.0
// Calls of dispatched functions allocate nothing, take no lock, and read no clock and no
// environment, whether backends accept or refuse.
#include "functions_testing.h"
#include "interpose.h"

namespace yard::testing {
namespace {

const Function<int(int)> f{"n_group", "f", [](int x) { return x; }};

class FunctionHits : public FunctionTest {
 protected:
  static Counts counts_of(int argument) {
    for (int i = 0; i < 3; ++i) f(argument);
    return count([&] {
      for (int i = 0; i < 1000; ++i) f(argument);
    });
  }
};

Verdict only_small(int x) {
  return x < 10 ? Verdict(Accept()) : Reject("{0} is not below {1}", x, 10);
}

TEST_F(FunctionHits, AnAcceptedCallAllocatesNothing) {
  add(
      f, "n_first", [](int x) { return x + 1; }, only_small);
  EXPECT_EQ(counts_of(5), Counts());
}

TEST_F(FunctionHits, ThreeRefusalsAllocateNothing) {
  for (const char* name : {"n_first", "n_second", "n_third"})
    add(
        f, name, [](int x) { return x + 1; }, only_small);
  EXPECT_EQ(counts_of(50), Counts());
  EXPECT_STREQ(f.last_selected(), "original");
}

TEST_F(FunctionHits, UnderTheMasterSwitchNoVerifierIsCalled) {
  add(
      f, "n_first", [](int x) { return x + 1; }, only_small);
  runtime().set_policy(reference_only(true)).or_throw();
  EXPECT_EQ(counts_of(5), Counts());
}

TEST_F(FunctionHits, InsideAScopeThatSwitchesABackendOffItAllocatesNothing) {
  for (const char* name : {"n_first", "n_second"})
    add(
        f, name, [](int x) { return x + 1; }, only_small);
  const ScopedPolicy in(switched("n_first", false));
  EXPECT_EQ(counts_of(5), Counts());
  EXPECT_STREQ(f.last_selected(), "n_second");
  const ScopedPolicy inner(reference_only(true));
  EXPECT_EQ(counts_of(5), Counts());
  EXPECT_STREQ(f.last_selected(), "original");
}

}  // namespace
}  // namespace yard::testing
