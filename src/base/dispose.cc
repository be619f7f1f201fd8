// SPDX-License-Identifier: Apache-2.0
#include "base/dispose.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "base/background.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "base/thread_state.h"

namespace yard::base {
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

// An object on its way to a thread. Whoever takes it destroys it: the thread, or the one that could not start it.
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
