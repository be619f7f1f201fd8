// SPDX-License-Identifier: Apache-2.0
// Dispatched functions that plugins implement: opened by the first call of the group, held against the declaration.
#include <sys/stat.h>

#include "functions_testing.h"

namespace yard::testing {
namespace {

const char* const kFile = YARD_TEST_PLUGINS "/hooked.so";

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
  static PluginInfo plugin() {
    for (const PluginInfo& p : runtime().plugins().list())
      if (p.path == kFile) return p;
    return {};
  }
};

TEST_F(FunctionPlugins, AGroupOpensItsPluginsAtTheFirstCall) {
  const Function<int64_t(int64_t)> f{"plugged_group", "plugged", [](int64_t x) { return -x; }};
  EXPECT_EQ(plugin().state, PluginState::kFound);
  EXPECT_EQ(f(4), 41);
  EXPECT_EQ(plugin().state, PluginState::kLoaded);
  EXPECT_STREQ(f.last_selected(), "hooked");
}

TEST_F(FunctionPlugins, AVerifierOfAPluginSaysWhy) {
  const Function<int64_t(int64_t)> f{"plugged_group", "plugged", [](int64_t x) { return -x; }};
  EXPECT_EQ(f(100), -100);
  EXPECT_EQ(provider("plugged_group/plugged", "hooked").refusals[0].text, "100 is more than 99");
  EXPECT_EQ(f.explain(100).candidates[0].detail, "100 is more than 99");
}

TEST_F(FunctionPlugins, AnotherSignatureIsRefusedWhenThePluginIsLoaded) {
  const Function<int64_t(double)> f{"plugged_group", "plugged", [](double) { return int64_t{7}; }};
  EXPECT_EQ(f(4), 7);
  const PluginInfo p = plugin();
  EXPECT_EQ(p.state, PluginState::kRefused);
  EXPECT_NE(p.detail.find("function 'plugged_group/plugged' of backend 'hooked' has another "
                          "signature than its declaration"),
            std::string::npos)
      << p.detail;
  EXPECT_NE(p.detail.find("declared: i64(f64)"), std::string::npos) << p.detail;
}

TEST_F(FunctionPlugins, AFunctionThatIsDeclaredLaterWithAnotherSignatureIsNotServed) {
  runtime().plugins().load(kFile).or_throw();
  EXPECT_FALSE(info("plugged_group/plugged").declared);
  const Function<int64_t(double)> f{"plugged_group", "plugged", [](double) { return int64_t{7}; }};
  EXPECT_EQ(f(4), 7);
  const FunctionProvider p = provider("plugged_group/plugged", "hooked");
  EXPECT_FALSE(p.on);
  EXPECT_EQ(p.detail, "its signature is i64(i64), declared is i64(f64)");
}

TEST_F(FunctionPlugins, AnUnloadedPluginIsNotCalledAnyMore) {
  const Function<int64_t(int64_t)> f{"plugged_group", "plugged", [](int64_t x) { return -x; }};
  EXPECT_EQ(f(4), 41);
  Ticket gone = runtime().plugins().unload("hooked").value();
  EXPECT_EQ(f(4), -4);
  EXPECT_TRUE(gone.wait(std::chrono::seconds(10)).ok());
}

}  // namespace
}  // namespace yard::testing
