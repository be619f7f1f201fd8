// SPDX-License-Identifier: Apache-2.0
// The functions of one runtime: the tables that each snapshot gets, groups whose backends are loaded on first use, and
// activations.
//
// Only the shared runtime serves calls; others can list what their plugins provide. Providers, plugins and probes run under no
// lock. The lock is held for a few instructions by whoever reads or changes groups and activations.
#pragma once

#include <yard/function.h>
#include <yard/verify.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "dispatch/core.h"
#include "functions/table.h"
#include "plugin/loader.h"

namespace yard::functions {

struct Source {
  std::string name;
  FunctionSetup setup;
  bool done = false;
  uint64_t attempts = 0;
  std::string error;  // of the last attempt
};

// Under the lock of the service, but for setups that run.
struct Group {
  std::string name;
  bool loaded = false;   // all its sources have been asked once
  bool loading = false;  // by one thread
  bool early = false;    // the thread that loads it has called one of its functions
  std::vector<std::unique_ptr<Source>> sources;  // only grows
};

// Which verifiers are checked.
struct Verification {
  std::string function, backend;  // "group/name"; empty: all
  const void* keep = nullptr;     // only records of this plugin
  // Called before each sample; see VerifyOptions::watch_function.
  std::function<void(std::string_view function, std::string_view backend, size_t sample)> watch;
};

class Service {
 public:
  // Core and loader must outlive it. `apply` applies changes to the runtime.
  Service(detail::Core& core, plugin::Loader& loader, std::function<Status(Changes)> apply);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // From now on this runtime serves calls of functions.
  void serve();
  // The one that does; null: none yet.
  static Service* serving() noexcept;
  // See detail::attach_function().
  bool attach(detail::FunctionSite& site);
  detail::Core& core() const noexcept { return core_; }

  // ---- For CoreServices ----
  // Refuses signatures that differ from the declaration.
  Status check_change(const registry::State& before, const registry::State& after);
  void make_tables(const dispatch::Snapshot* old, dispatch::Snapshot& next);
  void before_publication(const dispatch::Snapshot& next) noexcept;
  void after_publication(const dispatch::Snapshot& next) noexcept;
  // Logs orphans that a change has brought to active backends. Holding no lock.
  void follow();
  // How often each implementation has succeeded.
  void add_successes(std::vector<health::Successes>& to);

  // ---- Groups ----
  void add_provider(const std::string& group, FunctionSetup setup, std::string name);
  Status load(std::string_view group);
  // Whether one of the group's functions has been asked for.
  bool in_use(std::string_view group) const;
  // All that was registered is gone: groups are loaded again on next use, and nothing is active.
  void reset();

  // ---- Activations ----
  Status activate(const Activation& a);
  Status deactivate(const Activation& a);
  Activations activations() const;

  std::vector<FunctionInfo> list() const;
  std::vector<FunctionSource> sources() const;
  std::vector<FunctionActivation> list_activations() const;
  FunctionExplanation explain(detail::FunctionSite& site, const detail::FunctionArgs& args);
  // Checks verifiers by sample calls.
  std::vector<FunctionReport> verify(const Verification& what) const;

 private:
  enum class Ask {
    kFirst,  // sources that have not been asked yet, unless the group is loaded
    kLate,   // sources that have not been asked yet
    kAgain,  // also those that failed
  };
  class GroupLoad;
  Group& group(std::string_view name);
  // The first error.
  Status load_group(std::string_view group, Ask ask);
  // Within a GroupLoad.
  Status ask_sources(Group& group, bool again);
  Status ask_source(const Group& group, Source& source);
  // A source to ask that is not among `asked`; null: there is none, and with `all` that it can have the group is loaded.
  Source* next_source(Group& group, const std::vector<const Source*>& asked, bool again, bool all);
  void late_provider(std::string_view group);
  // All groups that functions are declared in, provided for or registered in.
  std::vector<std::string> known_groups() const;
  // Whether sites of the group have tables.
  bool has_tables(std::string_view group) const;
  // Publishes a snapshot with tables as they should be now.
  void republish() { core_.published.publish_health().ignore(); }
  Status usable(const Activation& a, bool expected) const;
  bool plugins_may_bring_functions() const;
  void warn_of_orphans(std::string_view backend) const;

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<Status(Changes)> apply_;
  std::atomic<bool> serves_{false};
  std::atomic<bool> orphans_came_{false};
  mutable base::Mutex lock_{base::Rank::kFunctions};
  base::Condition loaded_;
  std::map<std::string, std::unique_ptr<Group>, std::less<>> groups_;
  Activations activations_;
  base::InChild in_child_{[this] {
    for (auto& [name, g] : groups_) g->loading = false;
  }};
};

}  // namespace yard::functions
