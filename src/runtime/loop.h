// SPDX-License-Identifier: Apache-2.0
// One run of parallel_for: its pieces, and what goes along from the caller to the threads that help.
#pragma once

#include <yard/detail/guard.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include "dispatch/scope.h"
#include "runtime/threads.h"

namespace yard::runtime {

// What a thread takes along from the caller for the length of one piece. This is the one place that
// knows what belongs to a caller: its policy scope, its hooks, and that it is inside a call, where waiting for
// calls to end would be waiting for itself.
class Errand {
 public:
  static Errand of_this_thread() noexcept {
    const detail::ThreadHead* head = detail::t_thread;
    return head != nullptr ? Errand(head->scope_state, head->hooks, head->depth > 0)
                           : Errand(nullptr, nullptr, false);
  }

  // This thread acts for the caller until the object's end.
  class Acting {
   public:
    explicit Acting(const Errand& errand) noexcept
        : head_(detail::t_thread != nullptr ? *detail::t_thread : detail::register_thread()),
          scope_(head_, errand.scope_),
          own_hooks_(std::exchange(head_.hooks, errand.hooks_)) {
      if (errand.inside_call_) inside_.emplace(head_);
    }
    ~Acting() { head_.hooks = own_hooks_; }
    Acting(const Acting&) = delete;
    Acting& operator=(const Acting&) = delete;

   private:
    detail::ThreadHead& head_;
    detail::ScopeOfCaller scope_;
    const detail::HookFrame* own_hooks_;
    std::optional<detail::Guard> inside_;
  };

 private:
  Errand(const detail::ScopeState* scope, const detail::HookFrame* hooks, bool inside_call) noexcept
      : scope_(scope), hooks_(hooks), inside_call_(inside_call) {}
  const detail::ScopeState* scope_;  // the caller waits, so these stay
  const detail::HookFrame* hooks_;
  bool inside_call_;
};

class Loop {
 public:
  Loop(int64_t count, int64_t pieces, LoopBody body, void* context) noexcept
      : count_(count), pieces_(pieces), body_(body), context_(context) {}

  int64_t pieces() const noexcept { return pieces_; }
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  // Runs one piece on this thread, unless an earlier one has failed. Lets no exception out.
  void run(int64_t piece) noexcept {
    if (failed()) return;
    std::optional<Errand::Acting> acting;
    if (std::this_thread::get_id() != caller_) acting.emplace(errand_);
    try {
      body_(context_, edge(piece), edge(piece + 1));
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
    }
  }

 private:
  // Where a piece begins. Pieces differ by at most one, so none is smaller than count / pieces.
  int64_t edge(int64_t piece) const noexcept {
    const int64_t each = count_ / pieces_, rest = count_ % pieces_;
    return piece * each + (piece < rest ? piece : rest);
  }

  const int64_t count_, pieces_;
  const LoopBody body_;
  void* const context_;
  const std::thread::id caller_ = std::this_thread::get_id();
  const Errand errand_ = Errand::of_this_thread();
  std::atomic<bool> failed_{false};
};

}  // namespace yard::runtime
