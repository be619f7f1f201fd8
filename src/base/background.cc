// SPDX-License-Identifier: Apache-2.0
#include "base/background.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/per_process.h"

namespace yard::base {
namespace {

// Those that run, of this process.
struct Running {
  std::mutex lock;
  std::vector<std::weak_ptr<Background>> threads;
};
constinit PerProcess<Running> g_running;

thread_local const Background* t_here = nullptr;

// For a thread that writes a file to a slow disk; one that does not end is left behind.
constexpr std::chrono::seconds kPatience(5);

}  // namespace

// While the process ends, what a thread uses may be taken apart under it.
void Background::at_exit() {
  std::vector<std::weak_ptr<Background>> all;
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
    thread->ended_.wait_for(lock, kPatience, [&] { return thread->done_; });
  }
}

Result<std::shared_ptr<Background>> Background::start(const char* name, std::function<void()> body,
                                                      std::function<void()> halt) {
  static constinit std::once_flag once;
  std::call_once(once, [] { std::atexit(at_exit); });
  const std::shared_ptr<Background> self(new Background(std::move(halt)));
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status problem;
  try {
    std::thread thread([self, body = std::move(body)]() mutable {
      t_here = self.get();
      try {
        // What it holds is gone before anybody who waits goes on.
        const std::function<void()> run = std::exchange(body, nullptr);
        run();
      } catch (const std::exception& e) {
        log(LogLevel::kError, "base",
            fmt::format("a thread has ended by an exception: {}", e.what()));
      } catch (...) {
        log(LogLevel::kError, "base", "a thread has ended by an exception");
      }
      const std::lock_guard lock(self->lock_);
      self->done_ = true;
      self->ended_.notify_all();
    });
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
  } catch (const std::system_error& e) {
    problem = Status(Code::kUnsupported, fmt::format("no thread can be started: {}", e.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!problem.ok()) return problem;
  Running& running = g_running.get();
  const std::lock_guard lock(running.lock);
  std::erase_if(running.threads, [](const auto& weak) { return weak.expired(); });
  running.threads.push_back(self);
  return self;
}

bool Background::here() const noexcept { return t_here == this; }

void Background::wait() {
  if (here()) return;
  std::unique_lock lock(lock_);
  ended_.wait(lock, [&] { return done_; });
}

}  // namespace yard::base
