// SPDX-License-Identifier: Apache-2.0
// Scopes as the dispatcher sees them: the content of all scopes of a thread together, under one
// number. Equal scopes have equal numbers while one of them lives and some time after, so that a
// scope that is created again finds its overlays and memos.
#pragma once

#include <yard/detail/guard.h>
#include <yard/policy.h>

#include <map>

#include "base/append_list.h"

namespace yard::detail {

struct ScopeContent {
  Policy policy;
  std::map<std::string, std::string, std::less<>> labels;
  std::optional<bool> inference, deterministic;
  std::string mode;  // by name; empty: unset
  // For functions with active backends: those of the innermost scope come first.
  std::vector<std::string> backends;
  std::optional<Device> device;

  // Contents are equal exactly if their texts are. Empty if nothing is set.
  std::string text() const;
  // Returns the content of `inner` inside of this scope.
  ScopeContent under(const ScopeContent& inner) const;
};

class Tracer;

// The scopes that a thread is in. Immutable.
struct ScopeState {
  uint64_t id = 0;         // as in ThreadHead::scope; 0: nothing is set
  uint64_t policy_id = 0;  // the id of the same scopes without tracing
  uint64_t providers = 0;  // the id of what concerns functions; 0 if nothing does
  std::shared_ptr<const ScopeState> keep_providers;  // the state of that id; null: this one
  ScopeContent content;
  uint32_t flags = 0;        // of every call inside
  Status problem;            // of every call inside
  Tracer* tracer = nullptr;  // records calls instead of running them; then the id is unique
};

// Returns a copy of `outer` (may be null) that traces.
std::shared_ptr<const ScopeState> traced(const ScopeState* outer, Tracer* tracer);

// One scope, and the states it makes inside of others.
struct ScopeSpec {
  explicit ScopeSpec(ScopeContent c) : content(std::move(c)) {}

  const ScopeContent content;
  struct Inside {
    uint64_t outer;
    std::shared_ptr<const ScopeState> state;
    Inside* next = nullptr;
  };
  static constexpr int kInside = 8;  // are kept; more are made each time
  base::OwnedAppendList<Inside> inside;
};

// Returns the scope that the thread is in if it concerns functions, else null.
inline const ScopeState* provider_scope_of(const ThreadHead& thread) noexcept {
  return (thread.scope & ThreadHead::kProviders) != 0 ? thread.scope_state : nullptr;
}

// `state` is null outside of any scope.
inline void set_scope(ThreadHead& thread, const ScopeState* state) noexcept {
  thread.scope_state = state;
  thread.scope = state != nullptr ? state->id : 0;
}

// Puts a thread that works for another one in that one's scope. `state` must outlive it.
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
