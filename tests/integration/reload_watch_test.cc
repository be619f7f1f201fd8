// SPDX-License-Identifier: Apache-2.0
// Tests which file is watched: if rules ask for it, if the program does, and if both change at
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "reload_fixture.h"

namespace yard::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kHot = "settings: {mode: hot_reload, reload: {debounce: 20ms}}\n";

class ReloadWatch : public Reload {
 protected:
  const std::string other_ = folder_ / "other.yaml";
};

TEST_F(ReloadWatch, AChangeOfTheOldFileDoesNotOvertakeTheNewOne) {
  base::replace(file_, locked("default.a", kHot));
  rt_.rules().load(file_).or_throw();
  rt_.rules().add_validator([&](const Config& c) {
    if (c.kernel_locks.at("step").id != "default.b") return Status();
    base::replace(file_, locked("default.c", kHot));
    std::this_thread::sleep_for(300ms);  // the watcher has read the file and waits
    return Status();
  });
  base::replace(other_, locked("default.b"));
  rt_.rules().load(other_).or_throw();
  EXPECT_EQ(ran(), 2);
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(ran(), 2);
}

TEST_F(ReloadWatch, ARefusedFileDoesNotReplaceTheWatch) {
  base::replace(file_, locked("default.a", kHot));
  rt_.rules().load(file_).or_throw();
  base::replace(other_, locked("default.aa", kHot));
  EXPECT_FALSE(rt_.rules().load(other_).ok());
  base::replace(file_, locked("default.b", kHot));
  EXPECT_TRUE(becomes(2));
  base::replace(other_, locked("default.c", kHot));
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(ran(), 2);
}

TEST_F(ReloadWatch, WhatTheProgramWatchesIsNotTakenOver) {
  base::replace(file_, locked("default.a"));
  rt_.rules().watch(file_, quick()).or_throw();
  for (const char* kernel : {"default.aa", "default.c"}) {
    base::replace(other_, locked(kernel, "settings: {mode: hot_reload}\n"));
    rt_.rules().load(other_).ignore();
  }
  EXPECT_EQ(ran(), 3);
  base::replace(file_, locked("default.b"));
  EXPECT_TRUE(becomes(2));
  base::replace(other_, locked("default.a", "settings: {mode: hot_reload}\n"));
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(ran(), 2);
}

TEST_F(ReloadWatch, LoadingTheFileThatTheProgramWatchesKeepsItsSettings) {
  base::replace(file_, locked("default.a", "settings: {mode: hot_reload}\n"));
  rt_.rules().watch(file_, {1h, 1h}).or_throw();
  rt_.rules().load(file_).or_throw();
  base::replace(file_, locked("default.b", "settings: {mode: hot_reload}\n"));
  std::this_thread::sleep_for(400ms);  // with the defaults the file would have been read by now
  EXPECT_EQ(ran(), 1);
}

TEST_F(ReloadWatch, AValidatorCannotWatchAFile) {
  base::replace(other_, locked("default.b"));
  Status inside;
  const uint64_t id = rt_.rules().add_validator([&](const Config&) {
    inside = rt_.rules().watch(other_, quick());
    return Status();
  });
  rt_.rules().set({}).or_throw();
  rt_.rules().remove_callback(id);
  EXPECT_EQ(inside.code(), Code::kWouldDeadlock);
  base::replace(other_, locked("default.c"));
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(ran(), 1);
}

TEST_F(ReloadWatch, AValidatorMayEndTheWatch) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  rt_.rules().add_validator([&](const Config&) {
    base::replace(file_, locked("default.c"));
    std::this_thread::sleep_for(150ms);  // the watcher has read the file and waits
    rt_.rules().unwatch();
    return Status();
  });
  rt_.rules().set({}).or_throw();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ran(), 1);
}

TEST_F(ReloadWatch, AFileThatReturnsUnchangedDoesNotUndoARollback) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  base::replace(file_, locked("default.c"));
  ASSERT_TRUE(becomes(3));
  rt_.rules().roll_back(1).or_throw();
  std::filesystem::remove(file_);
  ASSERT_TRUE(base::eventually([&] { return !rt_.problems().empty(); }));
  base::replace(file_, locked("default.c"));
  EXPECT_TRUE(base::eventually([&] { return rt_.problems().empty(); }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ran(), 2);
  EXPECT_THAT(rt_.rules().history(), SizeIs(3));
  base::replace(file_, locked("default.a"));
  EXPECT_TRUE(becomes(1));
}

TEST_F(ReloadWatch, AFileThatIsRestoredUnchangedIsReported) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  std::filesystem::remove(file_);
  ASSERT_TRUE(told(2));
  base::replace(file_, locked("default.b"));
  ASSERT_TRUE(told(3));
  EXPECT_EQ(events()[2].kind, ConfigEvent::Kind::kReloaded);
  EXPECT_THAT(rt_.problems(), IsEmpty());
}

}  // namespace
}  // namespace yard::testing
