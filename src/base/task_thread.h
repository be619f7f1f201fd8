// SPDX-License-Identifier: Apache-2.0
// Runs what it is given, in order or when it is time, on a thread of its own, which begins with the first
// task.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/background.h"
#include "base/owned_per_process.h"

namespace yard::base {

class TaskThread {
 public:
  TaskThread() = default;
  ~TaskThread() { stop(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Tasks that have not begun are dropped, and those that are posted later; waits for the one that runs.
  void stop();
  // From any thread, also from a task. What a task throws is the task's to catch. A forked child has none of
  // the parent's tasks. An error if there can be no thread: then the task is dropped.
  Status post(std::function<void()> task) { return post_at(Time::min(), std::move(task)); }
  // The same, not before `when`.
  using Time = std::chrono::steady_clock::time_point;
  Status post_at(Time when, std::function<void()> task);

 private:
  struct Queue {
    std::mutex lock;
    std::condition_variable more;
    std::multimap<Time, std::function<void()>> tasks;  // equal times in the order they came
    bool halted = false;
    void run();
  };
  struct Control {
    std::mutex lock;
    std::shared_ptr<Queue> queue;
    std::shared_ptr<Background> thread;
    bool stopped = false;
    void inherit(Control&) {}
  };
  OwnedPerProcess<Control> control_;
};

}  // namespace yard::base
