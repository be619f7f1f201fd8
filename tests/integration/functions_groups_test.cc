// SPDX-License-Identifier: Apache-2.0
// Groups of dispatched functions are loaded completely and once, when they are first called.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "functions_testing.h"

namespace yard::testing {
namespace {

class Groups : public FunctionTest {};
int add_1(int x) { return x + 1; }

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
  bring(f, "good", add_1);
  EXPECT_EQ(asked, 0);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(info("g_fails/f").providers.size(), 1u) << "nothing of it is left behind";
  std::string error;
  for (const FunctionSource& s : runtime().functions().sources())
    if (s.group == "g_fails" && s.name == "driver") error = s.error;
  EXPECT_NE(error.find("it threw: no driver"), std::string::npos) << error;
  EXPECT_FALSE(runtime().functions().load("g_fails").ok());
  EXPECT_EQ(asked, 2);
  ready = true;
  EXPECT_TRUE(runtime().functions().load("g_fails").ok());
  EXPECT_EQ(f(1), 101);
  EXPECT_TRUE(runtime().functions().load("g_fails").ok());
  EXPECT_EQ(asked, 3);
}

TEST_F(Groups, ALateProviderIsCalledByTheNextCall) {
  static const Function<int(int)> f{"g_late", "f", [](int x) { return x; }};
  EXPECT_EQ(f(1), 1);
  bring(f, "late", add_1);
  EXPECT_EQ(f(1), 2);
}

TEST_F(Groups, AProviderMayCallTheFunctionsOfItsGroup) {
  static const Function<int(int)> f{"g_self", "f", [](int x) { return x; }};
  int seen = 0;
  add_provider("g_self", [&](Changes& c) {
    seen = f(5);
    c.add_backend(backend("self"));
    implement(c, f, "self", add_1);
    return Status();
  });
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(seen, 5);
}

TEST_F(Groups, AProviderAddedByAProviderIsCalledByTheSameLoad) {
  static const Function<int(int)> f{"g_nested", "f", [](int x) { return x; }};
  add_provider("g_nested", [](Changes&) { return bring(f, "inner", add_1), Status(); });
  EXPECT_EQ(f(1), 2);
  EXPECT_TRUE(runtime().functions().load("g_nested").ok());
}

TEST_F(Groups, AProviderMayLoadItsGroup) {
  static const Function<int(int)> f{"g_again", "f", [](int x) { return x; }};
  static int asked = 0;
  add_provider("g_again", [](Changes&) {
    if (++asked > 1) return Status();
    return runtime().functions().load("g_again");
  });
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, ALateProviderIsCalledOnceByACallAndALoadAtTheSameTime) {
  static const Function<int(int)> f{"g_meanwhile", "f", [](int x) { return x; }};
  static std::atomic<int> asked{0};
  EXPECT_EQ(f(1), 1);
  add_provider("g_meanwhile", [](Changes& c) {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    c.add_backend(backend("meanwhile"));
    implement(c, f, "meanwhile", add_1);
    return Status();
  });
  std::thread caller([] { EXPECT_EQ(f(1), 2); });
  while (asked == 0) std::this_thread::yield();
  const Status loaded = runtime().functions().load("g_meanwhile");
  caller.join();
  EXPECT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(f(1), 2);
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
    implement(c, f, "switched", add_1);
    return Status();
  });
  runtime().set_policy(reference_only(true)).or_throw();
  EXPECT_EQ(f(1), 1);
  EXPECT_EQ(asked, 0);
  runtime().set_policy({}).or_throw();
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(asked, 1);
}

TEST_F(Groups, AProviderMayWaitForAThreadThatLoadsAnotherGroup) {
  static const Function<int(int)> f{"g_waits", "f", [](int x) { return x; }};
  static const Function<int(int)> g{"g_other", "g", [](int x) { return x; }};
  int elsewhere = 0;
  add_provider("g_waits", [&](Changes& c) {
    std::thread([&] { elsewhere = g(1); }).join();
    c.add_backend(backend("waits"));
    implement(c, f, "waits", add_1);
    return Status();
  });
  bring(g, "other", add_1);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(elsewhere, 2);
}

// Neither provider waits forever: the call in at least one of them runs the original.
TEST_F(Groups, ProvidersThatCallFunctionsOfEachOthersGroups) {
  static const Function<int(int)> f{"g_this", "f", [](int x) { return x; }};
  static const Function<int(int)> g{"g_that", "g", [](int x) { return x; }};
  std::atomic<int> inside{0}, originals{0};
  const auto provide = [&](const Function<int(int)>& own, const Function<int(int)>& peer) {
    add_provider(own.group(), [&](Changes& c) {
      ++inside;
      while (inside < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      originals += peer(1) == 1;
      c.add_backend(backend(own.group().c_str()));
      implement(c, own, own.group().c_str(), add_1);
      return Status();
    });
  };
  provide(f, g), provide(g, f);
  std::thread first([&] { EXPECT_EQ(f(1), 2); }), second([&] { EXPECT_EQ(g(1), 2); });
  first.join(), second.join();
  EXPECT_GE(originals, 1);
  EXPECT_EQ(f(1), 2);
  EXPECT_EQ(g(1), 2);
}

TEST_F(Groups, AForkedChildHasAllProviders) {
  static const Function<int(int)> f{"g_fork", "f", [](int x) { return x; }};
  bring(f, "forked", add_1);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) runtime().functions().sources();
  });
  std::thread writer([&] {
    // This provider is asked repeatedly, which changes data that a child reads.
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
