// SPDX-License-Identifier: Apache-2.0
// Plugins whose code does not return do not stop others. Also tests what log sinks may do while
// plugins are loaded.
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

// Plugins such as `start_waits` and `stop_waits` hang from begin() to end().
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
  // A call of the plugin's own op waits until the plugin is loaded, and then succeeds.
  std::thread second([&] { EXPECT_EQ(ask(runtime_, "behave"), 0); });
  std::this_thread::sleep_for(milliseconds(10));
  end();
  first.join(), other.join(), second.join();
  EXPECT_EQ(info_of(runtime_, "behave").state, PluginState::kLoaded);
  EXPECT_EQ(info_of(runtime_, "answer").state, PluginState::kLoaded);
}

// Plugin code may wait for another thread.
TEST_F(PluginHangs, CodeThatHangsDoesNotBlockChangesLoadsAndListings) {
  const std::string answer = folder_.put("answer"), newer = gates_.put("answer_v2");
  const Folder empty;
  float data[4] = {1, 2, 3, 4};
  const TensorView t(data, DType::f32, {1, 4});
  // The first call may make backends open libraries.
  ASSERT_TRUE(runtime_.call("softmax", {t, t}).ok());
  for (const char* when : {"load_waits", "query_waits", "start_waits"}) {
    SCOPED_TRACE(when);
    // glibc opens one library at a time and runs its constructors meanwhile.
    const bool may_open = std::string_view(when) != "load_waits";
    const std::string path = folder_.put(when);
    begin();
    std::atomic<bool> ready{false}, hangs{false}, done{false};
    std::thread other([&] {
      // Thread-local objects register their destructors with the C library under the lock that
      // opening a library holds. A first change and call make these objects before the plugin
      // hangs.
      EXPECT_TRUE(runtime_.set_policy({}).ok());
      EXPECT_TRUE(runtime_.call("softmax", {t, t}).ok());
      ready = true;
      while (!hangs) std::this_thread::yield();
      Changes c;
      yard_backend_t backend{};
      backend.size = sizeof backend, backend.name = when;
      EXPECT_TRUE(runtime_.apply(std::move(c.add_backend(backend))).ok());
      EXPECT_TRUE(runtime_.set_policy({}).ok());
      EXPECT_NE(info_of(runtime_, path).state, PluginState::kLoaded);
      EXPECT_TRUE(runtime_.call("softmax", {t, t}).ok());
      EXPECT_EQ(runtime_.plugins().forget("no_such_plugin").code(), Code::kNotFound);
      if (may_open) {
        EXPECT_TRUE(runtime_.plugins().load(answer).ok());
        EXPECT_EQ(ask(runtime_), 1);
        EXPECT_TRUE(runtime_.plugins().replace("answer", newer).ok());
        EXPECT_EQ(ask(runtime_), 2);
        EXPECT_TRUE(runtime_.plugins().unload("answer").ok());
      }
      EXPECT_TRUE(runtime_.plugins().discover({empty.path()}).ok());
      done = true;
    });
    EXPECT_TRUE(eventually([&] { return ready.load(); }, seconds(20)));
    std::thread first([&] { EXPECT_TRUE(runtime_.plugins().load(path).ok()); });
    EXPECT_TRUE(eventually([&] { return waits_at(gate_); }, seconds(20)));
    hangs = true;
    EXPECT_TRUE(eventually([&] { return done.load(); }, seconds(20)));
    // Another thread that loads the same plugin waits for the first.
    std::thread second([&] { EXPECT_TRUE(runtime_.plugins().load(path).ok()); });
    std::this_thread::sleep_for(milliseconds(10));
    end();
    first.join(), other.join(), second.join();
    EXPECT_EQ(info_of(runtime_, path).state, PluginState::kLoaded);
    auto ticket = runtime_.plugins().unload("behave").value();
    EXPECT_TRUE(ticket.wait(seconds(20)).ok());
  }
}

