// SPDX-License-Identifier: Apache-2.0
// Background threads, which run tasks in order or at a given time. They take no signals and end when the process exits.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace yard::base {

// Starts a detached thread, which takes no signals but those of a failure. `name` is a literal. Fails if there can be no
// more threads.
Status start_thread(const char* name, std::function<void()> run);

struct TaskQueue;

// Starts its thread with the first task. A forked child has none of the parent's tasks, and no thread before its own first
// task. All functions may be called from any thread, also from a task.
class TaskThread {
 public:
  struct Hooks {
    // Called on the thread after its last task, when stop() was called or the process exits.
    std::function<void()> at_end = nullptr;
    // Makes a long task return soon. Called by stop() and when the process exits.
    std::function<void()> interrupt = nullptr;
    // A task for forked children of a process that has started the thread. It is posted by the child's next call.
    std::function<void()> in_child = nullptr;
  };
  // `name` is a literal.
  explicit TaskThread(const char* name = "yard-events") : TaskThread(name, Hooks()) {}
  TaskThread(const char* name, Hooks hooks);
  ~TaskThread() { stop(); }

  // Drops tasks that have not begun, and those that are posted later. Waits for the running task, except on this thread.
  void stop();
  // Tasks must not throw. Fails if no thread can be started.
  using Time = std::chrono::steady_clock::time_point;
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  Status post_at(Time when, std::function<void()> task);

 private:
  void abandon_in_child();
  std::shared_ptr<TaskQueue> queue_;
  InChild in_child_{[this] { abandon_in_child(); }};
};

// Has `then` called once, by the next call of an op that needs a plan or a counter, on the thread of that call. A child that
// is forked before that calls it, too.
void at_next_call(std::function<void()> then);
// Calls what at_next_call() was given. One load if there is nothing.
void run_due_at_call() noexcept;

// Calls `end`, which may take long or hang, on a thread of its own. Waits for it up to a second, but not inside of a call of
// an op. If no thread can be started, calls `end` here.
void end_on_own_thread(std::function<void()> end) noexcept;

}  // namespace yard::base
