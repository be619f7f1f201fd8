// SPDX-License-Identifier: Apache-2.0
// Plugins whose start or stop does not return, and recordings that take long to end: calls of others go on.
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/log.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>

#include "base/testing_files.h"
#include "plugin_files.h"

namespace yard::testing {
namespace {

using base::eventually;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Plugins `start_waits` and `stop_waits` hang from begin() to end().
class PluginHangs : public ::testing::Test {
 protected:
  PluginHangs() : runtime_(alone()) { ::setenv("PLUGIN_WAITS", gate_.c_str(), 1); }
  ~PluginHangs() override {
    end();
    ::unsetenv("PLUGIN_WAITS");
  }
  void begin() { std::ofstream(gate_) << "closed"; }
  void end() { fs::remove(gate_); }
  void find(const char* plugin) {
    folder_.put(plugin);
    ASSERT_TRUE(runtime_.plugins().discover({folder_.path()}).ok());
  }

  Folder folder_, gates_;
  const std::string gate_ = gates_.file("gate");
  Runtime runtime_;
};

TEST_F(PluginHangs, AStartThatHangsDoesNotBlockFirstCallsOfOtherPlugins) {
  find("start_waits");
  find("answer");
  begin();
  std::thread first([&] { EXPECT_EQ(ask(runtime_, "behave"), 0); });
  ASSERT_TRUE(eventually([&] { return waits_at(gate_); }));
  std::atomic<bool> answered{false};
  std::thread other([&] {
    EXPECT_EQ(ask(runtime_), 1);
    answered = true;
  });
  EXPECT_TRUE(eventually([&] { return answered.load(); }, seconds(20)));
  // A call of its own op waits, and is served.
  std::thread second([&] { EXPECT_EQ(ask(runtime_, "behave"), 0); });
  std::this_thread::sleep_for(milliseconds(10));
  end();
  first.join(), other.join(), second.join();
  EXPECT_EQ(info_of(runtime_, "behave").state, PluginState::kLoaded);
  EXPECT_EQ(info_of(runtime_, "answer").state, PluginState::kLoaded);
}

// The last user of an unloaded plugin is a call; another thread only calls other ops.
TEST_F(PluginHangs, AStopThatHangsIsNotRunByCalls) {
  find("stop_waits");
  EXPECT_EQ(ask(runtime_, "behave"), 0);
  int64_t out = -1, x = 5;
  std::optional frozen = freeze(Op<void(Out, In)>{"behave"}.on(runtime_),
                                TensorView(&out, DType::i64, {1}), TensorView(&x, DType::i64, {1}))
                             .value();
  auto ticket = runtime_.plugins().unload("behave").value();
  EXPECT_FALSE(ticket.done());
  begin();
  frozen.reset();  // as a call that ends
  ASSERT_TRUE(eventually([&] { return !info_of(runtime_, "behave").detail.empty(); }));
  EXPECT_EQ(info_of(runtime_, "behave").state, PluginState::kUnloading);
  EXPECT_NE(info_of(runtime_, "behave").detail.find("has not returned"), std::string::npos);
  float data[4] = {1, 2, 3, 4};
  const TensorView t(data, DType::f32, {1, 4});
  for (int i = 0; i < 400; ++i) {
    Options options;
    options.labels["n"] = std::to_string(i);
    EXPECT_TRUE(runtime_.call("softmax", {t, t}, options).ok());
  }
  EXPECT_TRUE(runtime_.set_policy({}).ok());
  EXPECT_EQ(ticket.wait(milliseconds(20)).code(), Code::kDeadline);
  // The same file is not started again before that.
  EXPECT_FALSE(runtime_.plugins().load("behave").ok());
  end();
  EXPECT_TRUE(ticket.wait(seconds(20)).ok());
  EXPECT_TRUE(runtime_.plugins().load("behave").ok());
}

}  // namespace
}  // namespace yard::testing