TEST_F(PluginHangs, CodeThatHangsAtItsEndDoesNotBlockChangesLoadsAndListings) {
  const std::string answer = folder_.put("answer");
  const Folder empty;
  for (const char* when : {"destroy_waits", "stop_waits", "close_waits"}) {
    SCOPED_TRACE(when);
    // glibc closes one library at a time and runs its destructors meanwhile.
    const bool may_open = std::string_view(when) != "close_waits";
    const std::string path = folder_.put(when);
    ASSERT_TRUE(runtime_.plugins().load(path).ok());
    EXPECT_EQ(ask(runtime_, "behave"), 0);
    EXPECT_EQ(ask(runtime_, "behave"), 0);
    begin();
    std::thread first(
        [&] { EXPECT_TRUE(runtime_.plugins().unload("behave").value().wait(seconds(20)).ok()); });
    EXPECT_TRUE(eventually([&] { return waits_at(gate_); }, seconds(20)));
    EXPECT_TRUE(runtime_.set_policy({}).ok());
    EXPECT_NE(info_of(runtime_, path).state, PluginState::kUnloaded);
    if (may_open) {
      EXPECT_TRUE(runtime_.plugins().load(answer).ok());
      EXPECT_EQ(ask(runtime_), 1);
      EXPECT_TRUE(runtime_.plugins().unload("answer").ok());
    }
    EXPECT_TRUE(runtime_.plugins().discover({empty.path()}).ok());
    end();
    first.join();
    EXPECT_EQ(info_of(runtime_, path).state, PluginState::kUnloaded);
  }
}

TEST_F(PluginHangs, CodeThatEndsItsThreadAtItsEndIsClosedAllTheSame) {
  for (const char* when : {"destroy_ends_thread", "stop_ends_thread"}) {
    SCOPED_TRACE(when);
    ASSERT_TRUE(runtime_.plugins().load(folder_.put(when, "behave")).ok());
    EXPECT_EQ(ask(runtime_, "behave"), 0);
    EXPECT_TRUE(runtime_.plugins().unload("behave").value().wait(seconds(20)).ok());
    EXPECT_EQ(info_of(runtime_, "behave").state, PluginState::kUnloaded);
  }
}

TEST_F(PluginHangs, TheEndOfARuntimeDoesNotWaitForCodeThatHangs) {
  std::optional<Runtime> runtime(std::in_place, alone());
  const std::string destroys = folder_.put("destroy_waits");
  ASSERT_TRUE(runtime->plugins().load(destroys).ok());
  EXPECT_EQ(ask(*runtime, "behave"), 0);
  begin();
  const auto start = std::chrono::steady_clock::now();
  runtime.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(10));
  EXPECT_TRUE(eventually([&] { return waits_at(gate_); }));
  end();
}

TEST_F(PluginHangs, TheSecondOfOneNameWaitsForTheFirst) {
  const std::string one = folder_.put("start_waits"), other = folder_.put("behave");
  begin();
  std::thread first([&] { EXPECT_TRUE(runtime_.plugins().load(one).ok()); });
  ASSERT_TRUE(eventually([&] { return waits_at(gate_); }));
  std::atomic<bool> answered{false};
  std::thread second([&] {
    const Status s = runtime_.plugins().load(other);
    EXPECT_NE(s.to_string().find("duplicate"), std::string::npos) << s.to_string();
    answered = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(answered);
  end();
  first.join(), second.join();
  EXPECT_EQ(info_of(runtime_, one).state, PluginState::kLoaded);
  EXPECT_EQ(info_of(runtime_, other).state, PluginState::kRefused);
}

TEST_F(PluginHangs, ALogSinkMayWaitForAThreadThatLoadsAnotherPlugin) {
  const std::string answer = folder_.put("answer"), quiet = folder_.put("quiet");
  Status here, elsewhere;
  std::atomic<int> told{0};
  ASSERT_TRUE(set_log_level("plugin", LogLevel::kInfo).ok());
  set_log_sink([&](const LogMessage& m) {
    if (m.logger != "plugin" || ++told > 1) return;
    here = runtime_.plugins().load(quiet);
    std::thread([&] { elsewhere = runtime_.plugins().load(quiet); }).join();
  });
  const Status loaded = runtime_.plugins().load(answer);
  set_log_sink({});
  set_log_level("plugin", LogLevel::kWarn).ignore();
  EXPECT_GE(told, 1);
  for (const Status& s : {loaded, elsewhere}) EXPECT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(here.code(), Code::kWouldDeadlock);  // this thread is still inside a load
  for (const std::string& path : {answer, quiet})
    EXPECT_EQ(info_of(runtime_, path).state, PluginState::kLoaded);
}

// A call is the last user of an unloaded plugin, and another thread only calls other ops.
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
  frozen.reset();  // like the end of a call
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
  // The file cannot be loaded again while its stop hangs.
  EXPECT_FALSE(runtime_.plugins().load("behave").ok());
  end();
  EXPECT_TRUE(ticket.wait(seconds(20)).ok());
  EXPECT_TRUE(runtime_.plugins().load("behave").ok());
}

}  // namespace
}  // namespace yard::testing
