// SPDX-License-Identifier: Apache-2.0
// Tests parallel_for(): coverage of the range, sizes of pieces, nested loops, exceptions, the state
// that helpers take over, and forked children.
#include "runtime/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/policy.h>
#include <yard/runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/testing_fork.h"

namespace yard::runtime {
namespace {

template <class Body>
int32_t loop(int32_t threads, int64_t count, int64_t grain, Body body) {
  return parallel_for_on(
      threads, count, grain,
      [](void* b, int64_t begin, int64_t end) { (*static_cast<Body*>(b))(begin, end); }, &body);
}

TEST(Loops, CoverEveryIndexOnceInPiecesOfAtLeastTheGrain) {
  for (const int64_t count : {0, 1, 2, 3, 7, 64, 1000, 4097})
    for (const int64_t grain : {-3, 0, 1, 2, 5, 63, 500, 5000})
      for (const int32_t threads : {1, 2, 3, 8}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        std::atomic<int64_t> smallest{count};
        EXPECT_EQ(
            loop(threads, count, grain,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
                   int64_t now = smallest;
                   while (end - begin < now && !smallest.compare_exchange_weak(now, end - begin)) {
                   }
                 }),
            YARD_OK);
        for (const auto& n : seen) ASSERT_EQ(n, 1);
        if (count > 0) {
          EXPECT_GE(smallest, std::min(count, std::max<int64_t>(grain, 1)))
              << count << ' ' << grain << ' ' << threads;
        }
      }
}

// Returns the pieces of a loop in order: first index and size.
std::vector<std::pair<int64_t, int64_t>> pieces_of(int32_t threads, int64_t count, int64_t grain) {
  std::mutex lock;
  std::vector<std::pair<int64_t, int64_t>> pieces;
  EXPECT_EQ(loop(threads, count, grain,
                 [&](int64_t begin, int64_t end) {
                   const std::lock_guard hold(lock);
                   pieces.emplace_back(begin, end - begin);
                 }),
            YARD_OK);
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

TEST(Loops, GiveEachThreadAPartWhosePiecesCoverHalfOfTheRest) {
  EXPECT_EQ(loop(4, 4, 1, [](int64_t, int64_t) {}), YARD_OK);  // starts workers
  std::vector<std::pair<int64_t, int64_t>> expected;
  for (int64_t part = 0, first = 0; part < 4; ++part)
    for (const int64_t size : {320, 160, 80, 40, 20, 10, 10})
      expected.emplace_back(first, size), first += size;
  EXPECT_EQ(pieces_of(4, 2560, 3), expected);
}

TEST(Loops, OfFewUnitsAskNoMoreThreadsThanShortenThem) {
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(loop(4, 4, 1, [](int64_t, int64_t) {}), YARD_OK);  // starts workers
  EXPECT_EQ(pieces_of(4, 3, 1), (Pieces{{0, 1}, {1, 1}, {2, 1}}));
  // Three threads need as long for two units each as four.
  EXPECT_EQ(pieces_of(4, 6, 1), (Pieces{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}));
  EXPECT_EQ(pieces_of(4, 9, 1), (Pieces{{0, 2}, {2, 1}, {3, 2}, {5, 1}, {6, 2}, {8, 1}}));
}

// A thread gets the same piece in each loop, because its core has the data in its cache.
TEST(Loops, GiveAThreadTheSamePieceInEachLoop) {
  constexpr int kThreads = 4, kLoops = 100;
  std::array<std::map<std::thread::id, int>, kThreads> who;
  std::mutex lock;
  for (int n = 0; n < kLoops; ++n) {
    std::atomic<int> begun{0};
    EXPECT_EQ(loop(kThreads, kThreads, 1,
                   [&](int64_t begin, int64_t) {
                     {
                       const std::lock_guard hold(lock);
                       ++who[static_cast<size_t>(begin)][std::this_thread::get_id()];
                     }
                     ++begun;  // all threads are needed
                     const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
                     while (begun < kThreads && std::chrono::steady_clock::now() < end)
                       std::this_thread::yield();
                   }),
              YARD_OK);
  }
  std::set<std::thread::id> usual;
  for (const auto& threads : who) {
    const auto most = std::max_element(threads.begin(), threads.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    EXPECT_GT(most->second, kLoops * 3 / 4);
    usual.insert(most->first);
  }
  EXPECT_EQ(usual.size(), size_t{kThreads});
}

TEST(Loops, UseNoMoreThreadsThanTheyMay) {
  // Start more workers than the loops below may use.
  EXPECT_EQ(loop(8, 64, 1, [](int64_t, int64_t) {}), YARD_OK);
  std::atomic<int> inside{0}, most{0};
  for (int n = 0; n < 50; ++n)
    EXPECT_EQ(loop(3, 100, 1,
                   [&](int64_t, int64_t) {
                     const int now = ++inside;
                     for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
                     }
                     std::this_thread::yield();
                     --inside;
                   }),
              YARD_OK);
  EXPECT_LE(most, 3);
}

TEST(Loops, NeverCallTheBodyForNothing) {
  for (const int64_t count : {0, -1}) {
    bool called = false;
    EXPECT_EQ(loop(4, count, 1, [&](int64_t, int64_t) { called = true; }), YARD_OK);
    EXPECT_FALSE(called);
  }
}

TEST(Loops, OfOnePieceStayOnTheCaller) {
  std::set<std::thread::id> threads;
  EXPECT_EQ(loop(8, 100, 51,
                 [&](int64_t begin, int64_t end) {
                   EXPECT_EQ(begin, 0);
                   EXPECT_EQ(end, 100);
                   threads.insert(std::this_thread::get_id());
                 }),
            YARD_OK);
  EXPECT_EQ(threads, std::set{std::this_thread::get_id()});
}

TEST(Loops, TurnExceptionsIntoAFault) {
  for (const int32_t threads : {1, 4}) {
    EXPECT_EQ(loop(threads, 1000, 1,
                   [](int64_t begin, int64_t end) {
                     if (begin <= 500 && 500 < end) throw std::runtime_error("in a piece");
                   }),
              YARD_FAULT);
    EXPECT_EQ(loop(threads, 1000, 1, [](int64_t, int64_t) { throw 7; }), YARD_FAULT);
    EXPECT_EQ(loop(threads, 1000, 1, [](int64_t, int64_t) {}), YARD_OK);
  }
}

// A thread that waits for an inner loop must not begin another piece of the outer one.
TEST(Loops, NestWithoutMixing) {
  std::atomic<int64_t> sum{0};
  const auto inner_loop = [](auto body) { return loop(4, 64, 1, body); };
  EXPECT_EQ(loop(4, 64, 1,
                 [&](int64_t begin, int64_t end) {
                   static thread_local bool busy = false;
                   EXPECT_FALSE(busy);
                   busy = true;
                   for (int64_t i = begin; i < end; ++i)
                     EXPECT_EQ(inner_loop([&](int64_t b, int64_t e) { sum += e - b; }), YARD_OK);
                   busy = false;
                 }),
            YARD_OK);
  EXPECT_EQ(sum, 64 * 64);
}

TEST(Loops, OfSeveralCallersRunAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int n = 0; n < 50; ++n)
        EXPECT_EQ(loop(2, 100, 1, [&](int64_t b, int64_t e) { sum += e - b; }), YARD_OK);
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(sum, 4 * 50 * 100);
}

// Each loop reads what other threads have written in the loop before it.
TEST(Loops, SeeWhatEarlierLoopsHaveWritten) {
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([] {
      constexpr int64_t kCount = 97;
      constexpr int kLoops = 400;
      std::vector<int64_t> from(kCount), to(kCount);
      for (int n = 0; n < kLoops; ++n, std::swap(from, to)) {
        const int32_t threads = 2 + n % 7;  // more than there may be processors
        EXPECT_EQ(loop(threads, kCount, 1 + n % 5,
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i)
                           to[static_cast<size_t>(i)] =
                               from[static_cast<size_t>(kCount - 1 - i)] + 1;
                       }),
                  YARD_OK);
      }
      EXPECT_EQ(from, std::vector<int64_t>(kCount, kLoops));
    });
  for (std::thread& t : callers) t.join();
}

