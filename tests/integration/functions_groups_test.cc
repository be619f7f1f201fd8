// SPDX-License-Identifier: Apache-2.0
// Groups of dispatched functions: loaded when first called, all of them, once.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "functions_testing.h"

namespace yard::testing {
namespace {

class Groups : public FunctionTest {};

TEST_F(Groups, AProviderIsCalledAtTheFirstCall) {
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

TEST_F(Groups, AProviderThatFailsIsReportedIsolatedAndRetried) {
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

TEST_F(Groups, ALateProviderIsCalledAtOnce) {
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

TEST_F(Groups, AProviderAddedByAProviderIsCalledByTheSameLoad) {
  static const Function<int(int)> f{"g_nested", "f", [](int x) { return x; }};
  static int asked = 0;
  add_provider(
      "g_nested",
      [](Changes&) {
        add_provider(
            "g_nested",
            [](Changes& c) {
              ++asked;
              c.add_backend(backend("inner"));
              implement(c, f, "inner", [](int x) { return x + 1; });
              return Status();
            },
            "inner");
        return Status();
      },
      "outer");
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(runtime().functions().load("g_nested").ok());
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, ALoadCallsAFailingProviderOnce) {
  static const Function<int(int)> f{"g_keeps", "f", [](int x) { return x; }};
  static int asked = 0;
  add_provider("g_keeps", [](Changes&) {
    ++asked;
    return Status(Code::kUnsupported, "never");
  });
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(runtime().functions().load("g_keeps").ok());
  EXPECT_EQ(asked, 2);
}

TEST_F(Groups, ALateProviderMayLoadItsGroup) {
  static const Function<int(int)> f{"g_again", "f", [](int x) { return x; }};
  static int asked = 0;
  EXPECT_EQ(f(1), 1);
  add_provider("g_again", [](Changes&) {
    if (++asked > 1) return Status();
    return runtime().functions().load("g_again");
  });
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, ALateProviderIsCalledOnceDuringAConcurrentLoad) {
  static const Function<int(int)> f{"g_meanwhile", "f", [](int x) { return x; }};
  static std::atomic<int> asked{0};
  EXPECT_EQ(f(1), 1);
  std::thread late([] {
    add_provider(
        "g_meanwhile",
        [](Changes& c) {
          ++asked;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          c.add_backend(backend("meanwhile"));
          implement(c, f, "meanwhile", [](int x) { return x + 1; });
          return Status();
        },
        "slow");
  });
  while (asked == 0) std::this_thread::yield();
  const Status loaded = runtime().functions().load("g_meanwhile");
  late.join();
  EXPECT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(f(1), 2);
  for (const FunctionSource& s : runtime().functions().sources()) {
    if (s.group != "g_meanwhile") continue;
    EXPECT_TRUE(s.done && s.attempts == 1 && s.error.empty()) << s.attempts << s.error;
  }
}

TEST_F(Groups, TheyAreListedInTheOrderInWhichTheyCame) {
  for (const char* name : {"z", "a", "m", ""})
    add_provider(
        "g_order", [](Changes&) { return Status(Code::kUnsupported, "no"); }, name);
  std::string names;
  for (const FunctionSource& s : runtime().functions().sources())
    if (s.group == "g_order") names += s.name + ",";
  EXPECT_EQ(names, "z,a,m,provider 4,");
}

TEST_F(Groups, AnUnknownGroupIsNotFound) {
  static const Function<int(int)> f{"g_spelled_well", "f", [](int x) { return x; }};
  EXPECT_TRUE(runtime().functions().load("g_spelled_well").ok());
  const Status typo = runtime().functions().load("g_speled_well");
  EXPECT_EQ(typo.code(), Code::kNotFound);
  EXPECT_NE(typo.to_string().find("no function of group \"g_speled_well\" is declared or provided"),
            std::string::npos)
      << typo.to_string();
  EXPECT_NE(typo.to_string().find("g_spelled_well'"), std::string::npos) << typo.to_string();
}

TEST_F(Groups, AGroupThatWasFirstCalledUnderTheMasterSwitchIsLoadedOnceThatIsOff) {
  static const Function<int(int)> f{"g_switched", "f", [](int x) { return x; }};
  static int asked = 0;
  add_provider("g_switched", [](Changes& c) {
    ++asked;
    c.add_backend(backend("switched"));
    implement(c, f, "switched", [](int x) { return x + 1; });
    return Status();
  });
  Policy off;
  off.reference_only = true;
  runtime().set_policy(off).or_throw();
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(asked, 0);
  runtime().set_policy({}).or_throw();
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, AProviderMayWaitForAThreadThatLoadsAnotherGroup) {
  static const Function<int(int)> f{"g_waits", "f", [](int x) { return x; }};
  static const Function<int(int)> g{"g_other", "g", [](int x) { return x; }};
  const auto provide = [](const char* group, const Function<int(int)>& function,
                          const std::function<void()>& first) {
    add_provider(group, [=, &function](Changes& c) {
      first();
      c.add_backend(backend(group));
      implement(c, function, group, [](int x) { return x + 1; });
      return Status();
    });
  };
  int elsewhere = 0;
  provide("g_waits", f, [&] { std::thread([&] { elsewhere = g(1); }).join(); });
  provide("g_other", g, [] {});
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(elsewhere, 2);
}

// Neither waits for ever: the call inside of at least one provider runs the original.
TEST_F(Groups, ProvidersThatCallFunctionsOfEachOthersGroups) {
  static const Function<int(int)> f{"g_this", "f", [](int x) { return x; }};
  static const Function<int(int)> g{"g_that", "g", [](int x) { return x; }};
  std::atomic<int> inside{0};
  const auto both_inside = [&] {
    ++inside;
    while (inside < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  int in_f = 0, in_g = 0;
  add_provider("g_this", [&](Changes& c) {
    both_inside();
    in_f = g(1);
    c.add_backend(backend("this"));
    implement(c, f, "this", [](int x) { return x + 1; });
    return Status();
  });
  add_provider("g_that", [&](Changes& c) {
    both_inside();
    in_g = f(1);
    c.add_backend(backend("that"));
    implement(c, g, "that", [](int x) { return x + 1; });
    return Status();
  });
  std::thread first([&] { EXPECT_EQ(f(1), 2); }), second([&] { EXPECT_EQ(g(1), 2); });
  first.join(), second.join();
  EXPECT_TRUE(in_f == 1 || in_g == 1);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(g(1), 2);
}

TEST_F(Groups, AForkedChildHasAllProviders) {
  static const Function<int(int)> f{"g_fork", "f", [](int x) { return x; }};
  add_provider("g_fork", [](Changes& c) {
    c.add_backend(backend("forked"));
    implement(c, f, "forked", [](int x) { return x + 1; });
    return Status();
  });
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) runtime().functions().sources();
  });
  std::thread writer([&] {
    // One that is asked again and again, which changes what a child reads.
    add_provider("g_noise", [](Changes&) { return Status(Code::kUnsupported, "not yet"); });
    while (!stop) runtime().functions().load("g_noise").ignore();
  });
  int lost = 0;
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::alarm(60), ::_exit(f(1) == 2 ? 0 : 1);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    lost += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  stop = true;
  reader.join(), writer.join();
  EXPECT_EQ(lost, 0);
}

}  // namespace
}  // namespace yard::testing
