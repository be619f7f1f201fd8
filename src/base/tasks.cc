// SPDX-License-Identifier: Apache-2.0
#include "base/tasks.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
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
  void abandon() noexcept;

  using Tasks = std::multimap<Time, std::function<void()>>;  // equal times in the order of posting
  const char* const name;
  const TaskHooks hooks;
  uint64_t process = forks();
  Mutex lock{Rank::kTasks};
  Condition changed;
  Tasks tasks;
  Time again = Time::max();  // when the running task runs next
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
  std::array<void (*)(), 4> at_next_call{};
  // To be started by the next call of this forked child. Has room for all queues with such a hook.
  std::vector<std::weak_ptr<TaskQueue>> resuming;
  size_t resumable = 0;
  bool at_exit = false;

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
  bool is_resuming(const std::shared_ptr<TaskQueue>& queue) const {
    return std::ranges::any_of(resuming, [&](const auto& q) { return q.lock() == queue; });
  }
  void add(const std::shared_ptr<TaskQueue>& queue) {
    const std::lock_guard hold(lock);
    at_exit = at_exit || std::atexit(end_all) == 0;
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
    const Time next_time = again;
    if (forks() == here && next_time != Time::max()) {
      l.lock();
      task.key() = next_time;
      if (!halted) tasks.insert(std::move(task));
      l.unlock();
    }
    task = {};
    if (forks() != here) return;  // the task has forked, and this is the child
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
    : queue_(std::make_shared<TaskQueue>(name, std::move(hooks))) {
  if (queue_->hooks.in_child == nullptr) return;
  Known& known = process_wide<Known>();
  const std::lock_guard hold(known.lock);
  known.resuming.reserve(known.resumable + 1);
  ++known.resumable;
}

TaskThread::~TaskThread() {
  stop();
  if (queue_->hooks.in_child == nullptr) return;
  Known& known = process_wide<Known>();
  const std::lock_guard hold(known.lock);
  --known.resumable;
  std::erase_if(known.resuming, [&](const auto& q) { return q.lock() == queue_; });
}

Status TaskThread::post_at(Time when, std::function<void()> task) {
  return queue_->post(when, std::move(task));
}

void TaskThread::stop() {
  const std::shared_ptr<TaskQueue> q = queue_;
  q->halt();
  q->wait(kForEver);
}

void TaskThread::repeat_at(Time when) noexcept { queue_->again = std::min(queue_->again, when); }

// Needs no memory. The tasks are not destroyed, because ending what they own is up to the parent.
void TaskQueue::abandon() noexcept {
  std::construct_at(&tasks);
  process = forks();
  resumes |= started;
  started = done = false;
  thread = {};
}

void TaskThread::abandon_in_child() {
  queue_->abandon();
  if (!queue_->resumes || queue_->hooks.in_child == nullptr) return;
  Known& known = process_wide<Known>();
  const std::lock_guard lock(known.lock);
  if (!known.is_resuming(queue_)) known.resuming.push_back(queue_);
  g_due_at_call.store(true, std::memory_order_release);
}

void at_next_call(void (*then)()) noexcept {
  Known& known = process_wide<Known>();
  const std::lock_guard lock(known.lock);
  for (auto& place : known.at_next_call) {
    if (place != nullptr && place != then) continue;
    place = then;
    return g_due_at_call.store(true, std::memory_order_release);
  }
  std::abort();  // there are as many places as callers
}

void run_due_at_call() noexcept {
  if (!g_due_at_call.load(std::memory_order_relaxed)) return;
  if (!g_due_at_call.exchange(false, std::memory_order_acq_rel)) return;
  Known& known = process_wide<Known>();
  Status failed;
  std::unique_lock lock(known.lock);
  for (auto& place : known.at_next_call) {
    const auto then = std::exchange(place, nullptr);
    if (then == nullptr) continue;
    lock.unlock();
    const Status ran = or_out_of_memory(then);
    if (!ran.ok()) failed = ran, at_next_call(then);
    lock.lock();
  }
  while (!known.resuming.empty()) {
    const auto queue = known.resuming.back().lock();
    known.resuming.pop_back();
    if (queue == nullptr) continue;
    lock.unlock();
    const Status posted =
        or_out_of_memory([&] { return queue->post(Time::min(), queue->hooks.in_child); });
    lock.lock();
    if (posted.ok()) continue;
    failed = posted;
    if (posted.code() != Code::kOutOfMemory) continue;
    known.resuming.push_back(queue);
    g_due_at_call.store(true, std::memory_order_release);  // the next call tries again
    break;
  }
  lock.unlock();
  if (!failed.ok()) log(LogLevel::kError, "base", failed.message());
}

// Counts what end_on_own_thread() was given, and what that ends in turn. Under the lock of Enders.
struct Ends : std::enable_shared_from_this<Ends> {
  size_t left = 0;
};

namespace {

thread_local Ends* t_ends = nullptr;  // those that this thread adds to

// The threads that run what end_on_own_thread() is given. They end when nothing waits for them.
struct Enders {
  struct Item {
    std::function<void()> end;
    std::shared_ptr<Ends> ends;
  };
  Mutex lock{Rank::kTasks};
  Condition changed;
  std::list<Item> waiting;
  size_t threads = 0, running = 0;
  // What the parent was about to end stays as it is.
  InChild in_child{[this] { leave_waiting(), threads = running = 0; }};

  Enders() { std::atexit(at_exit); }
  static void at_exit() {
    Enders& all = process_wide<Enders>();
    std::unique_lock l(all.lock);
    all.changed.wait_for(l, kLongestExit, [&] { return all.running + all.waiting.size() == 0; });
    all.leave_waiting();
  }
  void leave_waiting() noexcept { std::construct_at(&waiting); }  // needs no memory

  // Under the lock. Fails if nothing will run what waits.
  Status start_thread_if_needed() {
    if (waiting.size() <= threads - running || threads == kMostHangingEnds) return {};
    Status started = start_thread("yard-reclaim", [this] { run(); });
    threads += started.ok() ? 1 : 0;
    return threads > 0 ? Status() : started;
  }

  void run() {
    std::unique_lock l(lock);
    while (!waiting.empty()) {
      Item item = std::move(waiting.front());
      waiting.pop_front();
      ++running;
      l.unlock();
      if (!run_one(std::move(item))) return;
      l.lock();
    }
    --threads;
  }

  // Returns false in a child that was forked meanwhile.
  bool run_one(const Item item) {
    // Also if the thread ends.
    struct Running {
      Enders& all;
      const Item& item;
      const uint64_t process = forks();
      bool returned = false;
      ~Running() {
        t_ends = nullptr;
        if (process != forks()) return;
        const std::lock_guard l(all.lock);
        --all.running, --item.ends->left;
        if (!returned) --all.threads, all.start_thread_if_needed().ignore();
        all.changed.notify_all();
      }
    } now{*this, item};
    t_ends = item.ends.get();
    try {
      item.end();
    } catch (...) {
      or_out_of_memory([] {
        log(LogLevel::kError, "base", "while something was ended: " + current_exception_text());
      }).ignore();
    }
    now.returned = true;
    return now.process == forks();
  }

  void wait(const Ends& ends) {
    std::unique_lock l(lock);
    changed.wait_for(l, kLongestEnd, [&] { return ends.left == 0; });
  }
};

}  // namespace

EndTogether::EndTogether() noexcept : outer_(t_ends) {
  if (outer_ == nullptr) or_out_of_memory([&] { ends_ = std::make_shared<Ends>(); }).ignore();
  if (ends_ != nullptr) t_ends = ends_.get();
}
EndTogether::~EndTogether() {
  t_ends = outer_;
  // What was not called yet shares them.
  if (ends_.use_count() > 1 && !inside_call()) process_wide<Enders>().wait(*ends_);
}

void end_on_own_thread(std::function<void()> end) noexcept {
  const EndTogether together;
  const Status posted = or_out_of_memory([&]() -> Status {
    if (t_ends == nullptr) return Status::out_of_memory();
    Enders& all = process_wide<Enders>();
    const std::lock_guard l(all.lock);
    all.waiting.push_back({end, t_ends->shared_from_this()});
    ++t_ends->left;
    const Status started = all.start_thread_if_needed();
    if (!started.ok()) all.waiting.pop_back(), --t_ends->left;
    return started;
  });
  if (!posted.ok()) end();
}

}  // namespace yard::base
