// SPDX-License-Identifier: Apache-2.0
// A background thread that runs tasks in order or at a given time, and ending objects on a thread of their own. These threads
// take no signals and do not run on after the process has begun to exit.
#pragma once

#include <signal.h>
#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>

#include "base/mutex.h"

namespace yard::base {

// While one lives, this thread takes no signals, and neither do threads that it starts. Signals of a failure still end the
// process.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts its thread with the first task. A forked child has none of the parent's tasks, and no thread before its own first
// task. All functions may be called from any thread, also from a task.
class TaskThread {
 public:
  struct Hooks {
    // Called on the thread after its last task, when stop() was called or the process exits.
    std::function<void()> at_end = [] {};
    // Makes a long task return soon. Called by stop() and when the process exits.
    std::function<void()> interrupt = [] {};
    // A task for each forked child, which runs after the child's first call that needs a plan or a counter.
    std::function<void()> in_child = nullptr;
  };
  // `name` is a literal.
  explicit TaskThread(const char* name = "yard-events") : TaskThread(name, Hooks()) {}
  TaskThread(const char* name, Hooks hooks);
  ~TaskThread() { stop(); }

  // Drops tasks that have not begun, and those that are posted later. Waits for the running task, except on this thread.
  void stop();
  // Tasks must not throw. Fails if no thread can be started.
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  using Time = std::chrono::steady_clock::time_point;
  Status post_at(Time when, std::function<void()> task);
  // Whether the calling thread is this one.
  bool here() const;

 private:
  struct Queue;
  friend void start_tasks_of_child() noexcept;
  friend void end_on_own_thread(std::function<void()> end) noexcept;
  void abandon_in_child();
  std::shared_ptr<Queue> queue_;
  InChild in_child_{[this] { abandon_in_child(); }};
};

// Runs Hooks::in_child of all task threads, once in each forked child. One load if that has been done.
void start_tasks_of_child() noexcept;

// Calls `end` on a thread of its own, for ending what may take long or hang, such as a library with its destructors. Waits
// for that up to a second, but not inside of a call of an op. If no thread can be started, calls `end` here.
void end_on_own_thread(std::function<void()> end) noexcept;

}  // namespace yard::base
