// SPDX-License-Identifier: Apache-2.0
// Loops on several threads, and the workers that help callers with them.
//
// A caller puts its loop into a slot, announces it, works on it, and waits until all of it is done.
// Each thread takes its own part of the loop in a few pieces, and then pieces of threads that are
// late. A worker without work spins for a moment, because the next loop of a model follows within
// microseconds, and then sleeps. A waiting thread does no other work.
//
// A loop of a language model takes a few microseconds, and getting a cache line that another core
// has written takes some hundred nanoseconds, one thread after the other if all write to it. So all
// workers only read the announcement and the slot, and each part has a line of its own. Nothing
// here makes a system call while workers are awake.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
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
constexpr int kWakeAtOnce = 2, kPauses = 32;  // between two looks at the clock

// These take the address of a word, or of a number that begins with it.
void futex_wait(void* word, uint64_t expected) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, static_cast<uint32_t>(expected), nullptr);
}
void futex_wake(void* word) noexcept {
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("isb" : : : "memory");
#endif
}

// Returns true as soon as done() does, or false after about a microsecond.
template <class F>
bool spin_briefly(const F& done) noexcept {
  for (int i = 0; i < kPauses; ++i) {
    if (done()) return true;
    pause();
  }
  return done();
}

// Returns true as soon as done() does, or false after kSpin.
template <class F>
bool spin_until(const F& done) noexcept {
  if (spin_briefly(done)) return true;
  const auto start = std::chrono::steady_clock::now();
  for (auto now = start; now - start < kSpin; now = std::chrono::steady_clock::now()) {
    if (spin_briefly(done)) return true;
    if (now - start > kSpinAlone) ::sched_yield();
  }
  return done();
}

// ---- Loops ----

// Cuts a loop into units of at least the grain, and these into a part for each thread. Each piece
// of a part covers half of the units that are left, so the last ones, which other threads may take,
// are short.
struct Cut {
  static constexpr int64_t kMostThreads = 256, kMostUnits = 64;  // units in a part
  static constexpr int kUnits = 9;                               // first bit of `units` in state()

  uint32_t units, threads;

  Cut(int64_t most_units, int64_t most_threads) noexcept {
    const int64_t most = std::min({most_threads, most_units, kMostThreads});
    const int64_t n = std::min(most_units, most * kMostUnits);
    // More threads would not make the longest part shorter.
    const int64_t longest = (n + most - 1) / most;
    units = static_cast<uint32_t>(n), threads = static_cast<uint32_t>((n + longest - 1) / longest);
  }
  // A cut as one number. `threads` is 0 if the number is not a cut.
  uint64_t state() const noexcept { return uint64_t{units} << kUnits | threads; }
  explicit Cut(uint64_t state) noexcept
      : units(static_cast<uint32_t>(state >> kUnits) & 0x7fff),
        threads(static_cast<uint32_t>(state) & 0x1ff) {}

  uint32_t first_unit(uint32_t part) const noexcept { return units * part / threads; }
};

struct Part {
  uint32_t first, units;
  Part(const Cut& cut, uint32_t index) noexcept
      : first(cut.first_unit(index)), units(cut.first_unit(index + 1) - first) {}
  // `units >> i` units are left after i pieces.
  uint32_t pieces() const noexcept { return static_cast<uint32_t>(std::bit_width(units)); }
  uint32_t first_unit(uint32_t piece) const noexcept { return first + units - (units >> piece); }
};

struct Loop {
  LoopBody body = nullptr;
  void* context = nullptr;
  int64_t each = 0;  // elements of a unit; the first `rest` units have one more
  uint16_t rest = 0;
  // Workers take these over from the waiting caller. A thread that is inside a call may not wait
  // for calls to end, because it would wait for the caller.
  bool inside_call = false;
  const detail::ScopeState* scope = nullptr;

  // Lets no exception out. Returns false after one.
  bool run(const Part& part, uint32_t piece) const noexcept {
    const base::FloatState restored;  // the thread will run pieces of other callers
    const auto edge = [this](uint32_t unit) { return unit * each + std::min<int64_t>(unit, rest); };
    try {
      body(context, edge(part.first_unit(piece)), edge(part.first_unit(piece + 1)));
      return true;
    } catch (...) {
      return false;
    }
  }
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

