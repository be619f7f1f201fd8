// SPDX-License-Identifier: Apache-2.0
// Scopes as the dispatcher sees them: the merged content of all scopes of a thread, under one
// number. Equal contents keep their number for some time, so that a scope that is created again
// finds its overlays and memos.
#pragma once

#include <yard/detail/guard.h>
#include <yard/policy.h>

#include "base/append_list.h"

namespace yard::detail {

struct ScopeContent {
  Policy policy;
  std::map<std::string, std::string, std::less<>> labels;
  std::optional<bool> inference, deterministic;
  std::string mode;  // empty if unset
  // For functions with active backends. Backends of the innermost scope come first.
  std::vector<std::string> backends;
  std::optional<Device> device;

  // Two contents are equal if and only if their texts are. The text is empty if nothing is set.
  std::string text() const;
  // Merges this scope with `inner`, which is entered inside it.
  ScopeContent under(const ScopeContent& inner) const;
};

class Tracer;

// The scopes that a thread is in. Immutable.
struct ScopeState {
  uint64_t id = 0;         // as in ThreadHead::scope, or 0 if nothing is set
  uint64_t policy_id = 0;  // the id of these scopes without tracing
  uint64_t providers = 0;  // the id of the part that concerns functions, or 0 if no part does
  std::shared_ptr<const ScopeState> keep_providers;  // the state of that id; null if it is this one
  ScopeContent content;
  uint32_t flags = 0;        // flags of every call inside
  Status problem;            // the error of every call inside, if any
  Tracer* tracer = nullptr;  // if set, calls are recorded instead of run, and the id is unique
};

std::shared_ptr<const ScopeState> traced(const ScopeState* outer, Tracer* tracer);

// One scope, and the states that it has inside other scopes.
struct ScopeSpec {
  explicit ScopeSpec(ScopeContent c) : content(std::move(c)) {}

  const ScopeContent content;
  struct Inside {
    uint64_t outer;
    std::shared_ptr<const ScopeState> state;
    Inside* next = nullptr;
  };
  static constexpr int kInside = 8;  // how many states are kept; further ones are made each time
  base::OwnedAppendList<Inside> inside;
};

// Returns the scope that the thread is in if it concerns functions, or null.
inline const ScopeState* provider_scope_of(const ThreadHead& thread) noexcept {
  return (thread.scope & ThreadHead::kProviders) != 0 ? thread.scope_state : nullptr;
}

inline void set_scope(ThreadHead& thread, const ScopeState* state) noexcept {
  thread.scope_state = state;
  thread.scope = state != nullptr ? state->id : 0;
}

// Moves a thread that works for another one into that thread's scope, which must outlive this.
class ScopeOfCaller {
 public:
  ScopeOfCaller(ThreadHead& thread, const ScopeState* state) noexcept
      : thread_(thread), own_(thread.scope_state) {
    set_scope(thread, state);
  }
  ~ScopeOfCaller() { set_scope(thread_, own_); }
  ScopeOfCaller(const ScopeOfCaller&) = delete;
  ScopeOfCaller& operator=(const ScopeOfCaller&) = delete;

 private:
  ThreadHead& thread_;
  const ScopeState* own_;
};

}  // namespace yard::detail
