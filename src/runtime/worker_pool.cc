// SPDX-License-Identifier: Apache-2.0
// Loops on several threads, and the workers that help callers with them.
//
// A caller puts its loop into a slot, announces it, works on it, and waits for the workers that
// have joined. A worker without work spins for a moment, because the next loop of a model follows
// within microseconds, and then sleeps. A waiting thread does no other work.
//
// A loop of a language model takes a few microseconds, and reading a cache line that another core
// has written takes some hundred nanoseconds. So nothing here makes a system call while workers are
// awake, and a worker needs only three such lines: announcement, slot and loop.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/float_state.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/tasks.h"
#include "dispatch/scope.h"
#include "runtime/host.h"

namespace yard::runtime {
namespace {

// How long a worker looks for the next job before it sleeps. This is longer than the time between
// two loops of a model, and not much longer than waking a thread takes. After kSpinAlone the worker
// yields its core between two looks.
constexpr std::chrono::microseconds kSpin(100), kSpinAlone(20);
constexpr int kPauses = 32;  // between two looks at the clock
constexpr int kWakeAtOnce = 2;

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word) noexcept {
  ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("isb" : : : "memory");
#endif
}

// Returns true as soon as done() does, or false after kSpin.
template <class F>
bool spin_until(const F& done) noexcept {
  const auto start = std::chrono::steady_clock::now();
  for (auto now = start; now - start < kSpin; now = std::chrono::steady_clock::now()) {
    for (int i = 0; i < kPauses; ++i) {
      if (done()) return true;
      pause();
    }
    if (now - start > kSpinAlone) ::sched_yield();
  }
  return done();
}

// ---- Loops ----

// Cuts a loop into units of at least the grain, and groups units into pieces. Each round has a
// piece for every thread and covers half of the remaining units, so a thread takes few pieces and
// the last ones are short. If there are few units for each thread, a thread takes its share in one
// piece. With more threads the last pieces are longer, because threads contend for the word that
// pieces are taken from.
class Cut {
 public:
  Cut(int64_t count, int64_t units, int64_t threads) noexcept
      : count_(count),
        units_(units),
        threads_(threads),
        smallest_(units < 4 * threads ? (units + threads - 1) / threads
                                      : std::max<int64_t>(1, threads / 8)) {}
  int64_t pieces() const noexcept { return walk(std::numeric_limits<int64_t>::max()).piece; }
  template <class F>
  void run(int64_t piece, const F& body) const {
    const Walk w = walk(piece);
    const int64_t first = w.unit + (piece - w.piece) * w.size;
    body(edge(first), edge(std::min(first + w.size, units_)));
  }

 private:
  // The round of a piece: its first piece and unit, and how many units each of its pieces has.
  struct Walk {
    int64_t piece = 0, unit = 0, size = 0;
  };
  Walk walk(int64_t piece) const noexcept {
    Walk w;
    for (;;) {
      const int64_t left = units_ - w.unit;
      w.size = std::max(smallest_, left / (2 * threads_));
      // The second case is the last round.
      const int64_t round = w.size > smallest_ ? threads_ : (left + smallest_ - 1) / smallest_;
      if (left <= 0 || piece - w.piece < round) return w;
      w.piece += round, w.unit += round * w.size;
    }
  }
  // Sizes of units differ by at most one, so none is smaller than count / units.
  int64_t edge(int64_t unit) const noexcept {
    const int64_t each = count_ / units_, rest = count_ % units_;
    return unit * each + std::min(unit, rest);
  }

  int64_t count_, units_, threads_, smallest_;
};

class alignas(64) ParallelLoop {
 public:
  ParallelLoop(const Cut& cut, LoopBody body, void* context) noexcept
      : pieces(cut.pieces()), cut_(cut), body_(body), context_(context) {
    if (const detail::ThreadHead* const head = detail::t_thread)
      scope_ = head->scope_state, inside_call_ = head->depth > 0;
  }

  const int64_t pieces;

  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  // Returns the value of `taken` when all pieces are taken. If there are few pieces, each is a bit
  // of `taken`. Otherwise `taken` counts them.
  int64_t all_taken() const noexcept {
    return pieces < kBits ? (int64_t{1} << pieces) - 1 : pieces;
  }