  // Runs the loop on this thread and the workers of its other parts, which are started as needed.
  // Returns false if the body threw an exception, and in a child that the loop itself has forked.
  bool run(int64_t count, const Cut& cut, LoopBody body, void* context) {
    const auto helpers = static_cast<int32_t>(cut.threads) - 1;
    if (workers_.load(std::memory_order_relaxed) < helpers) grow(helpers);
    Slot* const slot = workers_.load(std::memory_order_relaxed) > 0 ? take_slot() : nullptr;
    if (slot == nullptr) return body(context, 0, count), true;
    const uint64_t process = base::forks();
    slot->loop = {body, context, count / cut.units, static_cast<uint16_t>(count % cut.units)};
    if (const detail::ThreadHead* const head = detail::t_thread)
      slot->loop.scope = head->scope_state, slot->loop.inside_call = head->depth > 0;
    slot->failed.store(false, std::memory_order_relaxed);
    const uint64_t number = slot->state.load(std::memory_order_relaxed) & kNumber;
    slot->state.store(number | cut.state(), std::memory_order_release);
    wake(announce(*slot, helpers));
    for (uint32_t i = 0; i < cut.threads && base::forks() == process; ++i)
      work(*slot, number | cut.state(), i, true);
    if (base::forks() != process) return false;  // a child has no workers
    for (uint32_t i = 0; i < cut.threads; ++i)
      wait_until_done(slot->progress[i], Part(cut, i).pieces());
    const bool failed = slot->failed.load(std::memory_order_relaxed);
    slot->state.store(number, std::memory_order_release);
    return !failed;
  }

 private:
  static constexpr uint32_t kSlots = 32;
  static constexpr int32_t kMostWorkers = Cut::kMostThreads - 1;

  // Slots and parts have the number of a loop in the upper bits, so that a worker that comes late
  // does not take its pieces for pieces of a later loop.
  static constexpr uint64_t kNext = 1u << 24, kNumber = ~(kNext - 1);
  // The lower bits of Slot::state are zeros, this, or the cut of an open loop.
  static constexpr uint64_t kReserved = 1u << Cut::kUnits;
  // The lower bits of Progress::state.
  static constexpr uint64_t kDone = 0x7f, kWaiting = 0x80;  // pieces done; the caller sleeps
  static constexpr int kTaken = 8;                          // first bit of the pieces taken

