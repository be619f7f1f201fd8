// SPDX-License-Identifier: Apache-2.0
// Unloaded plugins stay unloaded, rules can require verified plugins, untrusted lock files are
// ignored, and a call never waits for a plugin that does not serve it.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using State = PluginState;

void unload(Runtime& runtime, const char* name) {
  runtime.plugins().unload(name).value().wait().or_throw();
}

TEST(UnloadedPlugins, StayUnloadedUntilRequested) {
  Folder folder, empty;
  const std::string path = folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  unload(runtime, "answer");
  ASSERT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(info_of(runtime, "answer").state, State::kUnloaded);
  ASSERT_TRUE(runtime.plugins().discover({empty.path()}).ok());
  ASSERT_TRUE(runtime.plugins().state_device_features({"cuda:sm_90"}).ok());
  EXPECT_EQ(info_of(runtime, "answer").state, State::kUnloaded);
  EXPECT_EQ(ask(runtime), -1);
  ASSERT_TRUE(runtime.plugins().discover({path}).ok());
  EXPECT_EQ(ask(runtime), 1);
  unload(runtime, "answer");
  ASSERT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime), 1);
  // Another file is a different plugin.
  unload(runtime, "answer");
  folder.put("answer_v2", "answer");
  ASSERT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(ask(runtime), 2);
}

TEST(UnloadedPlugins, ThatArePinnedAreStillReportedAfterASearch) {
  Folder folder;
  folder.put("restless");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime, "restless"), 1);
  unload(runtime, "restless");
  ASSERT_EQ(info_of(runtime, "restless").state, State::kPinned);
  const std::string why = info_of(runtime, "restless").detail;
  ASSERT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(info_of(runtime, "restless").state, State::kPinned);
  EXPECT_EQ(info_of(runtime, "restless").detail, why);
}

TEST(UnloadedPlugins, DoNotBlockANewVersionInAnotherFile) {
  Folder folder;
  const std::string old = folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  unload(runtime, "answer");
  const std::string next = folder.put("answer_v2", "next");
  // The program unloaded a plugin of this name on purpose, so discover() does not load another one.
  ASSERT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(info_of(runtime, next).reason, PluginReason::kDuplicateName);
  EXPECT_THAT(info_of(runtime, next).detail, AllOf(HasSubstr(old), HasSubstr("load()")));
  EXPECT_EQ(ask(runtime), -1);
  const Status s = runtime.plugins().load(next);
  ASSERT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(ask(runtime), 2);
  EXPECT_THAT(std::string(runtime.plugins().load(old).message()), HasSubstr("loaded already"));
}

// Holds the load of plugin `answer` at its start until it is released.
class HeldLoad {
 public:
  RuntimeSettings settings(std::vector<std::string> paths) {
    RuntimeSettings s = alone(std::move(paths));
    s.plugins.watch = [this](std::string_view path, std::string_view step) {
      if (step != "start" || !path.ends_with("/answer.so")) return;
      reached_.set_value();
      go_.get_future().wait();
    };
    return s;
  }
  void wait() { reached_.get_future().wait(); }
  void let_go() { go_.set_value(); }

 private:
  std::promise<void> reached_, go_;
};

