// SPDX-License-Identifier: Apache-2.0
// Locks that survive fork(). One handler (fork.cc) takes every Mutex before a fork, so that whatever a lock protects is whole
// in the child, and releases them in parent and child.
//
//   class Board {
//     mutable base::Mutex lock_{base::Rank::kBoard};
//     base::Condition changed_;
//     base::InChild in_child_{[this] { forget_probes(); }};  // the last member
//   };
//
// - A Mutex is never recursive. A thread that holds one may take only mutexes of a higher rank. Debug builds abort otherwise.
// - No foreign code (plugins, verifiers, probes, callbacks, log sinks; so also no base::log) runs while a Mutex is held.
//   Enclose foreign code by a ForeignCode, which asserts that in debug builds.
// - Threads of the parent do not exist in the child. An object that notes what threads are doing (loads under way,
//   selections that others wait for) forgets these notes in an InChild.
// - Do not use function-local statics that need a constructor: a child would wait for ever for one that another thread of its
//   parent was making. Use std::call_once, which starts again in the child.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace yard::base {

// The order in which mutexes are taken, lowest first.
enum class Rank : uint8_t {
  kRuntimes,
  kLoader,
  kRules,
  kFunctions,
  kPublish,
  kPlans,
  kStates,
  kBoard,
  kCanary,
  kCalls,
  kScopes,
  kBreaker,
  kOutput,  // held while a file is written. Not taken at a fork: the child makes it again and drops what it protects
  kOutputShard,  // a part of what is to be written
  kTasks,
  kCounters,
  kReclaimer,
  kLog,
};

// The lock behind a mutex. Locks are never freed, only reused, so that the handler of fork can walk through them.
struct Lock {
  std::mutex mutex;
  Lock* next = nullptr;       // of the same rank
  Lock* next_free = nullptr;  // while no Mutex uses it
  bool taken = false;         // by the handler of fork
};

// A mutex for globals, constinit. It is never destroyed, so that threads may use it while the process exits. The first lock()
// allocates.
class StaticMutex {
 public:
  constexpr explicit StaticMutex(Rank rank) noexcept : rank_(rank) {}
  StaticMutex(const StaticMutex&) = delete;
  StaticMutex& operator=(const StaticMutex&) = delete;

  void lock();
  void unlock() noexcept;

 protected:
  void give_back() noexcept;

 private:
  const Rank rank_;
  std::atomic<Lock*> lock_{nullptr};
};

// A mutex for members of objects.
class Mutex : public StaticMutex {
 public:
  using StaticMutex::StaticMutex;
  ~Mutex() { give_back(); }
};

// A condition variable for a Mutex or a StaticMutex. A forked child may use it and destroy it, though threads of its parent
// were waiting.
class Condition {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void notify_all() noexcept;

  template <class M>
  void wait(std::unique_lock<M>& lock) {
    wait_until(lock, Time::max());
  }
  template <class M, class Predicate>
  void wait(std::unique_lock<M>& lock, const Predicate& until) {
    while (!until()) wait(lock);
  }
  template <class M, class Predicate>
  bool wait_for(std::unique_lock<M>& lock, std::chrono::nanoseconds time, const Predicate& until) {
    const Time end = std::chrono::steady_clock::now() + time;
    while (!until())
      if (!wait_until(lock, end)) return until();
    return true;
  }
  // Waits for notify_all(), and sometimes less. Returns false if the time is over.
  template <class M>
  bool wait_until(std::unique_lock<M>& lock, Time end) {
    const uint32_t seen = wakes_.load(std::memory_order_relaxed);
    lock.unlock();
    const bool in_time = sleep(seen, end);
    lock.lock();
    return in_time;
  }

 private:
  bool sleep(uint32_t seen, Time end) noexcept;
  std::atomic<uint32_t> wakes_{0};
};

// A function that every forked child calls on its only thread, after all mutexes have been released and in the order of
// construction. Make it the last member of its object: a child that is forked while the object is made or ended does not
// call it. The function must not end another InChild.
class InChild {
 public:
  explicit InChild(std::function<void()> then);
  ~InChild();
  InChild(const InChild&) = delete;
  InChild& operator=(const InChild&) = delete;

  const std::function<void()> then;
};

// The number of forks between this process and the one that loaded the library.
uint64_t forks() noexcept;

// Lives while this thread runs foreign code outside of a call. A fork does not wait there for a library that is being opened,
// because the thread that opens it may be waiting for this code. Kernels need no ForeignCode.
class ForeignCode {
 public:
  ForeignCode() noexcept;
  ~ForeignCode();
  ForeignCode(const ForeignCode&) = delete;
  ForeignCode& operator=(const ForeignCode&) = delete;
};

// Lives while this thread opens or closes a shared library. The C library then holds locks that a forked child would find
// held for ever. So fork() waits until no other thread has an OpeningLibrary, at most a second, and no thread gets
// one before the fork is over. This is not a lock: several threads may have one, and one thread may nest them. Constructors
// of libraries run inside.
class OpeningLibrary {
 public:
  OpeningLibrary() noexcept;
  ~OpeningLibrary();
  OpeningLibrary(const OpeningLibrary&) = delete;
  OpeningLibrary& operator=(const OpeningLibrary&) = delete;
};

}  // namespace yard::base
