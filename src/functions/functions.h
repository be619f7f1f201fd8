// SPDX-License-Identifier: Apache-2.0
// The functions of one runtime: the tables that each snapshot gets, groups whose backends are loaded on first use, and
// activations.
//
// Only the shared runtime serves calls; others can list what their plugins provide. Providers, plugins and probes run under no
// lock.
#pragma once

#include <yard/verify.h>

#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "dispatch/core.h"
#include "functions/table.h"
#include "plugin/loader.h"

namespace yard::detail {
// Service::attach() of the shared runtime, which this makes.
bool attach_function(FunctionSite& site);
}  // namespace yard::detail

namespace yard::functions {

struct Source : FunctionSource {
  FunctionSetup setup;
};

struct Group {
  bool loaded = false;         // all its sources have been asked once
  std::thread::id loader;      // the thread that is loading it; its calls run the default meanwhile
  std::deque<Source> sources;  // only grows
};

class Service {
 public:
  // Core and loader must outlive it. `apply` applies changes to the runtime.
  Service(Core& core, plugin::Loader& loader, std::function<Status(Changes)> apply)
      : core_(core), loader_(loader), apply_(std::move(apply)) {}
  Service& operator=(Service&&) = delete;

  // From now on this runtime serves calls of functions.
  void serve();
  // The service that serves calls, or null.
  static Service* serving() noexcept;
  // Makes the table that a call needs and has not found; loads the group on first use. The thread must hold no guard. Returns
  // false if that is not possible now, so that the call runs the default. Throws yard::Error in a scope with an invalid policy.
  bool attach(FunctionSite& site);
  Core& core() const noexcept { return core_; }

  // ---- For CoreServices ----
  // Refuses signatures that differ from the declaration. Logs orphans of active backends.
  Status check_change(const registry::State& before, const registry::State& after);
  void make_tables(const dispatch::Snapshot* old, dispatch::Snapshot& next);
  // Tells sites that are quiet in `next`, or are not. Before the publication with false, after it with true.
  void set_quiet(const dispatch::Snapshot& next, bool quiet) noexcept;
  // How often each implementation has succeeded.
  void add_successes(std::vector<health::Successes>& to);

  // Whether a group has been loaded.
  bool in_use(std::string_view group) const;
  // Groups are loaded again on next use, and nothing is active.
  void reset();
  FunctionExplanation explain(FunctionSite& site, const FunctionArgs& args);
  // Checks the functions that the options name by sample calls; only those of one plugin if `keep` is the plugin's.
  std::vector<FunctionReport> verify(const VerifyOptions& options, const void* keep) const;

 private:
  friend yard::Functions;
  // Asks sources that have not been asked yet, with `again` also those that failed. Returns the first error.
  Status load_group(std::string_view name, bool again);
  Status ask_sources(Group& group, std::string_view name, bool again);
  Status ask_source(const Source& source);
  // All groups that functions are declared in, provided for or registered in.
  std::vector<std::string> known_groups() const;
  // Publishes a snapshot with tables as they should be now.
  Status republish() { return core_.published.publish_health(); }

  Activations activations() const;
  Status check_activation(const FunctionActivation& a) const;
  Status activate(const FunctionActivation& a);
  Status deactivate(const FunctionActivation& a);

  Core& core_;
  plugin::Loader& loader_;
  const std::function<Status(Changes)> apply_;
  mutable base::Mutex lock_{base::Rank::kFunctions};
  base::Condition loaded_;
  std::map<std::string, Group, std::less<>> groups_;
  Activations activations_;
  base::InChild in_child_{[this] {
    for (auto& [name, g] : groups_)
      if (g.loader != std::this_thread::get_id()) g.loader = {};
  }};
};

}  // namespace yard::functions
