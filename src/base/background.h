// SPDX-License-Identifier: Apache-2.0
// Background threads: one that runs a function, and one that runs tasks in order or at a given time. They take no
// signals, can be waited for, and do not run on after the process has begun to exit. And ending objects on such threads.
#pragma once

#include <signal.h>
#include <yard/status.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork.h"

namespace yard::base {

// While one lives, this thread takes no signals, and those that it starts never will. Signals of a failure end the process
// on any thread: code of plugins may run there.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Asks for this thread to run soon after it wakes up, for short times, where all processors are busy. Linux 6.12 and
// later; others ignore it.
void ask_for_short_slices() noexcept;

class BackgroundThread {
 public:
  // `body` runs on a new thread; `halt` makes it return soon, and is called from any thread, perhaps several times. Both
  // live until the thread has ended. An exception of `body` is logged and ends the thread. `name` is a literal.
  static Result<std::shared_ptr<BackgroundThread>> start(const char* name,
                                                         std::function<void()> body,
                                                         std::function<void()> halt);

  void halt() const { halt_(); }
  // Whether the calling thread is this one.
  bool here() const noexcept;
  // Returns when the body has returned; at once on the thread itself.
  void wait();
  // False: it has not within that time.
  bool wait_for(std::chrono::nanoseconds time);

 private:
  explicit BackgroundThread(std::function<void()> halt) : halt_(std::move(halt)) {}
  static void at_exit();

  const std::function<void()> halt_;
  std::mutex lock_;
  std::condition_variable ended_;
  bool done_ = false;
};

// Starts its thread with the first task.
class TaskThread {
 public:
  // `at_end` runs on the thread once it is halted, by stop() or when the process exits. `name` is a literal.
  explicit TaskThread(
      const char* name = "yard-events", std::function<void()> at_end = [] {})
      : name_(name), at_end_(std::move(at_end)) {}
  ~TaskThread() { stop(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Drops tasks that have not begun, and those posted later; waits for the running one.
  void stop();
  // From any thread, also from a task. Tasks must not throw. A forked child has none of the parent's tasks. An error if
  // no thread can be started; the task is then dropped.
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  // The same, not before `when`.
  using Time = std::chrono::steady_clock::time_point;
  Status post_at(Time when, std::function<void()> task);

 private:
  struct Queue {
    std::mutex lock;
    std::condition_variable more;
    std::multimap<Time, std::function<void()>> tasks;  // equal times in the order of posting
    bool halted = false;
    void run();
  };
  struct Control {
    std::mutex lock;
    std::shared_ptr<Queue> queue;
    std::shared_ptr<BackgroundThread> thread;
    bool stopped = false;
    void inherit(Control&) {}
  };
  const char* const name_;
  const std::function<void()> at_end_;
  OwnedPerProcess<Control> control_;
};

// What may take long to end, or hang, such as a library with its stop() and destructors, or a recording with its file. Its
// last owner may be a call, which must not wait for it.
class Disposable {
 public:
  // `what`: for the log.
  explicit Disposable(std::string what) : what_(std::move(what)) {}
  virtual ~Disposable() = default;
  Disposable(const Disposable&) = delete;
  Disposable& operator=(const Disposable&) = delete;

 private:
  friend void dispose(Disposable* object) noexcept;
  friend class MayWait;
  std::string what_;
  Disposable* next_ = nullptr;  // of those without a thread
};

// Destroys it on a thread of its own. Where MayWait allows it, waits up to a second for that, and destroys it itself if no
// thread can be had; elsewhere it is then left to the next MayWait. An error is logged if it does not end in 10 s.
void dispose(Disposable* object) noexcept;

// In functions that load, unload, wait and set; not in calls of ops. Any thread.
class MayWait {
 public:
  MayWait() noexcept : MayWait(true) {}
  // False: for its time none is in effect, also if made later.
  explicit MayWait(bool may) noexcept;
  ~MayWait();
  MayWait(const MayWait&) = delete;
  MayWait& operator=(const MayWait&) = delete;

 private:
  const int before_;
};

// Tests: how long until one that hangs is reported.
void report_stuck_after(std::chrono::milliseconds time) noexcept;

}  // namespace yard::base
