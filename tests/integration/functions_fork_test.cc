// SPDX-License-Identifier: Apache-2.0
// In a forked child, a switch that was in progress is complete or absent, and backends that cannot
// survive a fork are excluded.
#include <atomic>
#include <deque>
#include <string>
#include <thread>

#include "base/testing_fork.h"
#include "functions_testing.h"

namespace yard::testing {
namespace {

using base::true_in_child;

class FunctionsFork : public FunctionTest {
 protected:
  yard::Functions functions = runtime().functions();
};

TEST_F(FunctionsFork, AChildHasAllFunctionsOfABackendOrNone) {
  std::deque<Function<int()>> several;
  Changes c;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "forked." + std::to_string(i);
    const Function<int()>& f = several.emplace_back("f_group", name.c_str());
    EXPECT_EQ(f.call_or([] { return 1; }), 1);
    implement(c, f, "acme", [] { return 2; });
  }
  runtime().apply(std::move(c)).or_throw();
  std::atomic<bool> stop{false};
  std::thread switching([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      functions.activate("acme").or_throw();
      functions.deactivate("acme").or_throw();
    }
  });
  const auto all = [&](int expected) {
    for (const Function<int()>& f : several)
      if (f.call_or([] { return 1; }) != expected) return false;
    return true;
  };
  const auto agree = [&] {
    if (!all(several[0].call_or([] { return 1; }))) return false;
    // The child can go on switching.
    if (!functions.activate("acme").ok() || !all(2)) return false;
    return functions.deactivate("acme").ok() && all(1);
  };
  int wrong = 0;
  for (int i = 0; i < 300; ++i) wrong += true_in_child(agree) ? 0 : 1;
  stop = true;
  switching.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(FunctionsFork, BackendsThatCannotSurviveAForkAreExcludedInAChild) {
  const Function<int()> active{"f_group", "unsafe"};
  const Function<int()> enabled{"f_group", "unsafe_enabled", [] { return 1; }};
  yard_backend_t unsafe = backend("acme");
  unsafe.flags = YARD_BACKEND_FORK_UNSAFE;
  Changes c;
  c.add_backend(unsafe);
  implement(c, active, "acme", [] { return 2; });
  implement(c, enabled, "acme", [] { return 2; });
  runtime().apply(std::move(c)).or_throw();
  functions.activate("acme").or_throw();
  const auto both = [&](int expected) {
    return active.call_or([] { return 1; }) == expected && enabled() == expected;
  };
  EXPECT_TRUE(both(2));
  {
    const ScopedPolicy in(switched("other", false));
    EXPECT_TRUE(both(2));
    EXPECT_TRUE(true_in_child([&] { return both(1); }));
  }
  EXPECT_TRUE(true_in_child([&] {
    const ScopedPolicy in(Scope().backend("acme"));
    return both(1) &&
           provider("f_group/unsafe", "acme").detail.find("forked child") != std::string::npos;
  }));
  EXPECT_TRUE(both(2));
}

}  // namespace
}  // namespace yard::testing
