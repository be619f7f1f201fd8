// SPDX-License-Identifier: Apache-2.0
// What the dispatcher asks of the runtime around it: one interface, which the runtime layer implements.
#pragma once

#include <yard/config.h>

#include <memory>
#include <vector>

#include "health/board.h"
#include "registry/changes.h"
#include "registry/interfaces.h"
#include "select/candidate_set.h"

namespace yard::detail {

// Core::set_services() installs it before the first call. Every function may be called by several threads at once. The
// default bodies are those of a core without a runtime.
class CoreServices {
 public:
  // Loads plugins on demand; null: none. Called with any lock held, or none.
  virtual registry::LazyLoader* lazy_loader() noexcept { return nullptr; }

  // Called before a change of the registry is published, by the thread that makes it. An error refuses the change. The
  // write lock of PublishedState is held: the function must not make a change itself.
  virtual Status check_change(const registry::State& /*before*/, const registry::State& /*after*/) {
    return {};
  }
  // Called after each published change by the thread that made it, and by PublishedState::catch_up(). No lock and no
  // guard is held. May make further changes; those call it again.
  virtual void on_change() {}

  // What watches the kernels of an op under a rule file; null: nothing. Called for each op while a snapshot is built,
  // with the write lock held; must not make a change.
  virtual std::shared_ptr<registry::Inspector> make_inspector(
      const Config&, const std::shared_ptr<const registry::OpRecord>&,
      const select::ProcessState&) {
    return nullptr;
  }

  // The health board has changed and should be published. Called by any thread, also inside the guard of a call, with no
  // lock held. Must be quick and must not publish by itself.
  virtual void on_health() noexcept {}
  // Adds successes that are counted outside of entries: those of dispatched functions. No lock is held.
  virtual void add_successes(std::vector<health::Successes>&) {}

  // Called by the fork handler in a forked child, once the core can be used there. The calling thread is the only one;
  // locks of the parent must not be taken.
  virtual void in_child() noexcept {}

 protected:
  ~CoreServices() = default;
};

}  // namespace yard::detail
