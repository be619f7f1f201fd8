// SPDX-License-Identifier: Apache-2.0
// The Service of a runtime makes the function tables of each snapshot, loads groups of functions on
// first use, and keeps activations. Only the shared runtime serves calls. Other runtimes can list
// what their plugins provide. No lock is held while providers, plugins and probes run.
#pragma once

#include <yard/verify.h>

#include <thread>

#include "dispatch/core.h"
#include "functions/table.h"
#include "plugin/loader.h"

namespace yard::detail {
// Calls Service::attach() of the shared runtime, and creates that runtime if necessary.
bool attach_function(FunctionSite& site);
}  // namespace yard::detail

namespace yard::functions {

struct RegisteredSource : FunctionSource {
  FunctionSetup setup;
};

struct Group {
  bool loaded = false;                   // all its sources have been called once
  std::thread::id loader;                // loads the group; its own calls run the default meanwhile
  std::deque<RegisteredSource> sources;  // only grows
};

class Service {
 public:
  // Core and loader must outlive it. `apply` applies changes to the runtime.
  Service(Core& core, plugin::Loader& loader, std::function<Status(Changes)> apply)
      : core_(core), loader_(loader), apply_(std::move(apply)) {}
  Service& operator=(Service&&) = delete;

  void serve();
  // Returns null if no runtime serves calls.
  static Service* serving() noexcept;
  // Makes the table that a call did not find, and loads its group on first use. Returns false if
  // the call must run the default. Throws yard::Error in an invalid scope. Hold no guard.
  bool attach(FunctionSite& site);
  Core& core() const noexcept { return core_; }

  // ---- For CoreServices ----
  // Fails if a function does not fit its declaration. Warns of undeclared ones of active backends.
  Status check_change(const registry::State& before, const registry::State& after);
  void make_tables(const dispatch::Snapshot& old, dispatch::Snapshot& next);
  // Call this with false before `next` is published, and with true afterwards.
  void set_quiet(const dispatch::Snapshot& next, bool quiet) noexcept;
  void add_successes(std::vector<health::Successes>& to);

  bool in_use(std::string_view group) const;
  // Removes all activations. The next use of a group loads it again.
  void reset();
  FunctionExplanation explain(FunctionSite& site, const FunctionArgs& args);
  // If `keep` is not null, checks only functions of the plugin whose records hold it.
  std::vector<FunctionReport> verify(const VerifyOptions& options, const void* keep) const;

 private:
  friend yard::Functions;
  // Runs the group's providers that have not run yet and, with `again`, those which failed.
  Status load_group(std::string_view name, bool again);
  Status ask_sources(Group& group, std::string_view name, bool again);
  Status ask_source(const RegisteredSource& source);
  std::vector<std::string> known_groups() const;
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
