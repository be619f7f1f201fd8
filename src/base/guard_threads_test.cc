// SPDX-License-Identifier: Apache-2.0
// Tests the guard and the reclaimer under load: readers that check the objects they hold while
// writers swap, retire and collect, readers that never end, and threads that come, go, or call from
// destructors.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/abi.h>

#include <chrono>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/reclaimer.h"

namespace yard::base {
namespace {

constexpr uint64_t kAlive = 0x600df00d600df00d, kDead = 0xdeadbeefdeadbeef;

// Not atomic, so that a late reader sees kDead and the thread sanitizer sees the race. Volatile, so
// that every read happens.
struct WatchedObject {
  volatile uint64_t canary = kAlive;
  WatchedObject* part = nullptr;
  volatile uint64_t tail = kAlive;
  bool alive() const { return canary == kAlive && tail == kAlive; }
  static void free(void* p) {
    auto* o = static_cast<WatchedObject*>(p);
    o->canary = kDead;
    o->tail = kDead;
  }
};

#if defined(YARD_UNDER_TSAN) || defined(YARD_UNDER_ASAN)
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif

size_t records() {
  size_t n = 0;
  for ([[maybe_unused]] ThreadRecord& r : thread_records()) ++n;
  return n;
}

class GuardThreads : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { set_reader_fences(GetParam()); }
  void TearDown() override { set_reader_fences(false); }
};
INSTANTIATE_TEST_SUITE_P(Variants, GuardThreads, ::testing::Bool(), [](const auto& variant) {
  return variant.param ? "fences" : "membarrier";
});

TEST_P(GuardThreads, ReadersNeverSeeWhatWasFreed) {
  constexpr int kReaders = 3, kWriters = 2, kRounds = kSlow ? 20000 : 200000;
  constexpr size_t kSources = 2;
  std::atomic<WatchedObject*> sources[kSources];
  std::deque<WatchedObject> first(2 * kSources);
  for (size_t i = 0; i < kSources; ++i) {
    first[i].part = &first[kSources + i];
    sources[i].store(&first[i]);
  }
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, reads{0};
  std::vector<std::thread> readers, writers;
  for (int t = 0; t < kReaders; ++t) {
    readers.emplace_back([&, t] {
      uint64_t n = 0;
      for (auto i = static_cast<size_t>(t); !stop.load(std::memory_order_relaxed); ++i, ++n) {
        Guard g(this_thread());
        const WatchedObject* o = g.protect(sources[i % kSources]);
        if (!o->alive()) ++wrong;
        if (i % 3 == 0) {  // a kernel that calls an op
          Guard inner(this_thread());
          if (!inner.protect(sources[(i + 1) % kSources])->alive()) ++wrong;
        }
        // Look for long enough that a writer that has missed this reader comes around.
        for (int look = 0; look < 100; ++look)
          if (!o->alive()) ++wrong;
        if (i % 2 == 0) {  // from here on only the part is held
          const WatchedObject* part = o->part;
          g.move_to_after_reading(part);
          if (i % 64 == 0) std::this_thread::yield();
          for (int look = 0; look < 100; ++look)
            if (!part->alive()) ++wrong;
        }
      }
      reads += n;
    });
  }
  std::deque<WatchedObject> arenas[kWriters];
  for (int t = 0; t < kWriters; ++t) {
    writers.emplace_back([&, t] {
      auto& arena = arenas[t];
      for (int i = 0; i < kRounds; ++i) {
        WatchedObject* part = &arena.emplace_back();
        WatchedObject* next = &arena.emplace_back();
        next->part = part;
        WatchedObject* old = sources[static_cast<size_t>(i) % kSources].exchange(next);
        reclaimer().retire(old->part, WatchedObject::free, {old->part, old});
        reclaimer().retire(old, WatchedObject::free, {old});
        if (i % 2 == t) reclaimer().collect();
      }
    });
  }
  for (auto& w : writers) w.join();
  stop = true;
  for (auto& r : readers) r.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(reads.load(), 0u);
  EXPECT_EQ(reclaimer().collect(), 0u);
  size_t dead = 0;
  for (const auto& arena : arenas)
    for (const WatchedObject& o : arena) dead += o.alive() ? 0 : 1;
  for (const WatchedObject& o : first) dead += o.alive() ? 0 : 1;
  // All objects are dead except the current ones and their parts.
  EXPECT_EQ(dead, 2 * kSources + 2 * size_t{kWriters} * kRounds - 2 * kSources);
}

#if !defined( \
    YARD_UNDER_TSAN)  // TSan holds signals back, so that the fault would come again for ever
