// SPDX-License-Identifier: Apache-2.0
#include "base/background.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "base/thread_state.h"

namespace yard::base {
namespace {

// The running threads of this process.
struct Running {
  std::mutex lock;
  std::vector<std::weak_ptr<BackgroundThread>> threads;
};
constinit PerProcess<Running> g_running;

thread_local const BackgroundThread* t_here = nullptr;

// At exit, enough to write a file to a slow disk; then the thread is abandoned.
constexpr std::chrono::seconds kExitTimeout(5);

}  // namespace

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  for (const int fatal : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP})
    sigdelset(&all, fatal);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

// Statics that a thread uses are destroyed while the process exits.
void BackgroundThread::at_exit() {
  std::vector<std::weak_ptr<BackgroundThread>> all;
  {
    Running& running = g_running.get();
    const std::lock_guard lock(running.lock);
    all.swap(running.threads);
  }
  for (const auto& weak : all)
    if (const auto thread = weak.lock()) thread->halt();
  for (const auto& weak : all) {
    const auto thread = weak.lock();
    if (thread == nullptr || thread->here()) continue;
    std::unique_lock lock(thread->lock_);
    thread->ended_.wait_for(lock, kExitTimeout, [&] { return thread->done_; });
  }
}

void ask_for_short_slices() noexcept {
  // As the system call has it; older headers lack it.
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
  } attributes{};
  constexpr uint64_t kSlice = 100'000;
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime_ns = kSlice;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

Result<std::shared_ptr<BackgroundThread>> BackgroundThread::start(const char* name,
                                                                  std::function<void()> body,
                                                                  std::function<void()> halt) {
  static constinit std::once_flag once;
  std::call_once(once, [] { std::atexit(at_exit); });
  const std::shared_ptr<BackgroundThread> self(new BackgroundThread(std::move(halt)));
  const SignalsBlocked blocked;  // of the new thread
  Status problem;
  try {
    std::thread thread([self, name, body = std::move(body)]() mutable {
      // Of another thread it would open a file, which programs that are started meanwhile would inherit.
      pthread_setname_np(pthread_self(), name);
      t_here = self.get();
      try {
        // Destroyed before wait() returns.
        const std::function<void()> run = std::exchange(body, nullptr);
        run();
      } catch (...) {
        log(LogLevel::kError, "base",
            fmt::format("a background thread ended with an exception: {}",
                        current_exception_text()));
      }
      const std::lock_guard lock(self->lock_);
      self->done_ = true;
      self->ended_.notify_all();
    });
    thread.detach();
  } catch (const std::system_error& e) {
    problem =
        Status(Code::kUnsupported, fmt::format("cannot start a thread: {}", exception_text(e)));
  }
  if (!problem.ok()) return problem;
  Running& running = g_running.get();
  const std::lock_guard lock(running.lock);
  std::erase_if(running.threads, [](const auto& weak) { return weak.expired(); });
  running.threads.push_back(self);
  return self;
}

bool BackgroundThread::here() const noexcept { return t_here == this; }

void BackgroundThread::wait() {
  if (here()) return;
  std::unique_lock lock(lock_);
  ended_.wait(lock, [&] { return done_; });
}

bool BackgroundThread::wait_for(std::chrono::nanoseconds time) {
  if (here()) return true;
  std::unique_lock lock(lock_);
  return ended_.wait_for(lock, time, [&] { return done_; });
}

void TaskThread::Queue::run() {
  for (const uint64_t process = forks(); process == forks();) {  // not in a child forked by a task
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
    auto started = BackgroundThread::start(
        name_,
        [queue, at_end = at_end_, process = forks()] {
          queue->run();
          if (process == forks()) at_end();
        },
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
  std::shared_ptr<BackgroundThread> thread;
  {
    const std::lock_guard lock(c.lock);
    c.stopped = true;
    thread = c.thread;
  }
  if (thread == nullptr) return;
  thread->halt();
  thread->wait();
}

namespace {

constexpr std::chrono::seconds kWait(1);
std::atomic<int64_t> g_stuck_ms{10'000};

enum : int { kNotSaid, kMay, kMayNot };
thread_local constinit int t_may_wait = kNotSaid;

// Those that no thread could be had for.
struct Pending {
  std::mutex lock;
  Disposable* first = nullptr;
};
constinit PerProcess<Pending> g_pending;

// Reports those that hang. Never destroyed.
constinit Lazy<TaskThread> g_reports([] { return new TaskThread; });

bool waits_here() noexcept { return t_may_wait == kMay && !inside_call(); }

// An object on its way to a thread. Destroyed by the thread that takes it: the new one, or the one that could not start it.
struct Handover {
  std::atomic<bool> taken{false}, ended{false};
};

std::shared_ptr<BackgroundThread> start(Disposable* object,
                                        const std::shared_ptr<Handover>& handover) {
  auto started = BackgroundThread::start(
      "yard-reclaim",
      [object, handover] {
        if (handover->taken.exchange(true)) return;
        delete object;
        handover->ended.store(true, std::memory_order_release);
      },
      [] {});
  return started.ok() ? *std::move(started) : nullptr;
}

void report_if_stuck(std::string what, std::shared_ptr<Handover> handover) {
  const std::chrono::milliseconds after(g_stuck_ms.load(std::memory_order_relaxed));
  const auto report = [what = std::move(what), handover = std::move(handover), after] {
    if (!handover->ended.load(std::memory_order_acquire))
      log(LogLevel::kError, "base",
          fmt::format("{}: it has been ending for more than {} ms, and calls of others go on", what,
                      after.count()));
  };
  g_reports.get().post_at(std::chrono::steady_clock::now() + after, report).ignore();
}

}  // namespace

void dispose(Disposable* object) noexcept {
  std::shared_ptr<Handover> handover;
  try {
    std::string what = object->what_;
    handover = std::make_shared<Handover>();
    if (const auto thread = start(object, handover)) {
      if (!waits_here() || !thread->wait_for(kWait)) report_if_stuck(std::move(what), handover);
      return;
    }
  } catch (...) {
    // No memory; the thread may have started all the same.
  }
  if (handover != nullptr && handover->taken.exchange(true)) return;
  if (waits_here()) {
    const CancellationOff deferred;
    delete object;
    return;
  }
  Pending& p = g_pending.get();
  const std::lock_guard lock(p.lock);
  object->next_ = std::exchange(p.first, object);
}

MayWait::MayWait(bool may) noexcept : before_(t_may_wait) {
  if (t_may_wait != kMayNot) t_may_wait = may ? kMay : kMayNot;
}

MayWait::~MayWait() {
  Disposable* all = nullptr;
  if (waits_here()) {
    Pending& p = g_pending.get();
    const std::lock_guard lock(p.lock);
    all = std::exchange(p.first, nullptr);
  }
  const CancellationOff deferred;
  while (all != nullptr) delete std::exchange(all, all->next_);
  t_may_wait = before_;
}

void report_stuck_after(std::chrono::milliseconds time) noexcept {
  g_stuck_ms.store(time.count(), std::memory_order_relaxed);
}

}  // namespace yard::base
