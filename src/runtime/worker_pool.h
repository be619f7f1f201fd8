// SPDX-License-Identifier: Apache-2.0
// The threads that help callers with their loops.
//
// A caller puts its job into a slot, announces it, works on it itself, and waits for those who have joined. Several callers,
// and loops inside of loops, share the workers. A worker that finds nothing spins for a moment, since the next loop of a
// model follows within microseconds, and then sleeps. A thread that waits takes on no other work.
//
// A loop of a language model takes a few microseconds, and each access to a cache line that another core has written some
// hundred nanoseconds. So nothing here makes a system call while workers are awake, and all that a worker needs of a job is in
// two lines: the announcement, which all poll, and the slot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace yard::runtime {

class WorkerPool {
 public:
  // Work in numbered pieces that several threads can do at once.
  class Job {
   public:
    // Does pieces, which it takes from `taken`, and returns when none is left to begin. Thread 0 is the caller, whose first
    // piece is 0. Others begin with the piece of their number if it is free: in loops over the same rows, these are then in
    // the cache of that core.
    virtual void work(int32_t thread, std::atomic<int64_t>& taken) noexcept = 0;
    const int64_t pieces;

    // The next piece for a thread; `pieces` or more: none is left. Few pieces are bits of `taken`, more are counted there.
    int64_t take(int32_t thread, std::atomic<int64_t>& taken) const noexcept;
    // `taken` when all are.
    int64_t all_taken() const noexcept {
      return pieces < kBits ? (int64_t{1} << pieces) - 1 : pieces;
    }

   protected:
    explicit Job(int64_t count) noexcept : pieces(count) {}
    ~Job() = default;

   private:
    static constexpr int64_t kBits = 63;
  };

  // That of this process: a forked child starts with no workers.
  static WorkerPool& get();

  // Has the job done by this thread and at most so many workers, which are started as needed. Fewer help where they are
  // busy or no thread can be started. Returns when it is done; in a child that the job itself has forked, when this
  // thread's share is.
  void run(Job& job, int32_t helpers);

  WorkerPool() = default;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

 private:
  static constexpr uint32_t kSlots = 32;
  static constexpr int32_t kMostWorkers = 256;
  // Of Slot::state: the rest is the number of workers inside.
  static constexpr uint32_t kTaken = 1u << 31, kOpen = 1u << 30, kWaiting = 1u << 29;
  static constexpr uint32_t kInside = kWaiting - 1;

  struct alignas(64) Slot {
    std::atomic<uint32_t> state{0};
    std::atomic<int32_t> most{0};  // workers
    std::atomic<int64_t> taken{0}, all_taken{0};
    // Written before the slot is opened, read by those who have joined.
    Job* job = nullptr;
  };

  // What callers tell workers, in one word: the latest job's number, slot and helpers. Which workers are asked depends on the
  // slot, so that jobs of different callers ask different ones.
  struct Announcement {
    uint32_t word;
    static Announcement of(uint32_t number, uint32_t slot, int32_t helpers) noexcept {
      return {number << 16 | slot << 9 | static_cast<uint32_t>(helpers)};
    }
    uint32_t number() const noexcept { return word >> 16; }
    uint32_t slot() const noexcept { return word >> 9 & (kSlots - 1); }
    int32_t helpers() const noexcept { return static_cast<int32_t>(word & 511); }
  };
  static_assert(kSlots <= 1 << 7 && kMostWorkers < 1 << 9);

  Slot* take_slot() noexcept;
  Announcement announce(const Slot& slot, int32_t helpers) noexcept;
  void grow(int32_t to) noexcept;
  // One worker, for the life of the process.
  void serve(int32_t worker);
  // The first of the workers that jobs in a slot ask; the others follow it, in a circle.
  static int32_t first_asked(uint32_t slot, int32_t workers) noexcept {
    return static_cast<int32_t>(slot) % (workers > 0 ? workers : 1);
  }
  // How many are asked before a worker.
  int32_t place_of(int32_t worker, uint32_t slot) const noexcept;
  // Whether there was anything to do.
  bool help_any(int32_t worker);
  bool help(Slot& slot, int32_t worker);
  // Returns when there may be work that was not there when the announcement was `seen`.
  void wait_for_work(int32_t worker, uint32_t seen) noexcept;
  // Wakes some of those who are asked and asleep.
  void wake(Announcement a) noexcept;
  static void wait_until_left(Slot& slot) noexcept;

  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> announced_{0};
  alignas(64) std::atomic<uint32_t> asleep_[kMostWorkers]{};  // 1: in a futex
  std::atomic<int32_t> workers_{0};
  bool no_more_threads_ = false;
  std::mutex growing_;  // only tried
};

}  // namespace yard::runtime
