// SPDX-License-Identifier: Apache-2.0
// Objects that end on a thread of their own: not where they are released, reported when they hang, and with no thread to be
// had, only where waiting is allowed.
#include "base/background.h"

#include <gtest/gtest.h>
#include <yard/log.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>

#include "base/testing_files.h"
#include "base/testing_fork.h"

namespace yard::base {
namespace {

struct Ends : Disposable {
  Ends(std::atomic<int>& to, std::atomic<bool>* until = nullptr)
      : Disposable("the test's object"), ended(to), gate(until) {}
  ~Ends() override {
    while (gate != nullptr && !*gate) std::this_thread::yield();
    here = std::this_thread::get_id() == made_by;
    ++ended;
  }
  std::atomic<int>& ended;
  std::atomic<bool>* gate;
  const std::thread::id made_by = std::this_thread::get_id();
  static inline std::atomic<bool> here{false};
};

TEST(Dispose, EndsThingsOnAnotherThread) {
  std::atomic<int> ended{0};
  {
    const MayWait may;
    dispose(new Ends(ended));
    EXPECT_EQ(ended, 1) << "it waited";
  }
  EXPECT_FALSE(Ends::here);
}

TEST(Dispose, DoesNotWaitInCallsAndReportsWhatHangs) {
  static std::mutex lock;
  static std::string lines;
  set_log_sink([](const LogMessage& m) {
    const std::lock_guard hold(lock);
    lines += m.text;
  });
  report_stuck_after(std::chrono::milliseconds(20));
  std::atomic<int> ended{0};
  std::atomic<bool> gate{false};
  {
    const MayWait not_here(false);
    const MayWait no_effect;
    dispose(new Ends(ended, &gate));
  }
  EXPECT_EQ(ended, 0);
  EXPECT_TRUE(eventually([] {
    const std::lock_guard hold(lock);
    return lines.find("the test's object: it has been ending") != lines.npos;
  })) << lines;
  gate = true;
  EXPECT_TRUE(eventually([&] { return ended == 1; }));
  report_stuck_after(std::chrono::seconds(10));
  set_log_sink(nullptr);
}

#if !defined(YARD_UNDER_TSAN)  // which dies on threads started after a fork
TEST(Dispose, WithoutThreadsEndsThingsWhereWaitingIsAllowed) {
  EXPECT_TRUE(true_in_child([] {
    if (!deny_threads()) return true;
    std::atomic<int> ended{0};
    dispose(new Ends(ended));
    dispose(new Ends(ended));
    if (ended != 0) return false;  // as in a call
    { const MayWait may; }
    if (ended != 2) return false;
    const MayWait may;
    dispose(new Ends(ended));
    return ended == 3;
  }));
}
#endif

}  // namespace
}  // namespace yard::base