  // Takes pieces from `taken` and runs them until none is left. Thread 0 is the caller, whose first
  // piece is 0. Another thread begins with the piece of its number if that is free, because in
  // loops over the same rows its core has these in its cache. Lets no exception out.
  void work(int32_t thread, std::atomic<int64_t>& taken) noexcept {
    if (thread == 0) return run_from(0, thread, taken);
    // A thread that has no memory to register for calls leaves the work to others.
    if (detail::t_thread == nullptr && detail::try_register_thread() == nullptr) return;
    const int64_t piece = take(thread, taken);
    if (piece >= pieces) return;
    const detail::ScopeOfCaller scope(*detail::t_thread, scope_);
    std::optional<detail::Guard> inside;
    if (inside_call_) inside.emplace(*detail::t_thread);
    run_from(piece, thread, taken);
  }

 private:
  static constexpr int64_t kBits = 63;

  // Returns the next piece for a thread. The result is `pieces` or more if none is left.
  int64_t take(int32_t thread, std::atomic<int64_t>& taken) const noexcept {
    if (pieces >= kBits) return taken.fetch_add(1, std::memory_order_relaxed);
    const auto take_one = [&](int64_t piece) {
      const int64_t bit = int64_t{1} << piece;
      return (taken.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
    };
    if (thread < pieces && (taken.load(std::memory_order_relaxed) >> thread & 1) == 0 &&
        take_one(thread))
      return thread;
    for (;;) {
      const int64_t free = all_taken() & ~taken.load(std::memory_order_relaxed);
      if (free == 0) return pieces;
      if (const int64_t first = std::countr_zero(static_cast<uint64_t>(free)); take_one(first))
        return first;
    }
  }

  void run_from(int64_t piece, int32_t thread, std::atomic<int64_t>& taken) noexcept {
    for (; piece < pieces && !failed(); piece = take(thread, taken)) {
      const base::FloatState restored;  // the thread will run pieces of other callers
      try {
        cut_.run(piece, [&](int64_t begin, int64_t end) { body_(context_, begin, end); });
      } catch (...) {
        failed_.store(true, std::memory_order_relaxed);
      }
    }
  }

  const Cut cut_;
  const LoopBody body_;
  void* const context_;
  // Threads take these over from the waiting caller. A thread that is inside a call may not wait
  // for calls to end, because it would wait for the caller.
  const detail::ScopeState* scope_ = nullptr;
  bool inside_call_ = false;
  std::atomic<bool> failed_{false};
};

// ---- Workers ----

// Callers tell workers the number of the latest loop, its slot, and how many workers may help. The
// slot decides which workers are asked, so that loops of different callers ask different ones.
struct alignas(uint32_t) Announcement {
  uint16_t number = 0;
  uint8_t slot = 0, helpers = 0;
  bool operator==(const Announcement&) const = default;
};

class WorkerPool {
 public:
  // Returns the pool of this process. A forked child starts with no workers.
  static WorkerPool& get() {
    WorkerPool* pool = pool_.load(std::memory_order_acquire);
    if (pool != nullptr) return *pool;
    // A forked child makes another pool and does not touch the parent's.
    struct Forget : base::InChild {
      Forget() : InChild([] { pool_.store(nullptr, std::memory_order_relaxed); }) {}
    };
    base::process_wide<Forget>();
    auto made = std::make_unique<WorkerPool>();
    if (pool_.compare_exchange_strong(pool, made.get(), std::memory_order_acq_rel))
      return *made.release();
    return *pool;
  }

  // Runs the loop on this thread and at most `helpers` workers, which are started as needed. In a
  // child that the loop itself has forked, returns when this thread's share is done.
  void run(ParallelLoop& loop, int32_t helpers) {
    helpers = std::min(helpers, kMostWorkers);
    if (workers_.load(std::memory_order_relaxed) < helpers) grow(helpers);
    Slot* const slot = workers_.load(std::memory_order_relaxed) > 0 ? take_slot() : nullptr;
    if (slot == nullptr) {
      std::atomic<int64_t> taken{1};
      return loop.work(0, taken);
    }
    const uint64_t process = base::forks();
    slot->loop = &loop;
    slot->most.store(helpers, std::memory_order_relaxed);
    slot->taken.store(1, std::memory_order_relaxed);
    slot->all_taken.store(loop.all_taken(), std::memory_order_relaxed);
    // Not store(), because a worker that comes late for the last loop may be inside for a moment.
    slot->state.fetch_or(kOpen, std::memory_order_release);
    wake(announce(*slot, helpers));
    loop.work(0, slot->taken);
    if (base::forks() != process) return;  // a child has no workers
    wait_until_left(*slot);
  }

