// SPDX-License-Identifier: Apache-2.0
// Locks that survive fork(). One handler (fork.cc) takes every Mutex before a fork, so that the
// child finds intact data, and releases them in parent and child.
//
//   class Board {
//     mutable base::Mutex lock_{base::Rank::kBoard};
//     base::Condition changed_;
//     base::InChild in_child_{[this] { forget_probes(); }};  // the last member
//   };
//
// - A thread that holds a Mutex may take only mutexes of a higher rank. Debug builds assert that.
// - No foreign code (plugins, verifiers, probes, callbacks, log sinks and thus base::log) runs
//   while a Mutex is held. A ForeignCode around it asserts that in debug builds.
// - The child has only the thread that forked. An object that notes what threads are doing forgets
//   these notes in an InChild.
// - Do not use function-local statics that need a constructor: a child would wait for ever for one
//   that another thread of its parent was making. Use process_wide() or pthread_once, and not
//   std::call_once: it needs static storage of libstdc++, which dlopen cannot always give.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace yard::base {

// The order in which mutexes are taken, lowest first. A fork does not take mutexes of kOutput,
// because they are held while a file is written. The child makes them again and drops the data that
// they protect.
// clang-format off
enum class Rank : uint8_t {
  kRuntimes, kLoader, kRules, kFunctions, kPublish, kPlans, kStates, kBoard, kCanary, kCalls,
  kScopes, kBreaker, kOutput, kOutputShard, kTasks, kCounters, kReclaimer, kLog,
};
// clang-format on

// Has no destructor, so that threads may use a global Mutex while the process exits. Mutexes of one
// rank share some locks, so holding one may block another.
class Mutex {
 public:
  constexpr explicit Mutex(Rank rank) noexcept : rank_(rank) {}
  Mutex& operator=(Mutex&&) = delete;

  void lock() noexcept;
  void unlock() noexcept;

 private:
  const Rank rank_;
};

// A forked child may use and destroy a Condition on which threads of its parent were waiting.
class Condition {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Lock = std::unique_lock<Mutex>;

  void notify_all() noexcept;

  // May return early. Returns false after `end`.
  bool wait_until(Lock& lock, Time end) noexcept;
  void wait(Lock& lock) noexcept { wait_until(lock, Time::max()); }
  template <class Predicate>
  void wait(Lock& lock, const Predicate& until) {
    while (!until()) wait(lock);
  }
  template <class Predicate>
  bool wait_for(Lock& lock, std::chrono::nanoseconds time, const Predicate& until) {
    const Time end = std::chrono::steady_clock::now() + time;
    while (!until())
      if (!wait_until(lock, end)) return until();
    return true;
  }

 private:
  std::atomic<uint32_t> wakes_{0};
};

// Returns the one T of this process, which the first call makes. The T is never destroyed, because
// threads may use it while the process exits. T must have internal linkage.
template <class T>
T& process_wide() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  static constinit T* made = nullptr;
  ::pthread_once(&once, [] { made = new T; });
  return *made;
}

// Every forked child calls `then`, in the order of construction, after all mutexes have been
// released. Make this the last member, so that `then` does not run while its object is being made
// or destroyed. `then` must not destroy another InChild.
class InChild {
 public:
  explicit InChild(std::function<void()> then);
  ~InChild();
  InChild& operator=(InChild&&) = delete;

  const std::function<void()> then;
};

uint64_t forks() noexcept;

// Exists while this thread runs foreign code outside of a call. If the code forks, the fork does
// not wait for a library that is being opened, because the opening thread may be waiting for this
// code.
class ForeignCode {
 public:
  ForeignCode() noexcept;
  ~ForeignCode();
  ForeignCode& operator=(ForeignCode&&) = delete;
};

// Exists while this thread opens or closes a shared library. The C library then holds locks that
// would stay locked in a child, so fork() waits up to a second for such threads.
class OpeningLibrary {
 public:
  OpeningLibrary() noexcept;
  ~OpeningLibrary();
  OpeningLibrary& operator=(OpeningLibrary&&) = delete;
};

}  // namespace yard::base