// Keeps pieces busy until another thread has run one, so that the test sees both.
TEST(Loops, CarryTheScopeOfTheCallerAndThatItIsInsideACall) {
  detail::ThreadHead& head =
      detail::t_thread != nullptr ? *detail::t_thread : detail::register_thread();
  std::optional<ScopedPolicy> scope;
  scope.emplace(Scope().strict().label("for", "this test"));
  const uint64_t mine = head.scope;
  const detail::ScopeState* const state = head.scope_state;
  const detail::Guard inside(head);
  const auto caller = std::this_thread::get_id();
  std::atomic<int> others{0}, wrong{0};
  EXPECT_EQ(loop(2, 8, 1,
                 [&](int64_t, int64_t) {
                   const detail::ThreadHead* here = detail::t_thread;
                   if (here == nullptr || here->scope != mine || here->depth == 0) ++wrong;
                   if (here != nullptr && here->scope_state != state) ++wrong;
                   if (std::this_thread::get_id() != caller) ++others;
                   for (int n = 0; n < 20000 && others == 0; ++n) std::this_thread::yield();
                 }),
            YARD_OK);
  scope.reset();
  EXPECT_EQ(wrong, 0);
  // The helper threads must not keep the scope.
  EXPECT_EQ(loop(2, 8, 1,
                 [&](int64_t, int64_t) {
                   const detail::ThreadHead* here = detail::t_thread;
                   if (here != nullptr && here->scope != 0) ++wrong;
                 }),
            YARD_OK);
  EXPECT_EQ(wrong, 0);
}