// Simulates a writer that comes between a reader's load of the pointer and its announcement. The
// slot lies in a page that cannot be written, and the handler of the fault replaces the pointer.
struct Interrupted {
  std::atomic<WatchedObject*> source;
  WatchedObject* next;
  void* page;
  size_t bytes;
  int faults = 0;
};
Interrupted* g_interrupted = nullptr;

TEST_P(GuardThreads, AWriterMayComeBeforeTheAnnouncement) {
  WatchedObject first, second;
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* thread = new (page) detail::ThreadHead;
  if (GetParam()) thread->unfenced = 0;
  Interrupted state{{&first}, &second, page, bytes};
  g_interrupted = &state;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {
    Interrupted& i = *g_interrupted;
    ++i.faults;
    i.source.store(i.next);
    mprotect(i.page, i.bytes, PROT_READ | PROT_WRITE);
  };
  ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
  {
    Guard g(*thread);
    ASSERT_EQ(mprotect(page, bytes, PROT_READ), 0);
    const WatchedObject* held = g.protect(state.source);
    EXPECT_EQ(state.faults, 1);
    EXPECT_EQ(held, &second);  // the object that was current after the announcement
    EXPECT_EQ(thread->slots[0].load(), &second);
  }
  ASSERT_EQ(sigaction(SIGSEGV, &before, nullptr), 0);
  munmap(page, bytes);
}

#endif

TEST_P(GuardThreads, AStuckReaderHoldsBackOnlyWhatItNames) {
  Reclaimer r;
  std::deque<WatchedObject> arena(1);
  std::atomic<WatchedObject*> source{&arena[0]};
  std::atomic<bool> holds{false}, go{false};
  std::thread reader([&] {
    Guard g(this_thread());
    const WatchedObject* o = g.protect(source);
    holds = true;
    while (!go.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(o->alive());
  });
  while (!holds.load()) std::this_thread::yield();
  for (int i = 0; i < 5000; ++i) {
    WatchedObject* old = source.exchange(&arena.emplace_back());
    r.retire(old, WatchedObject::free, {old});
    ASSERT_EQ(r.collect(), 1u);
    ASSERT_EQ(r.pending(), 1u);
  }
  EXPECT_TRUE(arena[0].alive());
  EXPECT_FALSE(arena[1].alive());
  go = true;
  reader.join();
  EXPECT_EQ(r.collect(), 0u);
  EXPECT_FALSE(arena[0].alive());
}

TEST_P(GuardThreads, ShortLivedThreadsShareAFewRecords) {
  constexpr int kAtOnce = 4, kWaves = 750;
  WatchedObject object;
  std::atomic<WatchedObject*> source{&object};
  const size_t before = records();
  for (int w = 0; w < kWaves; ++w) {
    std::vector<std::thread> wave;
    for (int t = 0; t < kAtOnce; ++t)
      wave.emplace_back([&] {
        Guard g(this_thread());
        EXPECT_TRUE(g.protect(source)->alive());
      });
    for (auto& t : wave) t.join();
  }
  EXPECT_LE(records(), before + kAtOnce);
  Reclaimer r;
  r.retire(&object, WatchedObject::free, {&object});
  EXPECT_EQ(r.collect(), 0u);
}

// ---- Ends of threads ---------------------------------------------------------------------------

std::atomic<WatchedObject*> g_source{nullptr};
std::atomic<int> g_late_calls{0};

struct CallsWhenDestroyed {
  ~CallsWhenDestroyed() {
    Guard g(this_thread());
    if (g.protect(g_source)->alive()) ++g_late_calls;
  }
  void touch() {}
};

TEST(GuardExit, DestructorsOfAThreadMayStillCall) {
  WatchedObject object;
  g_source.store(&object);
  g_late_calls = 0;
  const size_t before = records();
  constexpr int kThreads = 200;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([&] {
      static thread_local CallsWhenDestroyed late;
      if (i % 2 == 0) {  // the record is older than the destructor, or made by it
        Guard g(this_thread());
        (void)g.protect(g_source);
      }
      late.touch();
    }).join();
  }
  EXPECT_EQ(g_late_calls.load(), kThreads);
  EXPECT_LE(records(), before + 2);
  size_t hazards = 0;
  for_each_hazard([&](const void*) { ++hazards; });
  EXPECT_EQ(hazards, 0u);
}