 private:
  static constexpr uint32_t kSlots = 32;
  static constexpr int32_t kMostWorkers = 255;
  // Bits of Slot::state. The other bits count the workers inside.
  static constexpr uint32_t kTaken = 1u << 31, kOpen = 1u << 30, kWaiting = 1u << 29;
  static constexpr uint32_t kInside = kWaiting - 1;

  struct alignas(64) Slot {
    std::atomic<uint32_t> state{0};
    std::atomic<int32_t> most{0};  // how many workers may join
    std::atomic<int64_t> taken{0}, all_taken{0};
    // Written before the slot is opened, and read by workers that have joined.
    ParallelLoop* loop = nullptr;
  };

  Slot* take_slot() noexcept {
    for (Slot& s : slots_) {
      uint32_t free = 0;
      if (s.state.load(std::memory_order_relaxed) == 0 &&
          s.state.compare_exchange_strong(free, kTaken, std::memory_order_acquire))
        return &s;
    }
    return nullptr;
  }

  uint8_t number_of(const Slot& slot) const noexcept {
    return static_cast<uint8_t>(&slot - slots_);
  }

  // Either the caller sees that the worker is asleep, or wait_for_work() sees the announcement.
  Announcement announce(const Slot& slot, int32_t helpers) noexcept {
    Announcement last = announced_.load(std::memory_order_relaxed), next;
    next.slot = number_of(slot), next.helpers = static_cast<uint8_t>(helpers);
    do next.number = static_cast<uint16_t>(last.number + 1);
    while (!announced_.compare_exchange_weak(last, next, std::memory_order_seq_cst));
    return next;
  }

  void grow(int32_t to) noexcept {
    const std::unique_lock lock(growing_, std::try_to_lock);
    if (!lock.owns_lock() || no_more_threads_) return;
    for (int32_t n; !no_more_threads_ && (n = workers_.load(std::memory_order_relaxed)) < to;) {
      workers_.store(n + 1, std::memory_order_relaxed);  // so that the worker counts itself
      const auto start = [&] { return base::start_thread("yard-worker", [this, n] { serve(n); }); };
      no_more_threads_ = !base::or_out_of_memory(start).ok();
      if (no_more_threads_) workers_.store(n, std::memory_order_relaxed);
    }
  }

  void serve(int32_t worker) {
    Announcement seen = announced_.load(std::memory_order_relaxed);
    for (const uint64_t process = base::forks(); base::forks() == process;) {
      const Announcement now = announced_.load(std::memory_order_acquire);
      // If the worker has missed an announcement, there may be other loops, so look at all slots.
      const bool is_next = now.number == static_cast<uint16_t>(seen.number + 1);
      bool helped = is_next
                        ? place_of(worker, now.slot) < now.helpers && help(slots_[now.slot], worker)
                        : help_any(worker);
      while (helped) helped = help_any(worker);
      seen = now;
      wait_for_work(worker, seen);
    }
  }

  // Returns the worker that loops in a slot ask first. The others follow in a circle.
  static int32_t first_asked(uint8_t slot, int32_t workers) noexcept {
    return slot % (workers > 0 ? workers : 1);
  }

  // Returns how many workers are asked before this one.
  int32_t place_of(int32_t worker, uint8_t slot) const noexcept {
    const int32_t all = workers_.load(std::memory_order_relaxed), first = first_asked(slot, all);
    return worker >= first ? worker - first : worker - first + all;
  }

  bool help_any(int32_t worker) {
    for (Slot& s : slots_) {
      const uint32_t state = s.state.load(std::memory_order_relaxed);
      if ((state & kOpen) != 0 &&
          static_cast<int32_t>(state & kInside) < s.most.load(std::memory_order_relaxed) &&
          s.taken.load(std::memory_order_relaxed) < s.all_taken.load(std::memory_order_relaxed) &&
          help(s, worker))
        return true;
    }
    return false;
  }

  bool help(Slot& slot, int32_t worker) {
    const uint32_t before = slot.state.fetch_add(1, std::memory_order_acquire);
    const auto others = static_cast<int32_t>(before & kInside);
    const int32_t most = slot.most.load(std::memory_order_relaxed);
    const bool has_joined = (before & kOpen) != 0 && others < most;
    if (has_joined) {
      const uint64_t process = base::forks();
      if (others + 1 < most) wake({0, number_of(slot), static_cast<uint8_t>(most)});
      slot.loop->work(place_of(worker, number_of(slot)) + 1, slot.taken);
      // If a piece has forked this child, the caller is not here.
      if (base::forks() != process) return true;
    }
    const uint32_t last = slot.state.fetch_sub(1, std::memory_order_acq_rel);
    if ((last & kInside) == 1 && (last & kWaiting) != 0) futex_wake(slot.state);
    return has_joined;
  }