TEST(PluginsThatTakeTheirTime, DelayOnlyTheirOwnCallers) {
  Folder folder;
  folder.put("answer"), folder.put("old_layout");
  HeldLoad held;
  Runtime runtime(held.settings({folder.path()}));
  std::thread loads([&] { EXPECT_EQ(ask(runtime), 1); });
  held.wait();
  auto other = std::async(std::launch::async, [&] {
    float x[4] = {1, 2, 3, 4}, w[4] = {1, 1, 1, 1}, out[4];
    return runtime.call("rms_norm",
                        {TensorView(out, DType::f32, {1, 4}), TensorView(x, DType::f32, {1, 4}),
                         TensorView(w, DType::f32, {4})});
  });
  auto same = std::async(std::launch::async, [&] { return ask(runtime); });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(same.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  held.let_go();
  loads.join();
  EXPECT_TRUE(other.get().ok());
  EXPECT_EQ(same.get(), 1);
}

// A thread that is loading a plugin does not wait for another load, because that load might wait
// for this thread.
TEST(PluginsThatTakeTheirTime, MakeWhatBuildsOnThemBusy) {
  Folder folder;
  folder.put("answer"), folder.put("kernel_only");
  HeldLoad held;
  Runtime runtime(held.settings({folder.path()}));
  std::thread loads([&] { EXPECT_TRUE(runtime.plugins().load("answer").ok()); });
  held.wait();
  const Status refused = runtime.plugins().load("helper");
  EXPECT_EQ(refused.code(), Code::kWouldDeadlock);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("busy: "), HasSubstr("another thread works on plugin 'answer'")));
  EXPECT_EQ(info_of(runtime, "helper").state, State::kFound);
  held.let_go();
  loads.join();
  EXPECT_TRUE(runtime.plugins().load("helper").ok());
  EXPECT_EQ(ask(runtime), 3);
}

TEST(LockFiles, OfAnUntrustedDirectoryAreIgnored) {
  Folder open, good;
  const std::string refused = open.put("old_layout"), path = good.put("answer");
  open.put_bytes("nonsense\n", "yard.lock");
  ASSERT_EQ(::chmod(open.path().c_str(), 0777), 0);
  Runtime runtime(alone());
  EXPECT_FALSE(runtime.plugins().load(refused).ok());
  EXPECT_EQ(info_of(runtime, refused).reason, PluginReason::kWritableByOthers);
  const Status s = runtime.plugins().load(path);
  EXPECT_TRUE(s.ok()) << s.to_string();
}

TEST(LockFiles, BesideAPluginApplyWhenItIsLoadedByItsPath) {
  Folder folder;
  const std::string path = folder.put("answer");
  folder.put_bytes("", "yard.lock");
  Runtime runtime(alone());
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, PluginReason::kNotInLockFile);
}

TEST(LockFiles, ThatAreDanglingLinksAdmitNoPlugin) {
  Folder folder;
  const std::string path = folder.put("answer");
  fs::create_symlink(folder.file("gone"), folder.file("yard.lock"));
  Runtime runtime(alone());
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, path).reason, PluginReason::kBadLockFile);
  EXPECT_EQ(runtime.plugins().would_load(path).reason, PluginReason::kBadLockFile);
}

TEST(Links, MustNotLeadToWritableDirectories) {
  Folder open, good, here;
  const std::string bad_end = open.put("answer"), good_end = good.put("old_layout");
  fs::create_symlink(bad_end, here.file("ends_badly.so"));
  fs::create_symlink(good_end, open.file("on.so"));
  fs::create_symlink(open.file("on.so"), here.file("by_way_of.so"));
  fs::create_symlink(
      "../" + fs::path(good_end).parent_path().filename().string() + "/old_layout.so",
      here.file("good.so"));
  fs::create_symlink("round.so", here.file("round.so"));
  ASSERT_EQ(::chmod(open.path().c_str(), 0777), 0);
  Runtime runtime(alone());
  for (const char* name : {"ends_badly.so", "by_way_of.so"}) {
    const PluginInfo info = runtime.plugins().inspect(here.file(name));
    EXPECT_EQ(info.reason, PluginReason::kWritableByOthers) << name;
    EXPECT_THAT(info.detail, HasSubstr(open.path())) << name;
    EXPECT_FALSE(runtime.plugins().load(here.file(name)).ok()) << name;
  }
  EXPECT_EQ(runtime.plugins().inspect(here.file("round.so")).reason, PluginReason::kUnreadable);
  EXPECT_TRUE(runtime.plugins().load(here.file("good.so")).ok());
  RuntimeSettings settings = alone();
  settings.plugins.allow_writable = true;
  EXPECT_TRUE(Runtime(settings).plugins().load(here.file("ends_badly.so")).ok());
}