  // How far the threads have got with a part of the latest loop that had as many parts.
  struct alignas(64) Progress {
    std::atomic<uint64_t> state{0};
  };
  // All but the state is written before the slot is opened. The loop is read by threads that have
  // taken a piece.
  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    std::unique_ptr<Progress[]> progress;  // made for the first loop
    Loop loop;
    std::atomic<bool> failed{false};
  };
  static_assert(sizeof(Slot) == 64);

  // Returns null if all slots are taken or memory has run out.
  Slot* take_slot() noexcept {
    for (Slot& s : slots_) {
      uint64_t now = s.state.load(std::memory_order_relaxed);
      const uint64_t mine = (now + kNext) | kReserved;
      if ((now & ~kNumber) != 0 ||
          !s.state.compare_exchange_strong(now, mine, std::memory_order_acquire))
        continue;
      if (!s.progress) s.progress.reset(new (std::nothrow) Progress[Cut::kMostThreads]);
      if (s.progress) return &s;
      s.state.store(now, std::memory_order_release);
    }
    return nullptr;
  }

  // Takes a piece of a part. Returns a negative number if none is left.
  static int32_t take(Progress& progress, uint64_t loop, uint32_t pieces) noexcept {
    uint64_t now = progress.state.load(std::memory_order_relaxed), begun = 0;
    do {
      const auto ahead = static_cast<int64_t>((loop & kNumber) - (now & kNumber));
      if (ahead < 0) return -1;
      begun = ahead > 0 ? loop & kNumber : now;
      if ((begun >> kTaken & 0xff) >= pieces) return -1;
    } while (!progress.state.compare_exchange_weak(now, begun + (1u << kTaken),
                                                   std::memory_order_relaxed));
    return static_cast<int32_t>(begun >> kTaken & 0xff);
  }

  // Works on what is left of a part, and returns whether that was something. While a piece is taken
  // and not done, the caller waits, so the loop can be read.
  static bool work(Slot& slot, uint64_t loop, uint32_t index, bool is_caller) {
    const Part part(Cut(loop), index);
    Progress& progress = slot.progress[index];
    int32_t piece = take(progress, loop, part.pieces());
    if (piece < 0) return false;
    uint64_t done = 0;
    {
      std::optional<detail::ScopeOfCaller> scope;
      std::optional<detail::Guard> inside;
      if (!is_caller) scope.emplace(*detail::t_thread, slot.loop.scope);
      if (!is_caller && slot.loop.inside_call) inside.emplace(*detail::t_thread);
      for (; piece >= 0; piece = take(progress, loop, part.pieces()), ++done)
        if (!slot.failed.load(std::memory_order_relaxed) &&
            !slot.loop.run(part, static_cast<uint32_t>(piece)))
          slot.failed.store(true, std::memory_order_relaxed);
    }
    const uint64_t before = progress.state.fetch_add(done, std::memory_order_acq_rel);
    if ((before & kWaiting) != 0) futex_wake(&progress.state);
    return true;
  }

  static void wait_until_done(Progress& progress, uint32_t pieces) noexcept {
    uint64_t now = 0;
    const auto done = [&] {
      now = progress.state.load(std::memory_order_acquire);
      return (now & kDone) == pieces;
    };
    if (spin_until(done)) return;
    progress.state.fetch_or(kWaiting, std::memory_order_relaxed);
    while (!done()) futex_wait(&progress.state, now);
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
    bool has_slept = false;
    for (const uint64_t process = base::forks(); base::forks() == process;) {
      const Announcement now = announced_.load(std::memory_order_acquire);
      // If the loop is still open, wakes more workers.
      if (has_slept && Cut(slots_[now.slot].state.load(std::memory_order_relaxed)).threads > 0)
        wake(now);
      // If the worker has missed an announcement, there may be other loops, so look at all slots.
      if (now.number == static_cast<uint16_t>(seen.number + 1))
        help(slots_[now.slot], worker, false);
      else if (now != seen)
        help_any(worker);
      seen = now;
      has_slept = wait_for_work(worker, seen);
    }
  }

  // Returns the worker that loops in a slot ask first. The others follow in a circle.
  static int32_t first_asked(uint8_t slot, int32_t workers) noexcept {
    return slot % (workers > 0 ? workers : 1);
  }

  // Returns the part with which a worker begins. Part 0 is the caller's.
  uint32_t part_of(int32_t worker, const Slot& slot) const noexcept {
    const int32_t all = workers_.load(std::memory_order_relaxed);
    const int32_t first = first_asked(number_of(slot), all);
    return static_cast<uint32_t>(worker >= first ? worker - first : worker - first + all) + 1;
  }

  // Works on the worker's part of an open loop, and on all others if `others` is true.
  bool help(Slot& slot, int32_t worker, bool others) {
    const uint64_t loop = slot.state.load(std::memory_order_acquire);
    const Cut cut(loop);
    const uint32_t own = part_of(worker, slot);
    if (own >= cut.threads) return false;
    // A thread that has no memory to register for calls leaves the work to others.
    if (detail::t_thread == nullptr && detail::try_register_thread() == nullptr) return false;
    const uint64_t process = base::forks();
    bool helped = work(slot, loop, own, false);
    for (uint32_t i = 1; others && i < cut.threads && base::forks() == process; ++i)
      helped |= work(slot, loop, (own + i) % cut.threads, false);
    return helped;
  }

  bool help_any(int32_t worker) {
    return std::any_of(slots_, slots_ + kSlots, [&](Slot& s) { return help(s, worker, true); });
  }

  // Returns when there may be work that came after the announcement `seen`, or after helping with
  // earlier work. Returns true after sleeping.
  bool wait_for_work(int32_t worker, Announcement seen) {
    const auto news = [&] { return announced_.load(std::memory_order_acquire) != seen; };
    // Looking at other parts at once would slow down the threads that are about to finish them.
    if (spin_briefly(news) || help_any(worker) || spin_until(news)) return false;
    std::atomic<uint32_t>& asleep = asleep_[worker];
    asleep.store(1, std::memory_order_seq_cst);
    while (announced_.load(std::memory_order_seq_cst) == seen &&
           asleep.load(std::memory_order_relaxed) == 1)
      futex_wait(&asleep, 1);
    asleep.store(0, std::memory_order_relaxed);
    return true;
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
      futex_wake(&asleep_[at]);
      ++woken;
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

// How long the set of a thread's processors is cached. Asking takes as long as a small loop. The
// clock can be 4 ms late, but takes 8 ns where others take at least 24.
constexpr int64_t kAskAgainMs = 5;

int64_t coarse_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

std::atomic<int32_t> g_thread_limit{0};  // 0 means no limit

}  // namespace

int32_t parallel_for_on(int32_t threads, int64_t count, int64_t grain, LoopBody body,
                        void* context) {
  if (count <= 0) return YARD_OK;
  const int64_t most = count / std::max<int64_t>(grain, 1);
  try {
    if (most <= 1 || threads <= 1) return body(context, 0, count), YARD_OK;
    return WorkerPool::get().run(count, Cut(most, threads), body, context) ? YARD_OK : YARD_FAULT;
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
  static thread_local constinit int64_t asked = 0;
  if (const int64_t now = coarse_ms(); cpus == 0 || now - asked > kAskAgainMs) {
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
