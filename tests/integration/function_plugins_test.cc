// SPDX-License-Identifier: Apache-2.0
// Plugins that implement dispatched functions are opened by the first call of the group and checked
// against the declaration.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../plugins/functions.h"
#include "functions_testing.h"

namespace yard::testing::function_plugins {
namespace {

using ::testing::HasSubstr;

const char* const kFile = YARD_TEST_PLUGINS "/plugged.so";

class FunctionPlugins : public FunctionTest {
 protected:
  void SetUp() override {
    FunctionTest::SetUp();
    ASSERT_TRUE(runtime().plugins().discover({kFile}).ok());
  }
  void TearDown() override {
    FunctionTest::TearDown();
    runtime().plugins().forget(kFile).ignore();
  }
  const Function<int64_t(int64_t)> plugged_{"plugged_group", "plugged",
                                            [](int64_t x) { return -x; }};
  static PluginInfo plugin() {
    for (const PluginInfo& p : runtime().plugins().list())
      if (p.path == kFile) return p;
    return {};
  }
};

TEST_F(FunctionPlugins, AreOpenedAtTheFirstCallOfAGroupOfTheirs) {
  EXPECT_EQ(plugin().state, PluginState::kFound);
  EXPECT_EQ(plugged_(4), 41);
  EXPECT_EQ(plugin().state, PluginState::kLoaded);
  EXPECT_STREQ(plugged_.last_selected(), "plugged");
  EXPECT_EQ(plugged_(100), -100);
  EXPECT_EQ(plugged_.explain(100).candidates[0].detail, "100 is more than 99");
  const Ticket gone = runtime().plugins().unload("plugged").value();
  EXPECT_EQ(plugged_(4), -4);
  EXPECT_TRUE(gone.wait(std::chrono::seconds(10)).ok());
}

using OtherSignature = FunctionPlugins;

TEST_F(OtherSignature, IsRefusedWhenThePluginIsLoaded) {
  const Function<int64_t(double)> f{"active_group", "plugged", [](double) { return int64_t{7}; }};
  EXPECT_EQ(f(4), 7);
  const PluginInfo p = plugin();
  EXPECT_EQ(p.state, PluginState::kRefused);
  EXPECT_THAT(p.detail,
              HasSubstr("function 'active_group/plugged' of backend 'plugged' has another "
                        "signature than its declaration"));
  EXPECT_THAT(p.detail, HasSubstr("declared: i64(f64)"));
}

TEST_F(OtherSignature, OfAFunctionThatIsDeclaredLaterIsNotServed) {
  runtime().plugins().load(kFile).or_throw();
  EXPECT_FALSE(info("active_group/plugged").declared);
  const Function<int64_t(double)> f{"active_group", "plugged", [](double) { return int64_t{7}; }};
  EXPECT_EQ(f(4), 7);
  const FunctionProvider p = provider("active_group/plugged", "plugged");
  EXPECT_FALSE(p.on);
  EXPECT_EQ(p.detail, "its signature is i64(i64), declared is i64(f64)");
}

// ---- Active backends ----

const char* const kInC = YARD_TEST_PLUGINS "/functions_in_c.so";

class ActivePlugins : public FunctionPlugins {
 protected:
  void TearDown() override {
    FunctionPlugins::TearDown();
    runtime().plugins().forget(kInC).ignore();
  }
  static int64_t ask(const Function<int64_t(int64_t)>& f) {
    return f.call_or([] { return int64_t{-1}; }, 4);
  }
  yard::Functions functions = runtime().functions();
};

TEST_F(ActivePlugins, AreActivatedBeforeTheyAreOpened) {
  const Function<int64_t(int64_t)> plugged{"active_group", "plugged"}, other{"not_theirs", "f"};
  ASSERT_TRUE(functions.activate("plugged").ok()) << "it is waited for";
  EXPECT_TRUE(functions.activations()[0].waiting);
  EXPECT_EQ(ask(other), -1);
  EXPECT_EQ(plugin().state, PluginState::kFound);
  EXPECT_EQ(ask(plugged), 41);
  EXPECT_EQ(plugin().state, PluginState::kLoaded);
  EXPECT_FALSE(functions.activations()[0].waiting);
  ASSERT_TRUE(runtime().reset().ok());
  EXPECT_EQ(ask(plugged), -1);
  ASSERT_TRUE(functions.activate("plugged").ok());
  EXPECT_EQ(ask(plugged), 41) << "it is opened again";
}

TEST_F(ActivePlugins, ChainWithFunctionsOfTheProgramInCAndInCpp) {
  const Function<int64_t(int64_t)> plugged{"active_group", "plugged"},
      chained{"active_group", "chained"};
  runtime().plugins().load(kFile).or_throw();
  runtime().plugins().load(kInC).or_throw();
  ASSERT_TRUE(functions.activate("in_c").ok());
  EXPECT_EQ(ask(plugged), 40);
  EXPECT_EQ(ask(chained), 4);  // the default returns -1, and the implementation adds 5
  ASSERT_TRUE(functions.activate("plugged").ok());
  EXPECT_EQ(ask(chained), 401);
  Changes c;
  implement(c, chained, "own", [](Next<int64_t(int64_t)> next, int64_t x) { return -next(x); });
  runtime().apply(std::move(c)).or_throw();
  ASSERT_TRUE(functions.activate("own").ok());
  EXPECT_EQ(ask(chained), -401);
}

// FlagTree does not notice when macros change class layouts against prebuilt libraries.
TEST_F(ActivePlugins, OfAnotherClassLayoutAreRefused) {
  const Function<int64_t(const Target&, int64_t)> described{"active_group", "described"};
  const char* const wider = YARD_TEST_PLUGINS "/plugged_wider.so";
  runtime().plugins().forget(kFile).or_throw();  // the other plugin has the same name
  const Status s = runtime().plugins().load(wider);
  EXPECT_THAT(s.to_string(), HasSubstr("yard::testing::Target{8:8}"));
  EXPECT_THAT(s.to_string(), HasSubstr("yard::testing::Target{16:8}"));
  EXPECT_TRUE(info("active_group/described").providers.empty()) << "all or nothing";
  runtime().plugins().forget(wider).ignore();
}

TEST_F(ActivePlugins, AreNotClosedWhileAFunctionOfTheirsRuns) {
  const Function<int64_t(Gate*)> held{"active_group", "held"};
  runtime().plugins().load(kFile).or_throw();
  ASSERT_TRUE(functions.activate("plugged").ok());
  Gate gate;
  int64_t result = 0;
  std::thread caller([&] { result = held.call_or([] { return int64_t{-1}; }, &gate); });
  while (!gate.inside.load()) std::this_thread::yield();
  const Ticket gone = runtime().plugins().unload("plugged").value();
  EXPECT_EQ(gone.wait(std::chrono::milliseconds(20)).code(), Code::kDeadline);
  gate.open = true;
  caller.join();
  EXPECT_EQ(result, 1);
  EXPECT_TRUE(gone.wait(std::chrono::seconds(30)).ok());
}

// ---- While a plugin is being loaded ----

const char* const kOther = YARD_TEST_PLUGINS "/answer.so";
using LoadingPlugin = FunctionTest;

template <class F>
void while_loading(const F& act) {
  set_log_level(LogLevel::kInfo);
  set_log_sink([&](const LogMessage& m) {
    if (m.text.find(kOther) != m.text.npos) act();
  });
  Runtime::shared().plugins().load(kOther).or_throw();
  set_log_sink({});
}

TEST_F(LoadingPlugin, ACallDoesNotDeadlockWithTheLoader) {
  static const Function<int(int)> one{"p_one", "f", [](int x) { return x; }};
  static const Function<int(int)> two{"other", "f", [](int x) { return x; }};
  const auto both = [] {
    ::alarm(20);
    // The plugin serves the group `other`, so the first call there waits for the loader.
    runtime().plugins().discover({YARD_TEST_PLUGINS "/of_a_group.so"}).or_throw();
    static std::atomic<bool> loading{false}, done{false};
    std::thread other([] {
      while (!loading) std::this_thread::yield();
      two(1);
    });
    while_loading([] {
      if (loading.exchange(true)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      done = one(1) == 1;
    });
    other.join();
    ::_exit(done ? 0 : 1);
  };
  EXPECT_EXIT(both(), ::testing::ExitedWithCode(0), "");
}

TEST_F(LoadingPlugin, AGroupThatCannotBeLoadedThenIsLoadedByTheNextCall) {
  static const Function<int(int)> f{"p_next", "f", [](int x) { return x; }};
  bring(f, "next", [](int x) { return x + 1; });
  int then = 0;
  Status loaded;
  const auto act = [&] {
    then = f(1);
    loaded = runtime().functions().load("p_next");
  };
  const auto in_child = [&] {
    while_loading(act);
    ::_exit(then == 1 && loaded.code() == Code::kWouldDeadlock && f(1) == 2 ? 0 : 1);
  };
  EXPECT_EXIT(in_child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace yard::testing::function_plugins
