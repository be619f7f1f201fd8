// SPDX-License-Identifier: Apache-2.0
#include "base/tasks.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::base {

using Time = TaskThread::Time;
using std::chrono::seconds;

Status start_thread(const char* name, std::function<void()> run) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
    sigdelset(&all, fatal);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  Status status;
  try {
    std::thread([name, run = std::move(run)] {
      // Another thread would open a file for this, which a program started meanwhile inherits.
      pthread_setname_np(pthread_self(), name);
      run();
    }).detach();
  } catch (const std::bad_alloc&) {
    status = Status::out_of_memory();
  } catch (const std::exception& e) {
    status =
        Status(Code::kUnsupported, fmt::format("cannot start a thread: {}", exception_text(e)));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

struct TaskQueue : std::enable_shared_from_this<TaskQueue> {
  TaskQueue(const char* n, TaskHooks h) : name(n), hooks(std::move(h)) {}

  Status post(Time when, std::function<void()> task);
  void run();
  void halt();
  void wait(seconds longest);

  const char* const name;
  const TaskHooks hooks;
  const uint64_t process = forks();
  Mutex lock{Rank::kTasks};
  Condition changed;
  std::multimap<Time, std::function<void()>> tasks;  // equal times in the order of posting
  bool started = false, halted = false, done = false;
  bool resumes = false;  // the parent had started the thread
  std::thread::id thread;
};

namespace {

constexpr seconds kLongestExit(5);  // enough to write a file to a slow disk
constexpr seconds kLongestEnd(1), kForEver = std::chrono::hours(24 * 365);

std::atomic<bool> g_due_at_call{false};

// Its lock may be taken with that of a queue held.
struct Known {
  Mutex lock{Rank::kLog};
  std::vector<std::weak_ptr<TaskQueue>> running;
  std::vector<std::function<void()>> at_next_call;

  Known() { std::atexit(end_all); }
  // Threads must not run on while the statics that they use are destroyed.
  static void end_all() {
    std::vector<std::shared_ptr<TaskQueue>> all;
    {
      Known& known = process_wide<Known>();
      const std::lock_guard hold(known.lock);
      for (const auto& weak : known.running)
        if (auto q = weak.lock(); q != nullptr && q->process == forks()) all.push_back(q);
    }
    for (const auto& q : all) q->halt();
    for (const auto& q : all) q->wait(kLongestExit);
  }
  void add(const std::shared_ptr<TaskQueue>& queue) {
    const std::lock_guard hold(lock);
    std::erase_if(running, [](const auto& q) { return q.expired(); });
    running.push_back(queue);
  }
};

}  // namespace

Status TaskQueue::post(Time when, std::function<void()> task) {
  const std::lock_guard l(lock);
  if (halted) return {};
  if (!started) {
    process_wide<Known>().add(shared_from_this());
    YARD_RETURN_IF_ERROR(start_thread(name, [queue = shared_from_this()] { queue->run(); }));
    started = true;
  }
  tasks.emplace(when, std::move(task));
  changed.notify_all();
  return {};
}

void TaskQueue::run() {
  std::unique_lock l(lock);
  thread = std::this_thread::get_id();
  while (!halted) {
    const Time next = tasks.empty() ? Time::max() : tasks.begin()->first;
    if (next > std::chrono::steady_clock::now()) {
      changed.wait_until(l, next);
      continue;
    }
    std::function<void()> task = std::move(tasks.begin()->second);
    tasks.erase(tasks.begin());
    l.unlock();
    task();
    task = nullptr;
    if (forks() != process) return;  // the task has forked, and this is the child
    l.lock();
  }
  auto dropped = std::exchange(tasks, {});
  l.unlock();
  dropped.clear();
  if (hooks.at_end) or_out_of_memory(hooks.at_end).ignore();
  l.lock();
  done = true;
  changed.notify_all();
}

void TaskQueue::halt() {
  {
    const std::lock_guard l(lock);
    halted = true;
    changed.notify_all();
  }
  if (hooks.interrupt) hooks.interrupt();
}

void TaskQueue::wait(seconds longest) {
  std::unique_lock l(lock);
  if (started && thread != std::this_thread::get_id())
    changed.wait_for(l, longest, [&] { return done; });
}

TaskThread::TaskThread(const char* name, TaskHooks hooks)
    : queue_(std::make_shared<TaskQueue>(name, std::move(hooks))) {}

Status TaskThread::post_at(Time when, std::function<void()> task) {
  return queue_->post(when, std::move(task));
}

void TaskThread::stop() {
  const std::shared_ptr<TaskQueue> q = queue_;
  q->halt();
  q->wait(kForEver);
}

// The parent's queue is not destroyed, because ending what its tasks own is up to the parent.
void TaskThread::abandon_in_child() {
  const TaskQueue& left = **new std::shared_ptr<TaskQueue>(queue_);
  queue_ = std::make_shared<TaskQueue>(left.name, left.hooks);
  queue_->halted = left.halted;
  queue_->resumes = left.started || left.resumes;
  if (!queue_->resumes || left.hooks.in_child == nullptr) return;
  at_next_call([weak = std::weak_ptr(queue_)] {
    const auto queue = weak.lock();
    if (queue == nullptr || queue->process != forks()) return;
    if (const Status posted = queue->post(Time::min(), queue->hooks.in_child); !posted.ok())
      log(LogLevel::kError, "base", posted.message());
  });
}

void at_next_call(std::function<void()> then) {
  Known& known = process_wide<Known>();
  const std::lock_guard lock(known.lock);
  known.at_next_call.push_back(std::move(then));
  g_due_at_call.store(true, std::memory_order_release);
}

void run_due_at_call() noexcept {
  if (!g_due_at_call.load(std::memory_order_relaxed)) return;
  if (!g_due_at_call.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<std::function<void()>> due;
  {
    Known& known = process_wide<Known>();
    const std::lock_guard lock(known.lock);
    due.swap(known.at_next_call);
  }
  for (const auto& then : due) or_out_of_memory(then).ignore();
}

void end_on_own_thread(std::function<void()> end) noexcept {
  std::shared_ptr<TaskQueue> queue;
  const Status posted = or_out_of_memory([&] {
    queue = std::make_shared<TaskQueue>("yard-reclaim", TaskHooks());
    return queue->post(Time::min(), [end, q = queue.get()] {
      end();
      q->halt();
    });
  });
  if (!posted.ok()) return end();
  if (!inside_call()) queue->wait(kLongestEnd);
}

}  // namespace yard::base
