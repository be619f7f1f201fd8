// SPDX-License-Identifier: Apache-2.0
#include "base/tasks.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
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
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
  Status status;
  try {
    std::thread([name, run = std::move(run)] {
      // Another thread would open a file for this, which a program that starts now would inherit.
      pthread_setname_np(pthread_self(), name);
      run();
    }).detach();
  } catch (const std::bad_alloc&) {
    status = Status::out_of_memory();
  } catch (const std::exception& e) {
    status = failure(Code::kUnsupported, "cannot start a thread: {}", exception_text(e));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

struct TaskQueue : std::enable_shared_from_this<TaskQueue> {
  TaskQueue(const char* n, TaskHooks h) : name(n), hooks(std::move(h)) {}

  Status add(Time when, std::function<void()>&& task);  // the caller holds the lock
  Status resume();
  void run();
  void halt();
  void wait(seconds longest);
  void abandon() noexcept;

  using Tasks = std::multimap<Time, std::function<void()>>;  // equal times in the order of posting
  const char* const name;
  const TaskHooks hooks;
  Mutex lock{Rank::kTasks};
  Condition changed;
  Tasks tasks;
  Time again = Time::max();  // when the running task runs next
  bool started = false, halted = false, done = false;
  bool resumes = false;  // in a forked child, until hooks.in_child has been posted
  std::thread::id thread;
  InChild in_child{[this] { abandon(); }};
};

namespace {

constexpr seconds kLongestExit(5);  // enough to write a file to a slow disk
constexpr seconds kLongestEnd(1), kForEver = std::chrono::hours(24 * 365);

std::atomic<bool> g_due_at_call{false};
std::atomic<void (*)()> g_at_next_call{nullptr};

// A thread may take this lock while it holds the lock of a queue.
struct StartedQueues {
  Mutex lock{Rank::kLog};
  std::vector<std::weak_ptr<TaskQueue>> queues;
  bool at_exit = false;

  void add(const std::shared_ptr<TaskQueue>& queue) {
    const std::lock_guard hold(lock);
    at_exit = at_exit || std::atexit(end_all) == 0;
    std::erase_if(queues, [&](const auto& q) { return q.expired() || q.lock() == queue; });
    queues.push_back(queue);
  }
  std::vector<std::shared_ptr<TaskQueue>> all() {
    std::vector<std::shared_ptr<TaskQueue>> found;
    const std::lock_guard hold(lock);
    for (const auto& weak : queues)
      if (auto queue = weak.lock()) found.push_back(std::move(queue));
    return found;
  }
  // Threads must not continue while the statics that they use are destroyed.
  static void end_all() {
    const auto all = process_wide<StartedQueues>().all();
    for (const auto& queue : all) queue->halt();
    for (const auto& queue : all) queue->wait(kLongestExit);
  }
};

}  // namespace

Status TaskQueue::add(Time when, std::function<void()>&& task) {
  if (halted) return {};
  if (!started) {
    process_wide<StartedQueues>().add(shared_from_this());
    YARD_RETURN_IF_ERROR(start_thread(name, [queue = shared_from_this()] { queue->run(); }));
    started = true;
  }
  tasks.emplace(when, std::move(task));
  changed.notify_all();
  return {};
}

Status TaskQueue::resume() {
  const std::lock_guard l(lock);
  if (!resumes) return {};
  Status added = add(Time::min(), std::function(hooks.in_child));
  resumes = !added.ok();
  return added;
}

void TaskQueue::run() {
  const uint64_t here = forks();
  std::unique_lock l(lock);
  thread = std::this_thread::get_id();
  while (!halted) {
    const Time next = tasks.empty() ? Time::max() : tasks.begin()->first;
    if (next > std::chrono::steady_clock::now()) {
      changed.wait_until(l, next);
      continue;
    }
    auto task = tasks.extract(tasks.begin());
    again = Time::max();
    l.unlock();
    if (!or_out_of_memory([&] { task.mapped()(); }).ok())
      log_event(LogLevel::kError, "base", "a background task ran out of memory");
    if (forks() != here) return;  // the task has forked, and this is the child
    l.lock();
    if (again != Time::max() && !halted) {
      task.key() = again;
      tasks.insert(std::move(task));
    }
    l.unlock();
    task = {};
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

// Does not destroy the tasks, because the parent must end the objects that they own.
void TaskQueue::abandon() noexcept {
  std::construct_at(&tasks);
  resumes |= started && hooks.in_child != nullptr;
  started = done = false;
  thread = {};
  if (resumes) g_due_at_call.store(true, std::memory_order_release);
}

TaskThread::TaskThread(const char* name, TaskHooks hooks)
    : queue_(std::make_shared<TaskQueue>(name, std::move(hooks))) {}

TaskThread::~TaskThread() { stop(); }

Status TaskThread::post_at(Time when, std::function<void()> task) {
  const std::lock_guard l(queue_->lock);
  return queue_->add(when, std::move(task));
}

void TaskThread::stop() {
  const std::shared_ptr<TaskQueue> q = queue_;
  q->halt();
  q->wait(kForEver);
}

void TaskThread::repeat_at(Time when) noexcept { queue_->again = std::min(queue_->again, when); }

void at_next_call(void (*then)()) noexcept {
  g_at_next_call.store(then);
  g_due_at_call.store(true, std::memory_order_release);
}

void run_due_at_call() noexcept {
  if (!g_due_at_call.load(std::memory_order_relaxed)) return;
  if (!g_due_at_call.exchange(false, std::memory_order_acq_rel)) return;
  const auto then = g_at_next_call.exchange(nullptr);
  Status failed = or_out_of_memory([&] {
    if (then != nullptr) then();
  });
  if (!failed.ok()) at_next_call(then);
  const Status resumed = or_out_of_memory([]() -> Status {
    Status last;
    for (const auto& queue : process_wide<StartedQueues>().all())
      if (Status s = queue->resume(); !s.ok()) last = std::move(s);
    return last;
  });
  if (resumed.code() == Code::kOutOfMemory) g_due_at_call.store(true, std::memory_order_release);
  if (failed.ok()) failed = resumed;
  if (!failed.ok()) log(LogLevel::kError, "base", failed.message());
}

namespace {

thread_local EndTogether* t_together = nullptr;  // the outermost EndTogether

// The threads of the functions given to end_on_own_thread().
struct Enders {
  Mutex lock{Rank::kTasks};
  Condition changed;
  size_t threads = 0;
  // The child leaves the objects alone that the parent was about to end.
  InChild in_child{[this] { threads = 0; }};

  Enders() { std::atexit(at_exit); }
  static void at_exit() {
    Enders& all = process_wide<Enders>();
    std::unique_lock l(all.lock);
    all.changed.wait_for(l, kLongestExit, [&] { return all.threads == 0; });
  }

  // The caller holds the lock.
  Status start(const std::function<void()>& end, const std::shared_ptr<size_t>& left) {
    Status started = start_thread("yard-reclaim", [this, end, left] { run(end, *left); });
    if (started.ok()) ++threads, ++*left;
    return started;
  }

  void run(const std::function<void()>& end, size_t& left) {
    // Use a destructor here, because the function may end the thread.
    struct Running {
      Enders& all;
      size_t& left;
      const uint64_t process = forks();
      ~Running() {
        if (forks() != process) return;  // the child has no counts of its parent
        const std::lock_guard l(all.lock);
        --left, --all.threads;
        all.changed.notify_all();
      }
    } now{*this, left};
    try {
      end();
    } catch (...) {
      or_out_of_memory([] {
        log(LogLevel::kError, "base", "while something was ended: " + current_exception_text());
      }).ignore();
    }
  }
};

}  // namespace

EndTogether::EndTogether() noexcept : outer_(t_together) {
  if (outer_ != nullptr) return;
  or_out_of_memory([&] { left_ = std::make_shared<size_t>(0); }).ignore();
  t_together = this;
}
EndTogether::~EndTogether() {
  t_together = outer_;
  if (left_.use_count() <= 1 || inside_call()) return;  // all functions have returned
  Enders& all = process_wide<Enders>();
  std::unique_lock l(all.lock);
  all.changed.wait_for(l, kLongestEnd, [&] { return *left_ == 0; });
}

void end_on_own_thread(std::function<void()> end) noexcept {
  const EndTogether together;
  const Status posted = or_out_of_memory([&]() -> Status {
    const auto& left = t_together->left_;
    if (left == nullptr) return Status::out_of_memory();
    Enders& all = process_wide<Enders>();
    const std::lock_guard l(all.lock);
    return all.start(end, left);
  });
  if (!posted.ok()) end();
}

}  // namespace yard::base
