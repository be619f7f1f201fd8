// SPDX-License-Identifier: Apache-2.0
// Background threads, which run tasks in order or at a given time, and end when the process exits.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace yard::base {

// Starts a detached thread that blocks all signals except crashes. `name` must be a literal.
Status start_thread(const char* name, std::function<void()> run);

struct TaskQueue;

struct TaskHooks {
  std::function<void()> at_end = nullptr;
  // Makes a long task return soon. Called by stop() and when the process exits.
  std::function<void()> interrupt = nullptr;
  // Posted by the first call in a forked child if the parent had started the thread.
  std::function<void()> in_child = nullptr;
};

// Starts its thread with the first task. A forked child has none of the parent's tasks. All
// functions are thread-safe, and tasks may call them. Tasks and hooks may throw only
// std::bad_alloc, which is logged.
class TaskThread {
 public:
  explicit TaskThread(const char* name = "yard-events", TaskHooks hooks = {});
  ~TaskThread();

  // Drops tasks that have not begun, and later ones. Waits for the running task, except on its
  // thread.
  void stop();
  using Time = std::chrono::steady_clock::time_point;
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  Status post_at(Time when, std::function<void()> task);
  // Makes the running task run again at `when` or an earlier time that it gave. Needs no memory.
  void repeat_at(Time when) noexcept;

 private:
  const std::shared_ptr<TaskQueue> queue_;
};

// Makes the next call of an op that needs a plan or a counter call `then` once, also in a child
// that is forked before. If `then` throws std::bad_alloc, the call after that one calls it again.
// Every caller must pass the same function.
void at_next_call(void (*then)()) noexcept;
// Calls the function given to at_next_call(). Costs one load if there is none.
void run_due_at_call() noexcept;

// Calls `end`, which may hang or end its thread, on another thread, or on this one if no thread can
// be started. Waits up to a second for `end`, but not inside a call.
void end_on_own_thread(std::function<void()> end) noexcept;

// While this exists, end_on_own_thread() does not wait on this thread. The destructor waits for all
// functions together, up to a second, but not inside a call.
class EndTogether {
 public:
  EndTogether() noexcept;
  ~EndTogether();
  EndTogether& operator=(EndTogether&&) = delete;

 private:
  friend void end_on_own_thread(std::function<void()> end) noexcept;
  // Counts functions that have not returned. Null if `outer_` counts.
  std::shared_ptr<size_t> left_;
  EndTogether* const outer_;
};

}  // namespace yard::base