  // Returns when there may be work that came after the announcement `seen`.
  void wait_for_work(int32_t worker, Announcement seen) noexcept {
    if (spin_until([&] { return announced_.load(std::memory_order_acquire) != seen; })) return;
    std::atomic<uint32_t>& asleep = asleep_[worker];
    asleep.store(1, std::memory_order_seq_cst);
    while (announced_.load(std::memory_order_seq_cst) == seen &&
           asleep.load(std::memory_order_relaxed) == 1)
      futex_wait(asleep, 1);
    asleep.store(0, std::memory_order_relaxed);
  }

  // Wakes up to kWakeAtOnce workers that are asked and asleep. These wake the next ones.
  void wake(Announcement a) noexcept {
    const int32_t all = workers_.load(std::memory_order_relaxed);
    int woken = 0;
    for (int32_t i = 0, at = first_asked(a.slot, all);
         i < std::min<int32_t>(a.helpers, all) && woken < kWakeAtOnce;
         ++i, at = at + 1 < all ? at + 1 : 0) {
      if (asleep_[at].load(std::memory_order_seq_cst) == 0 || asleep_[at].exchange(0) == 0)
        continue;
      futex_wake(asleep_[at]);
      ++woken;
    }
  }

  static void wait_until_left(Slot& slot) noexcept {
    for (;;) {
      uint32_t now = 0;
      const auto left = [&] {
        now = slot.state.load(std::memory_order_acquire);
        return (now & kInside) == 0;
      };
      if (!spin_until(left)) {
        now = slot.state.fetch_or(kWaiting, std::memory_order_acq_rel) | kWaiting;
        while (!left()) futex_wait(slot.state, now);
      }
      if (slot.state.compare_exchange_strong(now, 0, std::memory_order_acq_rel)) return;
    }
  }

  static inline constinit std::atomic<WorkerPool*> pool_{nullptr};
  Slot slots_[kSlots];
  alignas(64) std::atomic<Announcement> announced_{};
  alignas(64) std::atomic<uint32_t> asleep_[kMostWorkers]{};  // 1 if the worker is in a futex
  std::atomic<int32_t> workers_{0};
  bool no_more_threads_ = false;
  std::mutex growing_;  // only try_to_lock
};

// How long the set of a thread's processors is cached. Asking takes as long as a small loop.
constexpr std::chrono::milliseconds kAskAgain(10);

std::atomic<int32_t> g_thread_limit{0};  // 0 means no limit

}  // namespace

int32_t parallel_for_on(int32_t threads, int64_t count, int64_t grain, LoopBody body,
                        void* context) {
  if (count <= 0) return YARD_OK;
  const int64_t most = count / std::max<int64_t>(grain, 1);
  try {
    if (most <= 1 || threads <= 1) return body(context, 0, count), YARD_OK;
    const uint64_t process = base::forks();
    ParallelLoop loop(Cut(count, most, threads), body, context);
    WorkerPool::get().run(loop, static_cast<int32_t>(std::min<int64_t>(threads, loop.pieces) - 1));
    // In a child that a piece has forked, pieces of the other threads are missing.
    return loop.failed() || base::forks() != process ? YARD_FAULT : YARD_OK;
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    return YARD_FAULT;  // the body threw, or memory for the pool ran out
  }
}

int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context) {
  const bool one_piece = count / 2 < std::max<int64_t>(grain, 1);
  return parallel_for_on(one_piece ? 1 : concurrency(), count, grain, body, context);
}

int32_t concurrency() noexcept {
  const int32_t limit = g_thread_limit.load(std::memory_order_relaxed);
  if (limit == 1) return 1;
  static thread_local constinit int32_t cpus = 0;
  static thread_local constinit std::chrono::steady_clock::time_point asked{};
  if (const auto now = std::chrono::steady_clock::now(); cpus == 0 || now - asked > kAskAgain) {
    cpu_set_t set;
    cpus = sched_getaffinity(0, sizeof set, &set) == 0
               ? CPU_COUNT(&set)
               : static_cast<int32_t>(std::thread::hardware_concurrency());
    cpus = std::max(cpus, 1), asked = now;
  }
  return limit > 0 ? std::min(limit, cpus) : cpus;
}

}  // namespace yard::runtime

void yard::Runtime::limit_threads(int32_t most) noexcept {
  runtime::g_thread_limit.store(std::max(most, 0), std::memory_order_relaxed);
}
