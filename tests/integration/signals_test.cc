// SPDX-License-Identifier: Apache-2.0
// Signals interrupt calls, reloads, recordings, loads of plugins and waiting. The handlers are
// installed without SA_RESTART, so system calls return EINTR. This must have no effect.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/testing_files.h"
#include "fault.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing::signals {
namespace {

using base::eventually;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Op<void(Out, In, int)> copy{"copy"};

std::atomic<int> g_signals{0};
void on_signal(int) { g_signals.fetch_add(1, std::memory_order_relaxed); }

// Sends SIGALRM to the process by a timer, and SIGUSR1 to the registered threads, all the time.
class SignalStorm {
 public:
  SignalStorm() {
    struct sigaction action {};
    action.sa_handler = on_signal;  // no SA_RESTART
    ::sigaction(SIGALRM, &action, &alarm_);
    ::sigaction(SIGUSR1, &action, &user_);
    const itimerval often{{0, 700}, {0, 700}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }
  void at(pthread_t thread) { targets_.push_back(thread); }
  void begin() {
    sender_ = std::thread([this] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      while (!stop_) {
        for (const pthread_t t : targets_) pthread_kill(t, SIGUSR1);
        std::this_thread::sleep_for(microseconds(300));
      }
    });
  }
  // The registered threads must still exist.
  void end() {
    stop_ = true;
    if (sender_.joinable()) sender_.join();
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
  }
  ~SignalStorm() {
    end();
    ::sigaction(SIGALRM, &alarm_, nullptr);
    ::sigaction(SIGUSR1, &user_, nullptr);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;

 private:
  struct sigaction alarm_ {
  }, user_{};
  std::vector<pthread_t> targets_;
  std::thread sender_;
  std::atomic<bool> stop_{false};
};

class Signals : public ::testing::Test {
 protected:
  Signals() : rules_(folder_ / "rules.yaml") {
    bare_.add(kernel_of("copy", "default.a", 1, 20)).or_throw();
    bare_.add(kernel_of("copy", "default.b", 2, 10)).or_throw();
    g_signals = 0;
  }
  Runtime& runtime() { return bare_.runtime; }
  intptr_t ran(int64_t n = 4) {
    float to[64] = {}, from[64] = {};
    t_ran = 0;
    const Status s =
        copy.on(runtime())(TensorView(to, DType::f32, {n}), TensorView(from, DType::f32, {n}), 0);
    return s.ok() ? t_ran : -1;
  }
  void say(const char* kernel) {
    base::replace(rules_, std::string("version: '1.0'\nkernel_locks: {copy: ") + kernel + "}\n");
  }

  base::TempFolder folder_;
  Folder plugins_;
  Bare bare_;
  const std::string rules_;
};

TEST_F(Signals, InterruptCallsScopesReloadsAndRecordings) {
  say("default.a");
  ASSERT_TRUE(runtime().rules().watch(rules_, {milliseconds(20), milliseconds(10)}).ok());
  ASSERT_TRUE(runtime().recording().to(folder_ / "calls.txt").ok());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<uint64_t> calls{0};
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (int64_t n = 1; !stop; n = n % 60 + 1, ++calls) wrong += ran(n) <= 0;
  });
  threads.emplace_back([&] {
    for (int i = 0; !stop; ++i, ++calls) {
      const ScopedPolicy scope(Scope().label("tenant", std::to_string(i % 100)));
      wrong += ran() <= 0;
    }
  });
  threads.emplace_back([&] {
    while (!stop) {
      Changes add, remove;
      add.add_kernel(kernel_of("copy", "comes", 3, 1));
      remove.remove_kernel("copy", "comes");
      wrong += !runtime().apply(std::move(add)).ok();
      const auto ticket = runtime().apply(std::move(remove));
      wrong += !ticket.ok() || !ticket->wait(seconds(60)).ok();
    }
  });
  SignalStorm storm;
  storm.at(pthread_self());
  for (std::thread& t : threads) storm.at(t.native_handle());
  storm.begin();
  for (int i = 0; i < 15; ++i) {
    say(i % 2 == 0 ? "default.b" : "default.a");
    std::this_thread::sleep_for(milliseconds(40));
  }
  EXPECT_TRUE(eventually([&] { return ran() == 2; })) << "the last write counts";
  ++calls;
  stop = true;
  storm.end();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(g_signals, 100);
  EXPECT_GE(runtime().recording().stats().calls, calls.load());
  EXPECT_EQ(runtime().recording().stats().problem, "");
  EXPECT_TRUE(runtime().recording().stop().ok());
  EXPECT_NE(read_file(folder_ / "calls.txt").find("copy("), std::string::npos);
  runtime().rules().unwatch();
}

TEST_F(Signals, InterruptLoading) {
  const std::string path = plugins_.put("answer");
  SignalStorm storm;
  storm.at(pthread_self());
  storm.begin();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(runtime().plugins().load(path).ok());
    EXPECT_EQ(ask(runtime()), 1);
    ASSERT_TRUE(runtime().plugins().unload("answer").value().wait(seconds(60)).ok());
  }
  storm.end();
  EXPECT_GT(g_signals, 0);
}

TEST_F(Signals, InterruptAWaitAndAKernel) {
  fault::FaultKernel slow{{.op = "copy", .id = "slow", .backend = "test", .priority = 900},
                          {.blocks = true}};
  ASSERT_TRUE(bare_.add(slow.descriptor()).ok());
  std::thread caller([&] { EXPECT_NE(ran(), -1); });
  ASSERT_TRUE(slow.wait_for_waiters(1, milliseconds(20000)));
  SignalStorm storm;
  storm.at(pthread_self());
  storm.at(caller.native_handle());
  storm.begin();
  Changes c;
  c.remove_kernel("copy", "slow");
  const Ticket t = runtime().apply(std::move(c)).value();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(t.wait(milliseconds(100)).code(), Code::kDeadline);
  EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(100));
  slow.release();
  EXPECT_TRUE(t.wait(seconds(60)).ok());
  storm.end();
  caller.join();
}

}  // namespace
}  // namespace yard::testing::signals
