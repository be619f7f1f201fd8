// SPDX-License-Identifier: Apache-2.0
#include "base/first_use.h"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/per_process.h"

namespace yard::base {
namespace {

// Nodes are used again, never freed: a fork at any moment finds the list whole.
struct FirstUseNode {
  std::atomic<FirstUse*> item{nullptr};
  FirstUseNode* next = nullptr;
};
std::atomic<FirstUseNode*> g_first_uses{nullptr};
std::atomic<bool> g_expected{false};
// Held while one is called or goes. Recursive: what is called may end a runtime.
constinit PerProcess<std::recursive_mutex> g_first_use_lock;

}  // namespace

FirstUse::FirstUse(std::function<void()> then) : then_(std::move(then)) {
  for (FirstUseNode* n = g_first_uses.load(std::memory_order_acquire); n != nullptr; n = n->next) {
    FirstUse* expected = nullptr;
    if (n->item.compare_exchange_strong(expected, this, std::memory_order_acq_rel)) return;
  }
  auto* n = new FirstUseNode;
  n->item.store(this, std::memory_order_relaxed);
  n->next = g_first_uses.load(std::memory_order_relaxed);
  while (!g_first_uses.compare_exchange_weak(n->next, n, std::memory_order_release)) {
  }
}

FirstUse::~FirstUse() {
  const std::lock_guard lock(g_first_use_lock.get());
  for (FirstUseNode* n = g_first_uses.load(std::memory_order_acquire); n != nullptr; n = n->next)
    if (n->item.load(std::memory_order_relaxed) == this)
      n->item.store(nullptr, std::memory_order_release);
}

void expect_first_use() noexcept { g_expected.store(true, std::memory_order_relaxed); }

void first_use() noexcept {
  if (!g_expected.load(std::memory_order_relaxed)) return;
  if (!g_expected.exchange(false, std::memory_order_acq_rel)) return;
  try {
    const std::lock_guard lock(g_first_use_lock.get());
    for (FirstUseNode* n = g_first_uses.load(std::memory_order_acquire); n != nullptr; n = n->next)
      if (const FirstUse* item = n->item.load(std::memory_order_acquire)) item->then_();
  } catch (const std::exception& e) {
    log(LogLevel::kError, "base",
        fmt::format("a forked child goes on without its threads: {}", e.what()));
  }
}

}  // namespace yard::base
