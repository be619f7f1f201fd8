// SPDX-License-Identifier: Apache-2.0
// Background threads, which run tasks in order or at a given time, and end when the process exits.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace yard::base {

// Starts a detached thread that blocks all signals except those of crashes. `name` is a literal.
Status start_thread(const char* name, std::function<void()> run);

struct TaskQueue;

struct TaskHooks {
  // Called on the thread after its last task.
  std::function<void()> at_end = nullptr;
  // Makes a long task return soon. Called by stop() and when the process exits.
  std::function<void()> interrupt = nullptr;
  // Posted by the first call in a forked child if the parent had started the thread.
  std::function<void()> in_child = nullptr;
};

// Starts its thread with the first task. A forked child has none of the parent's tasks. Any thread
// may call all functions, also from a task. Tasks and hooks must throw nothing but std::bad_alloc,
// which is logged.
class TaskThread {
 public:
  // `name` is a literal.
  explicit TaskThread(const char* name = "yard-events", TaskHooks hooks = {});
  ~TaskThread();

  // Drops tasks that have not begun, and later ones. Waits for the running task, except on this
  // thread.
  void stop();
  using Time = std::chrono::steady_clock::time_point;
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  Status post_at(Time when, std::function<void()> task);
  // The running task calls this to run again, at the earliest of these times. Needs no memory.
  void repeat_at(Time when) noexcept;

 private:
  const std::shared_ptr<TaskQueue> queue_;
};

// The next call of an op that needs a plan or a counter calls `then` once, also in a child that is
// forked before. If `then` throws std::bad_alloc, the call after that one calls it again. Every
// caller must pass the same function.
void at_next_call(void (*then)()) noexcept;
// Calls what at_next_call() was given. Costs one load if there is nothing.
void run_due_at_call() noexcept;

// Calls `end`, which may hang or end its thread, on another thread, or on this one if no thread can
// be started. Waits for it up to a second, but not inside of a call. While kMostHangingEnds of them
// hang, no others are called.
void end_on_own_thread(std::function<void()> end) noexcept;
inline constexpr size_t kMostHangingEnds = 16;

// While it lives, end_on_own_thread() does not wait on this thread. Its destructor waits for all of
// them together, up to a second, but not inside of a call.
class EndTogether {
 public:
  EndTogether() noexcept;
  ~EndTogether();
  EndTogether& operator=(EndTogether&&) = delete;

 private:
  friend void end_on_own_thread(std::function<void()> end) noexcept;
  std::shared_ptr<size_t>
      left_;  // counts functions that have not returned; null if `outer_` counts
  EndTogether* const outer_;
};

}  // namespace yard::base
