// SPDX-License-Identifier: Apache-2.0
// Background threads, which run tasks in order or at a given time, and end at the latest at exit.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace yard::base {

// Starts a detached thread, which takes no signals but those of a failure. `name` is a literal.
// Fails if no thread can be started.
Status start_thread(const char* name, std::function<void()> run);

struct TaskQueue;

struct TaskHooks {
  // Called on the thread after its last task, when stop() was called or the process exits.
  std::function<void()> at_end = nullptr;
  // Makes a long task return soon. Called by stop() and when the process exits.
  std::function<void()> interrupt = nullptr;
  // Posted by the next call in a forked child of a process that has started the thread.
  std::function<void()> in_child = nullptr;
};

// Starts its thread with the first task. A forked child has none of the parent's tasks. Any thread
// may call all functions, also from a task. If a task throws std::bad_alloc, that is logged, and the
// thread goes on. Tasks and hooks must not throw anything else.
class TaskThread {
 public:
  // `name` is a literal.
  explicit TaskThread(const char* name = "yard-events", TaskHooks hooks = {});
  ~TaskThread();

  // Drops tasks that have not begun, and those that are posted later. Waits for the running task,
  // except on this thread.
  void stop();
  // Fails if no thread can be started.
  using Time = std::chrono::steady_clock::time_point;
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  Status post_at(Time when, std::function<void()> task);
  // For the running task: runs it again, at the earliest of these times. Needs no memory.
  void repeat_at(Time when) noexcept;

 private:
  void abandon_in_child();
  const std::shared_ptr<TaskQueue> queue_;
  InChild in_child_{[this] { abandon_in_child(); }};
};

// The next call of an op that needs a plan or a counter calls `then`, once, also in a child that is
// forked before that. If that throws std::bad_alloc, the call after it does.
void at_next_call(void (*then)()) noexcept;
// Calls what at_next_call() was given. One load if there is nothing.
void run_due_at_call() noexcept;

// Calls `end`, which may hang or end its thread, on another thread, or here if no thread can be
// started. Waits for it up to a second, but not inside of a call. If kMostHangingEnds of them hang,
// later ones are never called.
void end_on_own_thread(std::function<void()> end) noexcept;
inline constexpr size_t kMostHangingEnds = 16;

struct Ends;

// While it lives, end_on_own_thread() does not wait on this thread. Waits for all of them together
// when it is destroyed, up to a second and not inside of a call.
class EndTogether {
 public:
  EndTogether() noexcept;
  ~EndTogether();
  EndTogether& operator=(EndTogether&&) = delete;

 private:
  std::shared_ptr<Ends> ends_;
  Ends* outer_;
};

}  // namespace yard::base