#if !defined(YARD_UNDER_TSAN)  // TSan dies on threads started after a fork
TEST(Loops, WorkInAChildOfFork) {
  const auto whole = [] {
    std::atomic<int64_t> sum{0};
    const int32_t code = loop(4, 1000, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    return code == YARD_OK && sum == 1000;
  };
  EXPECT_TRUE(whole());  // starts the threads before the fork
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    bool good = true;
    for (int n = 0; n < 20; ++n) good &= whole();
    _exit(good && concurrency() >= 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(whole());
}

TEST(Loops, RunOnTheCallerWhereNoThreadCanBeStarted) {
  EXPECT_TRUE(base::true_in_child([] {
    if (!base::deny_threads()) return true;
    const auto caller = std::this_thread::get_id();
    for (int n = 0; n < 3; ++n) {
      int64_t sum = 0;
      bool elsewhere = false;
      const int32_t code = loop(4, 1000, 1, [&](int64_t b, int64_t e) {
        sum += e - b;
        elsewhere |= std::this_thread::get_id() != caller;
      });
      if (code != YARD_OK || sum != 1000 || elsewhere) return false;
    }
    return true;
  }));
}

// When a piece forks, the child has no helpers, and an error tells it that their pieces are
// missing.
TEST(Loops, AChildBornInAPieceIsToldThatOthersAreMissing) {
  const base::InChild watched([] {});  // as in every runtime
  const pid_t parent = ::getpid();
  const auto caller = std::this_thread::get_id();
  pid_t child = -1;
  std::atomic<bool> forked{false};
  const int32_t code = loop(2, 2, 1, [&](int64_t, int64_t) {
    if (std::this_thread::get_id() != caller) {
      while (!forked) std::this_thread::yield();
    } else if (child < 0) {
      child = ::fork();
      if (child == 0) base::end_after_a_minute();
      forked = true;
    }
  });
  if (::getpid() != parent) ::_exit(code == YARD_FAULT ? 0 : 1);
  ASSERT_GT(child, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(code, YARD_OK);
}

// A child has no threads of its parent's pool, so its own threads must run two pieces at once.
TEST(Loops, HaveThreadsOfTheirOwnInAChildOfFork) {
  const auto two_at_once = [] {
    std::atomic<int> inside{0};
    std::atomic<bool> alone{false};
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const int32_t code = loop(2, 2, 1, [&](int64_t, int64_t) {
      ++inside;
      while (inside < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      if (inside < 2) alone = true;
    });
    return code == YARD_OK && !alone;
  };
  EXPECT_EQ(loop(2, 2, 1, [](int64_t, int64_t) {}), YARD_OK);  // the parent has used the pool
  EXPECT_TRUE(base::true_in_child(two_at_once));
}

TEST(Loops, WorkInChildrenOfForksWhileOtherThreadsAreInLoops) {
  const auto whole = [] {
    std::atomic<int64_t> sum{0};
    const int32_t code = loop(4, 64, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    return code == YARD_OK && sum == 64;
  };
  std::atomic<bool> stop{false}, wrong{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 2; ++i)
    busy.emplace_back([&] {
      while (!stop)
        if (!whole()) wrong = true;
    });
  for (int i = 0; i < 100 && !wrong; ++i)
    if (!base::true_in_child(whole)) wrong = true;
  stop = true;
  for (std::thread& t : busy) t.join();
  EXPECT_FALSE(wrong);
}
#endif

TEST(Concurrency, FollowsTheCpusTheThreadMayUse) {
  EXPECT_GE(concurrency(), 1);
  EXPECT_LE(concurrency(), std::max(1u, std::thread::hardware_concurrency()));
  std::thread([] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &all)) {
        CPU_SET(cpu, &one);
        break;
      }
    EXPECT_EQ(concurrency(), CPU_COUNT(&all));
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    std::thread([] { EXPECT_EQ(concurrency(), 1); }).join();  // the new thread inherits the mask
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(concurrency(), 1);
  }).join();
}

TEST(Concurrency, FollowsTheLimitOfTheProgram) {
  const int32_t all = concurrency();
  Runtime::limit_threads(1);
  EXPECT_EQ(concurrency(), 1);
  Runtime::limit_threads(all + 1);
  EXPECT_EQ(concurrency(), all);
  Runtime::limit_threads(0);
  EXPECT_EQ(concurrency(), all);
}

TEST(Loops, LeaveNoThreadThatKeepsACoreBusy) {
  const auto cpu_ns = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
  };
  EXPECT_EQ(loop(4, 64, 1, [](int64_t, int64_t) {}), YARD_OK);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_ns() - before, 50'000'000);
}

TEST(ParallelFor, UsesTheThreadsThereAre) {
  std::atomic<int64_t> sum{0};
  EXPECT_EQ(
      parallel_for(
          1000, 10,
          [](void* s, int64_t b, int64_t e) { *static_cast<std::atomic<int64_t>*>(s) += e - b; },
          &sum),
      YARD_OK);
  EXPECT_EQ(sum, 1000);
}

}  // namespace
}  // namespace yard::runtime