class OnlyVerified : public ::testing::Test {
 protected:
  OnlyVerified() {
    RuntimeSettings s = alone({folder_.path()});
    s.plugins.state_directory = state_.path();
    runtime_ = std::make_unique<Runtime>(s);
  }
  void require(bool yes) {
    Config c;
    c.settings.plugins.require_verified = yes;
    runtime_->rules().set(c).or_throw();
  }

  Folder folder_, state_;
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(OnlyVerified, AppliesToLoadsFromThenOn) {
  folder_.put("answer");
  const std::string old = folder_.put("old_layout");
  runtime_->plugins().discover().or_throw();
  EXPECT_EQ(ask(*runtime_), 1);
  require(true);
  EXPECT_EQ(info_of(*runtime_, "answer").state, State::kLoaded);
  EXPECT_EQ(ask(*runtime_), 1);
  Status why;
  EXPECT_EQ(ask(*runtime_, "old", &why), -1);
  EXPECT_THAT(why.to_string(), HasSubstr("not_verified"));
  runtime_->plugins().remember_verified(runtime_->plugins().inspect(old).sha256).or_throw();
  ASSERT_TRUE(runtime_->plugins().load("old_layout").ok());
  EXPECT_EQ(ask(*runtime_, "old"), 41);
}

TEST_F(OnlyVerified, IsDecidedByTheDigest) {
  const std::string path = folder_.put("answer");
  require(true);
  EXPECT_FALSE(runtime_->plugins().load(path).ok());
  EXPECT_EQ(info_of(*runtime_, path).reason, PluginReason::kNotVerified);
  EXPECT_THAT(info_of(*runtime_, path).detail, HasSubstr("`yard verify " + path + "`"));
  const std::string digest = runtime_->plugins().inspect(path).sha256;
  EXPECT_FALSE(runtime_->plugins().remember_verified("x").ok());
  ASSERT_TRUE(runtime_->plugins().remember_verified(digest).ok());
  EXPECT_TRUE(runtime_->plugins().inspect(path).verified);
  folder_.put("answer_v2", "answer");
  EXPECT_EQ(runtime_->plugins().would_load(path).reason, PluginReason::kNotVerified);
  folder_.put("answer");
  EXPECT_EQ(runtime_->plugins().would_load(path).reason, PluginReason::kNone);
  // A failed verification withdraws the permission.
  ASSERT_TRUE(runtime_->plugins().remember_verified(digest, false).ok());
  EXPECT_FALSE(runtime_->plugins().load(path).ok());
  EXPECT_THAT(info_of(*runtime_, path).detail, HasSubstr("failed on"));
}

TEST_F(OnlyVerified, AResultsFileThatOthersCanWriteIsIgnored) {
  const std::string path = folder_.put("answer");
  require(true);
  const std::string digest = runtime_->plugins().inspect(path).sha256;
  ASSERT_TRUE(runtime_->plugins().remember_verified(digest).ok());
  ASSERT_EQ(::chmod(state_.path().c_str(), 0777), 0);
  EXPECT_FALSE(runtime_->plugins().load(path).ok());
  EXPECT_EQ(info_of(*runtime_, path).reason, PluginReason::kNotVerified);
  EXPECT_THAT(info_of(*runtime_, path).detail, HasSubstr("is not trusted"));
}

// Concurrent changes must not restore settings of an earlier file.
TEST_F(OnlyVerified, FollowsTheLastFile) {
  const std::string path = folder_.put("answer");
  std::atomic<bool> done{false};
  std::thread others([&] {
    while (!done) runtime_->set_policy({}).or_throw();
  });
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    require(i % 2 == 0);
    wrong += runtime_->plugins().would_load(path).reason !=
             (i % 2 == 0 ? PluginReason::kNotVerified : PluginReason::kNone);
  }
  done = true;
  others.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace yard::testing
