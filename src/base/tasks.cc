// SPDX-License-Identifier: Apache-2.0
#include "base/tasks.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::base {

using std::chrono::seconds;

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
    sigdelset(&all, fatal);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

// What the thread and its owner share.
struct TaskThread::Queue {
  Queue(const char* n, Hooks h) : name(n), hooks(std::move(h)) {}

  static Status post(const std::shared_ptr<Queue>& queue, Time when, std::function<void()> task);
  static Status start(const std::shared_ptr<Queue>& queue);  // under the lock
  static void at_exit();
  void run();
  void halt();
  // Returns false if the thread has not ended within that time.
  bool wait(std::optional<seconds> longest);
  bool here() const { return thread && pthread_equal(*thread, pthread_self()) != 0; }

  const char* const name;
  const Hooks hooks;
  const uint64_t process = forks();
  Mutex lock{Rank::kTasks};
  Condition more, ended;
  std::multimap<Time, std::function<void()>> tasks;  // equal times in the order of posting
  bool started = false, halted = false, done = false;
  std::optional<pthread_t> thread;
};

namespace {

// At exit this is enough to write a file to a slow disk. After that a thread is abandoned.
constexpr seconds kLongestExit(5);
constexpr seconds kLongestEnd(1);

struct Known {
  Mutex lock{Rank::kTasks};
  std::vector<std::weak_ptr<void>> running;  // queues whose thread was started
  std::vector<std::weak_ptr<void>>
      in_child;  // queues with a task that this forked child has not posted yet
};
Known& known() {
  static constinit std::once_flag once;
  static constinit Known* made =
      nullptr;  // never destroyed, because threads use it while the process exits
  std::call_once(once, [] { made = new Known; });
  return *made;
}
std::atomic<bool> g_child_has_tasks{false};

void remember(std::vector<std::weak_ptr<void>>& queues, const std::shared_ptr<void>& queue) {
  const std::lock_guard lock(known().lock);
  std::erase_if(queues, [](const auto& q) { return q.expired(); });
  queues.push_back(queue);
}

}  // namespace

Status TaskThread::Queue::post(const std::shared_ptr<Queue>& queue, Time when,
                               std::function<void()> task) {
  static constinit std::once_flag once;
  std::call_once(once, [] { std::atexit(at_exit); });
  std::unique_lock l(queue->lock);
  if (!queue->started) {
    l.unlock();
    remember(known().running, queue);
    l.lock();
  }
  if (queue->halted) return {};
  const auto added = queue->tasks.emplace(when, std::move(task));
  if (!queue->started) {
    if (Status s = start(queue); !s.ok()) {
      queue->tasks.erase(added);
      return s;
    }
  }
  queue->more.notify_all();
  return {};
}

Status TaskThread::Queue::start(const std::shared_ptr<Queue>& queue) {
  const SignalsBlocked blocked;  // for the new thread
  try {
    std::thread([queue] {
      // A name that another thread sets would open a file, which programs that are started meanwhile would inherit.
      pthread_setname_np(pthread_self(), queue->name);
      queue->run();
    }).detach();
  } catch (const std::system_error& e) {
    return Status(Code::kUnsupported, fmt::format("cannot start a thread: {}", exception_text(e)));
  }
  queue->started = true;
  return {};
}

void TaskThread::Queue::run() {
  std::unique_lock l(lock);
  thread = pthread_self();
  while (!halted) {
    if (tasks.empty()) {
      more.wait(l);
    } else if (const Time when = tasks.begin()->first; when > std::chrono::steady_clock::now()) {
      more.wait_until(l, when);
    } else {
      std::function<void()> task = std::move(tasks.begin()->second);
      tasks.erase(tasks.begin());
      l.unlock();
      task();
      task = nullptr;
      if (forks() != process) return;  // the task has forked, and this is the child
      l.lock();
    }
  }
  auto dropped = std::exchange(tasks, {});
  l.unlock();
  dropped.clear();
  try {
    hooks.at_end();
  } catch (...) {
    log(LogLevel::kError, "base",
        fmt::format("a background thread ended with an exception: {}", current_exception_text()));
  }
  l.lock();
  done = true;
  ended.notify_all();
}

void TaskThread::Queue::halt() {
  {
    const std::lock_guard l(lock);
    halted = true;
    more.notify_all();
  }
  hooks.interrupt();
}

bool TaskThread::Queue::wait(std::optional<seconds> longest) {
  std::unique_lock l(lock);
  if (!started || here()) return true;
  const auto is_done = [&] { return done; };
  if (longest) return ended.wait_for(l, *longest, is_done);
  ended.wait(l, is_done);
  return true;
}

// Threads must not run on while the statics that they use are destroyed. A forked child does not wait for its parent's.
void TaskThread::Queue::at_exit() {
  std::vector<std::shared_ptr<Queue>> all;
  {
    const std::lock_guard lock(known().lock);
    for (const auto& weak : known().running)
      if (const auto q = std::static_pointer_cast<Queue>(weak.lock());
          q != nullptr && q->process == forks())
        all.push_back(q);
  }
  for (const auto& q : all) q->halt();
  for (const auto& q : all) q->wait(kLongestExit);
}

TaskThread::TaskThread(const char* name, Hooks hooks)
    : queue_(std::make_shared<Queue>(name, std::move(hooks))) {}

bool TaskThread::here() const {
  const std::lock_guard lock(queue_->lock);
  return queue_->here();
}

Status TaskThread::post_at(Time when, std::function<void()> task) {
  return Queue::post(queue_, when, std::move(task));
}

void TaskThread::stop() {
  const std::shared_ptr<Queue> q = queue_;
  q->halt();
  q->wait(std::nullopt);
}

// The parent's queue and its tasks are not destroyed: ending what tasks own is up to the parent.
void TaskThread::abandon_in_child() {
  const auto* const left = new std::shared_ptr<Queue>(queue_);
  queue_ = std::make_shared<Queue>((*left)->name, (*left)->hooks);
  queue_->halted = (*left)->halted;
  if (queue_->hooks.in_child == nullptr) return;
  remember(known().in_child, queue_);
  g_child_has_tasks.store(true, std::memory_order_relaxed);
}

void start_tasks_of_child() noexcept {
  if (!g_child_has_tasks.load(std::memory_order_relaxed)) return;
  if (!g_child_has_tasks.exchange(false, std::memory_order_acq_rel)) return;
  std::vector<std::weak_ptr<void>> due;
  {
    const std::lock_guard lock(known().lock);
    due.swap(known().in_child);
  }
  for (const auto& weak : due) {
    const auto queue = std::static_pointer_cast<TaskThread::Queue>(weak.lock());
    if (queue == nullptr) continue;
    const Status posted = or_out_of_memory([&] {
      return TaskThread::Queue::post(queue, TaskThread::Time::min(), queue->hooks.in_child);
    });
    if (!posted.ok()) log(LogLevel::kError, "base", std::string(posted.message()));
  }
}

void end_on_own_thread(std::function<void()> end) noexcept {
  using Queue = TaskThread::Queue;
  std::shared_ptr<Queue> queue;
  const Status posted = or_out_of_memory([&] {
    queue = std::make_shared<Queue>("yard-reclaim", TaskThread::Hooks());
    return Queue::post(queue, TaskThread::Time::min(), [end, q = queue.get()] {
      end();
      q->halt();
    });
  });
  if (!posted.ok()) return end();
  if (!inside_call()) queue->wait(kLongestEnd);
}

}  // namespace yard::base
