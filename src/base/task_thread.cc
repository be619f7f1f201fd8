// SPDX-License-Identifier: Apache-2.0
#include "base/task_thread.h"

#include "base/this_process.h"

namespace yard::base {

void TaskThread::Queue::run() {
  for (const uint64_t process = forks(); process == forks();) {  // not in a child that a task forks
    std::function<void()> task;
    {
      std::unique_lock l(lock);
      while (!halted &&
             (tasks.empty() || tasks.begin()->first > std::chrono::steady_clock::now())) {
        if (tasks.empty())
          more.wait(l);
        else
          more.wait_until(l, Time(tasks.begin()->first));
      }
      if (halted) return tasks.clear();
      task = std::move(tasks.begin()->second);
      tasks.erase(tasks.begin());
    }
    task();
  }
}

Status TaskThread::post_at(Time when, std::function<void()> task) {
  Control& c = control_.get();
  const std::lock_guard lock(c.lock);
  if (c.stopped) return {};
  if (c.thread == nullptr) {
    auto queue = std::make_shared<Queue>();
    auto started = Background::start(
        "yard-events", [queue] { queue->run(); },
        [queue] {
          const std::lock_guard l(queue->lock);
          queue->halted = true;
          queue->more.notify_all();
        });
    if (!started.ok()) return std::move(started).status();
    c.thread = *std::move(started);
    c.queue = std::move(queue);
  }
  const std::lock_guard l(c.queue->lock);
  c.queue->tasks.emplace(when, std::move(task));
  c.queue->more.notify_all();
  return {};
}

void TaskThread::stop() {
  Control& c = control_.get();
  std::shared_ptr<Background> thread;
  {
    const std::lock_guard lock(c.lock);
    c.stopped = true;
    thread = c.thread;
  }
  if (thread == nullptr) return;
  thread->halt();
  thread->wait();
}

}  // namespace yard::base
