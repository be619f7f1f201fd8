// SPDX-License-Identifier: Apache-2.0
// Tests fault kernels under several threads: blocking and release, changes of behaviour while calls
// run, and forks from inside a call. The thread sanitizer runs these tests, too.
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "testing.h"

namespace yard::fault::testing {
namespace {

using namespace std::chrono_literals;
using Threads = std::vector<std::jthread>;

TEST(FaultThreads, BlocksUntilReleased) {
  FaultKernel kernel({.op = "copy"}, {.blocks = true, .marker = 3});
  std::atomic<int> done{0};
  Threads threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      OneCall call;
      EXPECT_EQ(call(kernel.descriptor()), YARD_OK);
      EXPECT_EQ(call.out.data, Floats(4, 3));
      ++done;
    });
  ASSERT_TRUE(kernel.wait_for_waiters(3, 20s));
  EXPECT_FALSE(kernel.wait_for_waiters(4, 1ms));
  EXPECT_EQ(done, 0);
  EXPECT_EQ(kernel.active(), 3);
  kernel.release();
  threads.clear();
  EXPECT_EQ(done, 3);
  EXPECT_EQ(kernel.waiters(), 0);

  // The earlier release does not release this call.
  threads.emplace_back([&] {
    OneCall call;
    EXPECT_EQ(call(kernel.descriptor()), YARD_OK);
  });
  ASSERT_TRUE(kernel.wait_for_waiters(1, 20s));
  kernel.release();
}

TEST(FaultThreads, SetThenReleaseReachesEveryBlockedCall) {
  FaultKernel kernel({.op = "copy"});
  for (int round = 0; round < 200; ++round) {
    kernel.set({.blocks = true});
    Threads threads;
    for (int i = 0; i < 3; ++i)
      threads.emplace_back([&] {
        OneCall call;
        EXPECT_EQ(call(kernel.descriptor()), YARD_OK);
      });
    // Some calls have not started, some are about to block, some block. All must be released.
    if (round % 2 == 0) kernel.wait_for_waiters(1, 1ms);
    kernel.set({});
    kernel.release();
  }
  EXPECT_EQ(kernel.calls(), 600u);
}

TEST(FaultThreads, BehaviourChangesWhileCallsRun) {
  FaultKernel kernel({.op = "copy"});
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> failed{0}, thrown{0}, good{0};
  Threads threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      OneCall call;
      while (!stop) {
        try {
          const int32_t code = call(kernel.descriptor());
          ++(code == YARD_OK ? good : failed);
          if (code != YARD_OK) {
            EXPECT_STREQ(call.error, "long enough to live on the heap");
          }
        } catch (const std::runtime_error& e) {
          EXPECT_STREQ(e.what(), "thrown");
          ++thrown;
        }
      }
    });
  for (int i = 0; i < 2000; ++i) {
    kernel.set({.rate = 0.5, .code = YARD_FAULT, .message = "long enough to live on the heap"});
    kernel.set({.rate = 0.5, .throws = Throws::kStandard, .message = "thrown"});
    kernel.set({.wrong_numbers = true, .delegate = &real_copy()});
    if (i % 16 == 0) std::this_thread::sleep_for(50us);
  }
  stop = true;
  threads.clear();
  EXPECT_EQ(kernel.calls(), good + failed + thrown);
  EXPECT_EQ(kernel.failures(), failed + thrown);
  EXPECT_EQ(kernel.active(), 0);
}

TEST(FaultThreads, RateHoldsOverAllThreads) {
  FaultKernel kernel({.op = "copy", .seed = 9}, {.rate = 0.5, .code = YARD_FAULT});
  {
    Threads threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        OneCall call;
        for (int n = 0; n < 500; ++n) call(kernel.descriptor());
      });
  }
  // Which calls fail depends on their order, but the number of failures does not.
  FaultKernel alone({.op = "copy", .seed = 9}, {.rate = 0.5, .code = YARD_FAULT});
  OneCall call;
  for (int n = 0; n < 2000; ++n) call(alone.descriptor());
  EXPECT_EQ(kernel.failures(), alone.failures());
}

// The thread sanitizer does not follow a fork of a threaded process.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define YARD_TEST_NO_FORK
#endif
#elif defined(__SANITIZE_THREAD__)
#define YARD_TEST_NO_FORK
#endif

#ifndef YARD_TEST_NO_FORK
TEST(FaultThreads, ForksFromInsideWhileOthersRun) {
  FaultKernel kernel({.op = "copy"});
  std::atomic<bool> stop{false};
  std::jthread other([&] {
    OneCall call;
    while (!stop) call(kernel.descriptor());
  });
  for (int i = 0; i < 10; ++i) {
    FaultKernel forking(
        {.op = "copy"}, {.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) {
          const pid_t child = fork();
          if (child == 0) {
            OneCall inner;
            _exit(inner(kernel.descriptor()) == YARD_OK ? 7 : 8);
          }
          int status = 0;
          waitpid(child, &status, 0);
          return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? YARD_OK : YARD_FATAL;
        }});
    OneCall call;
    EXPECT_EQ(call(forking.descriptor()), YARD_OK);
  }
  stop = true;
}
#endif

}  // namespace
}  // namespace yard::fault::testing
