// SPDX-License-Identifier: Apache-2.0
// Locks that survive fork(). One handler (fork.cc) takes every Mutex before a fork, so that whatever a lock protects is whole
// in the child, and releases them in parent and child. How to use this:
//
//   class Board {
//     mutable base::Mutex lock_{base::Rank::kBoard};
//     base::Condition changed_;                          // changed_.wait(unique_lock), as std::condition_variable
//     base::InChild in_child_{[this] { forget_probes(); }};  // the last member
//   };
//   base::StaticMutex g_lock{base::Rank::kLog};          // constinit, for globals: it is never destroyed
//
// - A Mutex is never recursive. A thread that holds one may take only mutexes of a higher rank. Debug builds abort otherwise.
// - No foreign code (plugins, verifiers, probes, callbacks, log sinks; so also no base::log) runs while a Mutex is held.
//   Enclose foreign code by a ForeignCode, which asserts that in debug builds.
// - Threads of the parent do not exist in the child. An object that notes what threads are doing (loads under way,
//   selections that others wait for) forgets these notes in an InChild. Conditions have no waiters in the child.
// - Mutexes of rank kOutput are not taken but made again in the child, because they are held while a thread writes to a file.
//   The child must drop what they protect, in an InChild.
// - Do not use function-local statics that need a constructor: a child would wait for ever for one that another thread of its
//   parent was making. Use std::call_once, which starts again in the child.
#pragma once

#include <atomic>
#include <condition_variable>
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
  kOutput,       // held while a file or stderr is written; not taken at a fork
  kOutputShard,  // a part of what is to be written
  kTasks,
  kCounters,
  kReclaimer,
  kLog,
};
inline constexpr int kRanks = static_cast<int>(Rank::kLog) + 1;
constexpr bool is_taken_at_fork(Rank rank) noexcept { return rank != Rank::kOutput; }

namespace locks {

// The lock behind a mutex. Locks are never freed, only reused, so that the handler of fork can walk through them.
struct Lock {
  std::mutex mutex;
  Lock* next = nullptr;       // of the same rank
  Lock* next_free = nullptr;  // while no Mutex uses it
  bool taken = false;         // by the handler of fork
};
// The same behind a Condition.
struct Signal {
  std::condition_variable condition;
  Signal* next = nullptr;
  Signal* next_free = nullptr;
};

Lock& acquire_lock(std::atomic<Lock*>& place, Rank rank);
void give_back(Lock& lock, Rank rank) noexcept;
Signal& acquire_signal(std::atomic<Signal*>& place);
void give_back(Signal& signal) noexcept;

#ifndef NDEBUG
void check_order(Rank rank) noexcept;
void note_locked(Rank rank) noexcept;
void note_unlocked(Rank rank) noexcept;
#else
inline void check_order(Rank) noexcept {}
inline void note_locked(Rank) noexcept {}
inline void note_unlocked(Rank) noexcept {}
#endif

}  // namespace locks

// Aborts a debug build if this thread holds a Mutex. Does nothing in a release build.
#ifndef NDEBUG
void assert_no_lock_held() noexcept;
#else
inline void assert_no_lock_held() noexcept {}
#endif

// A mutex for globals. Its destructor is trivial, so that threads may use it while the process exits. The first lock()
// allocates.
class StaticMutex {
 public:
  constexpr explicit StaticMutex(Rank rank) noexcept : rank_(rank) {}
  StaticMutex(const StaticMutex&) = delete;
  StaticMutex& operator=(const StaticMutex&) = delete;

  void lock() {
    locks::check_order(rank_);
    get().mutex.lock();
    locks::note_locked(rank_);
  }
  bool try_lock() {
    const bool locked = get().mutex.try_lock();
    if (locked) locks::note_locked(rank_);
    return locked;
  }
  void unlock() {
    locks::note_unlocked(rank_);
    get().mutex.unlock();
  }

 protected:
  friend class Condition;
  locks::Lock& get() {
    locks::Lock* const lock = lock_.load(std::memory_order_acquire);
    return lock != nullptr ? *lock : locks::acquire_lock(lock_, rank_);
  }
  const Rank rank_;
  std::atomic<locks::Lock*> lock_{nullptr};
};

// A mutex for members of objects.
class Mutex : public StaticMutex {
 public:
  using StaticMutex::StaticMutex;
  ~Mutex() {
    if (locks::Lock* const lock = lock_.load(std::memory_order_acquire))
      locks::give_back(*lock, rank_);
  }
};

// A condition variable for a Mutex or a StaticMutex.
class Condition {
 public:
  Condition() = default;
  ~Condition() {
    if (locks::Signal* const signal = signal_.load(std::memory_order_acquire))
      locks::give_back(*signal);
  }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_all() { get().condition.notify_all(); }
  void notify_one() { get().condition.notify_one(); }

  template <class M, class... Predicate>
  void wait(std::unique_lock<M>& lock, Predicate&&... until) {
    const Waiting waiting(*lock.mutex());
    get().condition.wait(waiting.lock, std::forward<Predicate>(until)...);
  }
  // These return what those of std::condition_variable do.
  template <class M, class Time, class... Predicate>
  auto wait_for(std::unique_lock<M>& lock, const Time& time, Predicate&&... until) {
    const Waiting waiting(*lock.mutex());
    return get().condition.wait_for(waiting.lock, time, std::forward<Predicate>(until)...);
  }
  template <class M, class Time, class... Predicate>
  auto wait_until(std::unique_lock<M>& lock, const Time& time, Predicate&&... until) {
    const Waiting waiting(*lock.mutex());
    return get().condition.wait_until(waiting.lock, time, std::forward<Predicate>(until)...);
  }

 private:
  // The caller's lock in the form that std::condition_variable takes. Predicates run with the lock held and must not take
  // another, which check_order would not see.
  struct Waiting {
    explicit Waiting(StaticMutex& mutex) : lock(mutex.get().mutex, std::adopt_lock) {}
    ~Waiting() { lock.release(); }
    mutable std::unique_lock<std::mutex> lock;
  };
  locks::Signal& get() {
    locks::Signal* const signal = signal_.load(std::memory_order_acquire);
    return signal != nullptr ? *signal : locks::acquire_signal(signal_);
  }
  std::atomic<locks::Signal*> signal_{nullptr};
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

 private:
  friend struct ForkHandler;
  const std::function<void()> then_;
  InChild *before_ = nullptr, *after_ = nullptr;
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