// Destructors of keys run after thread_local destructors, in no particular order.
TEST(GuardExit, LateKeysMayStillCall) {
  WatchedObject object;
  g_source.store(&object);
  g_late_calls = 0;
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void*) {
                                 Guard g(this_thread());
                                 if (g.protect(g_source)->alive()) ++g_late_calls;
                               }),
            0);
  const size_t before = records();
  for (int i = 0; i < 50; ++i) {
    std::thread([&] {
      Guard g(this_thread());
      (void)g.protect(g_source);
      pthread_setspecific(key, &object);
    }).join();
  }
  EXPECT_EQ(g_late_calls.load(), 50);
  EXPECT_LE(records(), before + 2);
  pthread_key_delete(key);
}

TEST(GuardExit, AThreadThatEndsWithoutUnwindingUsesNothing) {
  WatchedObject object;
  std::atomic<WatchedObject*> source{&object};
  std::thread([&] {
    // The destructors of these guards never run. The guards reach into the second block of slots.
    alignas(Guard) static unsigned char memory[50][sizeof(Guard)];
    for (auto& place : memory) (void)(new (place) Guard(this_thread()))->protect(source);
  }).join();
  Reclaimer r;
  r.retire(&object, WatchedObject::free, {&object});
  EXPECT_EQ(r.collect(), 0u);
  for (ThreadRecord& t : thread_records()) EXPECT_TRUE(t.in_use.load() || t.depth == 0);
}

TEST(GuardExit, HooksGetTheThreadsValueOnce) {
  constexpr int kIndex = kThreadLocals - 1;
  static std::atomic<int> freed;
  freed = 0;
  set_thread_exit_hook(kIndex, [](void* v) { freed += *static_cast<int*>(v); });
  int value = 1;
  for (int i = 0; i < 10; ++i) std::thread([&] { this_thread().locals[kIndex] = &value; }).join();
  std::thread([&] { (void)this_thread(); }).join();  // reuses a record without a value
  set_thread_exit_hook(kIndex, nullptr);
  EXPECT_EQ(freed.load(), 10);
}

TEST(GuardFork, AChildForgetsWhatOtherThreadsUsed) {
  const InChild watched([] {});  // as in every runtime
  WatchedObject held, own;
  std::atomic<WatchedObject*> source{&held};
  std::atomic<bool> holds{false}, go{false};
  std::thread reader([&] {
    Guard g(this_thread());
    (void)g.protect(source);
    holds = true;
    while (!go.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!holds.load()) std::this_thread::yield();
  std::atomic<WatchedObject*> mine{&own};
  Guard g(this_thread());
  (void)g.protect(mine);
  const pid_t child = fork();
  if (child == 0) {
    reclaimer().retire(&held, WatchedObject::free, {&held});
    reclaimer().retire(&own, WatchedObject::free, {&own});
    // The forking thread continues inside its call, and the other thread is gone. Two retired
    // objects are left: the thread's own object, and the note of when the inherited calls end.
    if (reclaimer().collect() != 2 || held.alive() || !own.alive()) _exit(2);
    _exit(inside_call() ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(held.alive());
  go = true;
  reader.join();
}

}  // namespace
}  // namespace yard::base
