// SPDX-License-Identifier: Apache-2.0
// Tests that every way to change a file is noticed.
#include "base/file_watch.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <sstream>

#include "base/testing_files.h"

namespace yard::base {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string content(const std::string& path) {
  std::ifstream in(path);
  if (!in) return "none";
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

class AFileWatch : public ::testing::Test {
 protected:
  AFileWatch()
      : file_(folder_ / "rules.yaml"), watcher_([this] {
          const std::string text = content(file_);
          const std::lock_guard lock(lock_);
          last_ = text;
          ++reports_;
          return true;
        }) {}
  WatchSettings how() const { return {20ms, 10ms}; }
  void start() { ASSERT_TRUE(watcher_.start({file_}, how()).ok()); }
  std::string last() {
    const std::lock_guard lock(lock_);
    return last_;
  }
  bool comes(const std::string& text) {
    return eventually([&] { return last() == text; });
  }

  TempFolder folder_;
  const std::string file_;
  std::mutex lock_;
  std::string last_ = "nothing yet";
  std::atomic<int> reports_{0};
  FileWatch watcher_;
};

TEST_F(AFileWatch, ReportsOnceToBeginWith) {
  write_in_place(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(reports_, 1);
}

TEST_F(AFileWatch, SeesAFileReplaced) {
  replace(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  for (const char* text : {"b", "c", "a"}) {
    replace(file_, text);
    EXPECT_TRUE(comes(text)) << text;
  }
}

TEST_F(AFileWatch, SeesAFileWrittenInPlace) {
  write_in_place(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  write_in_place(file_, "b");  // the new text has the old size
  EXPECT_TRUE(comes("b"));
  std::ofstream(file_, std::ios::app) << "c";
  EXPECT_TRUE(comes("bc"));
}

TEST_F(AFileWatch, SeesALinkOnTheWayPointElsewhere) {
  swap_data(folder_, "..1", "rules.yaml", "a");
  start();
  EXPECT_TRUE(comes("a"));
  swap_data(folder_, "..2", "rules.yaml", "b");
  EXPECT_TRUE(comes("b"));
  fs::remove_all(folder_ / "..1");
  swap_data(folder_, "..3", "rules.yaml", "c");
  EXPECT_TRUE(comes("c"));
  // The folder that is reached through the link is watched too.
  write_in_place(folder_ / "..3/rules.yaml", "d");
  EXPECT_TRUE(comes("d"));
}

TEST_F(AFileWatch, SeesAnAbsoluteLinkAndItsTarget) {
  fs::create_directories(folder_ / "else/where");
  write_in_place(folder_ / "else/where/a.yaml", "a");
  fs::create_symlink(folder_ / "else/where/a.yaml", file_);
  start();
  EXPECT_TRUE(comes("a"));
  replace(folder_ / "else/where/a.yaml", "b");
  EXPECT_TRUE(comes("b"));
  fs::rename(folder_ / "else/where", folder_ / "else/gone");
  EXPECT_TRUE(comes("none"));
  fs::rename(folder_ / "else/gone", folder_ / "else/where");
  EXPECT_TRUE(comes("b"));
}

TEST_F(AFileWatch, SeesAFileGoAndReturn) {
  write_in_place(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  fs::remove(file_);
  EXPECT_TRUE(comes("none"));
  write_in_place(file_, "a");
  EXPECT_TRUE(comes("a"));
}

TEST_F(AFileWatch, SeesAFileWhoseFolderIsNotThereYet) {
  const std::string deep = folder_ / "not/yet/there.yaml";
  FileWatch watcher([&] {
    const std::lock_guard lock(lock_);
    last_ = content(deep);
    return true;
  });
  ASSERT_TRUE(watcher.start({deep}, how()).ok());
  EXPECT_TRUE(comes("none"));
  fs::create_directory(folder_ / "not");
  fs::create_directory(folder_ / "not/yet");
  write_in_place(deep, "a");
  EXPECT_TRUE(comes("a"));
  fs::remove_all(folder_ / "not");
  EXPECT_TRUE(comes("none"));
  watcher.stop();
}

// A debounce that drops changes within its window would lose the last write.
TEST_F(AFileWatch, NeverLosesTheLastWrite) {
  write_in_place(file_, "begin");
  start();
  for (int round = 0; round < 10; ++round) {
    std::string text;
    for (int i = 0; i <= round * 3; ++i) {
      text = std::to_string(round) + "." + std::to_string(i);
      if (i % 2)
        replace(file_, text);
      else
        write_in_place(file_, text);
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 4 * 5));
    }
    ASSERT_TRUE(comes(text));
  }
}

TEST_F(AFileWatch, SeesWhatHappensDuringAReport) {
  std::atomic<int> calls{0};
  std::string first, second;
  FileWatch watcher([&] {
    const int n = ++calls;
    if (n == 1) {
      first = content(file_);
      replace(file_, "during");
    } else if (n == 2) {
      second = content(file_);
    }
    return true;
  });
  write_in_place(file_, "before");
  ASSERT_TRUE(watcher.start({file_}, how()).ok());
  EXPECT_TRUE(eventually([&] { return calls >= 2; }));
  watcher.stop();
  EXPECT_EQ(first, "before");
  EXPECT_EQ(second, "during");
}

// A file that changes without a pause is still reported now and then.
TEST_F(AFileWatch, DoesNotWaitForEver) {
  start();
  const auto end = std::chrono::steady_clock::now() + 60s;
  for (int i = 0; reports_ < 3 && std::chrono::steady_clock::now() < end; ++i) {
    replace(file_, std::to_string(i));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_GE(reports_, 3);
}

TEST_F(AFileWatch, AsksAgainWhenToldTo) {
  std::atomic<int> calls{0};
  FileWatch watcher([&] { return ++calls == 3; });
  ASSERT_TRUE(watcher.start({file_}, how()).ok());
  EXPECT_TRUE(eventually([&] { return calls == 3; }));
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(calls, 3);
}

TEST_F(AFileWatch, LeavesTheNeighboursOfAFileAlone) {
  write_in_place(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  for (int i = 0; i < 50; ++i) replace(folder_ / "other.yaml", std::to_string(i));
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(reports_, 1);
}

TEST_F(AFileWatch, WatchesOtherFilesWhenTold) {
  write_in_place(file_, "a");
  start();
  EXPECT_TRUE(comes("a"));
  const int before = reports_;
  const std::string more = folder_ / "more.yaml";
  watcher_.set({file_, more}, how());
  EXPECT_TRUE(eventually([&] { return reports_ > before; }));
  const int then = reports_;
  write_in_place(more, "x");
  EXPECT_TRUE(eventually([&] { return reports_ > then; }));
  write_in_place(file_, "b");
  EXPECT_TRUE(comes("b"));
}

TEST_F(AFileWatch, IsSilentOnceStopped) {
  for (int i = 0; i < 20; ++i) {
    start();
    replace(file_, std::to_string(i));
    if (i % 2) eventually([&] { return last() == std::to_string(i); });
    watcher_.stop();
    const int before = reports_;
    replace(file_, "later");
    std::this_thread::sleep_for(i < 3 ? 60ms : 0ms);
    EXPECT_EQ(reports_, before);
  }
}

TEST_F(AFileWatch, CanBeStoppedAndStartedFromItsOwnReport) {
  std::atomic<int> calls{0};
  std::unique_ptr<FileWatch> watcher;
  watcher = std::make_unique<FileWatch>([&] {
    watcher->stop();
    watcher->stop();
    if (++calls == 1) {
      EXPECT_TRUE(watcher->start({file_}, how()).ok());
    }
    return true;
  });
  ASSERT_TRUE(watcher->start({file_}, how()).ok());
  EXPECT_TRUE(eventually([&] { return calls == 2; }));
  watcher->stop();
  watcher.reset();
  EXPECT_EQ(calls, 2);
}

TEST_F(AFileWatch, CostsNothingWhileNothingHappens) {
  start();
  EXPECT_TRUE(comes("none"));
  const auto cpu = [] {
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  const auto before = cpu();
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(cpu() - before, 100ms);
}

}  // namespace
}  // namespace yard::base
