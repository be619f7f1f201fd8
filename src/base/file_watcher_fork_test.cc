// SPDX-License-Identifier: Apache-2.0
// Threads that work in the background, in a forked child: there are none, and they can be had again.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>

#include "base/background.h"
#include "base/file_watcher.h"
#include "base/testing_files.h"

namespace yard::base {
namespace {

using namespace std::chrono_literals;

TEST(FileWatcherFork, AChildWatchesWhenTold) {
  const TempFolder folder;
  const std::string file = folder / "rules.yaml";
  std::atomic<int> reports{0};
  FileWatcher watcher([&] { return ++reports > 0; });
  const WatchHow how{Watch::kAuto, 20ms, 10ms};
  ASSERT_TRUE(watcher.start({file}, how).ok());
  ASSERT_TRUE(eventually([&] { return reports == 1; }));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool quiet = !watcher.running();
    watcher.stop();
    reports = 0;
    const bool started = watcher.start({file}, how).ok();
    const bool first = eventually([&] { return reports == 1; });
    replace(file, "child");
    const bool second = eventually([&] { return reports == 2; });
    watcher.stop();
    ::_exit(quiet && started && first && second ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The parent goes on as before.
  EXPECT_TRUE(eventually([&] { return reports >= 2; }));
  const int before = reports;
  replace(file, "parent");
  EXPECT_TRUE(eventually([&] { return reports > before; }));
}

TEST(TaskThread, RunsTasksInOrderAlsoInAForkedChild) {
  std::vector<int> ran;
  std::atomic<int> count{0};
  TaskThread thread;
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(thread
                    .post([&, i] {
                      ran.push_back(i);
                      ++count;
                    })
                    .ok());
  ASSERT_TRUE(eventually([&] { return count == 100; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<size_t>(i)], i);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool posted = thread.post([&] { ++count; }).ok();
    ::_exit(posted && eventually([&] { return count == 101; }) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(TaskThread, DropsWhatHasNotBegunWhenItEnds) {
  std::atomic<int> count{0};
  std::function<void()> again;
  {
    TaskThread thread;
    // There is always one more.
    again = [&] {
      ++count;
      EXPECT_TRUE(thread.post(again).ok());
    };
    ASSERT_TRUE(thread.post(again).ok());
    ASSERT_TRUE(eventually([&] { return count > 3; }));
  }
  const int before = count;
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(count, before);
}

TEST(TaskThread, DropsWhatIsPostedAfterItsEnd) {
  std::atomic<int> count{0};
  TaskThread thread;
  thread.stop();  // before it has begun
  EXPECT_TRUE(thread.post([&] { ++count; }).ok());
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace yard::base
