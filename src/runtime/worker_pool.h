// SPDX-License-Identifier: Apache-2.0
// The threads that help callers with their loops.
//
// A caller puts its job into a slot, works on it itself, and waits for those who have joined. Workers look through the slots;
// several callers, and loops inside of loops, share them. A worker that finds nothing spins for a moment, since the next
// loop of a model follows within microseconds, and then sleeps. A thread that waits takes on no other work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace yard::runtime {

class WorkerPool {
 public:
  // Work that several threads can do at once.
  class Job {
   public:
    // Works on it, and returns when nothing is left to begin.
    virtual void work() noexcept = 0;

   protected:
    ~Job() = default;
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
  static constexpr size_t kSlots = 32;
  static constexpr int32_t kMostWorkers = 256;
  // Of Slot::state: the rest is the number of workers inside.
  static constexpr uint32_t kTaken = 1u << 31, kOpen = 1u << 30, kWaiting = 1u << 29;
  static constexpr uint32_t kInside = kWaiting - 1;

  struct alignas(64) Slot {
    std::atomic<uint32_t> state{0};
    // Written before the slot is opened, read by those who have joined.
    Job* job = nullptr;
    std::atomic<uint32_t> most{0};
  };

  Slot* take_slot() noexcept;
  void grow(int32_t to) noexcept;
  // One worker, for the life of the process.
  void serve();
  // Whether there was anything to do.
  bool help_any();
  bool help(Slot& slot);
  // Returns when there may be work that was not there when the epoch was `seen`.
  void wait_for_work(uint32_t seen) noexcept;
  void wake(uint32_t count) noexcept;
  static void wait_until_left(Slot& slot) noexcept;

  Slot slots_[kSlots];
  alignas(64) std::atomic<uint32_t> epoch_{0};  // grows with each job
  alignas(64) std::atomic<uint32_t> asleep_{0};
  std::atomic<int32_t> workers_{0};
  bool no_more_threads_ = false;
  std::mutex growing_;  // only tried
};

}  // namespace yard::runtime
