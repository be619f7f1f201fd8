// SPDX-License-Identifier: Apache-2.0
// Finds, loads and unloads the plugins of one runtime.
//
// Loading is one transaction: open the file, check and hash it, compare it with the lock file, probe it in a separate
// process if so configured, open it as a library, query its descriptor, start it, publish. On a failure everything is
// undone and the plugin is refused with a reason. A replacement is the same, and the change that is published also removes
// the old version.
//
// Searches, loads, replacements and unloads are serialized by one lock. Listing never waits for them.
#pragma once

#include <yard/plugins.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancellation.h"
#include "base/dispose.h"
#include "base/fork.h"
#include "plugin/libraries.h"
#include "plugin/library.h"
#include "plugin/trust.h"
#include "registry/changes.h"
#include "registry/interfaces.h"

namespace yard::plugin {

// What the loader needs from its runtime.
struct Services {
  const yard_host_t* host = nullptr;
  // Publishes all steps or none.
  std::function<Status(const std::vector<registry::Step>&)> apply;
  // Whether an op, hook or group of functions has been used; the last may be empty.
  std::function<bool(const std::string& op)> in_use;
  std::function<bool(const std::string& hook)> hook_in_use;
  std::function<bool(const std::string& group)> group_in_use = {};
  // Device features that the program has stated, for probes; may be empty.
  std::function<std::vector<std::string>()> device_features = {};
  // Whether this thread is inside a kernel's probe, verifier or cost hint, where nothing may be published.
  std::function<bool()> choosing;
};

// Settings from the environment; empty where unset.
struct FromEnvironment {
  std::string plugins, path;
  std::optional<PluginProbe> probe = {};
  bool operator==(const FromEnvironment&) const = default;
};

class Loader final : public registry::LazyLoader {
 public:
  Loader(PluginSettings settings, Services services);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  bool need(PluginOffer what, std::string_view name) noexcept override;
  std::vector<std::string> refused_for(PluginOffer what, std::string_view name) override;
  // Whether this thread is loading or unloading a plugin; need() then returns false.
  static bool inside() noexcept;

  // See yard/plugins.h.
  Status discover(const std::vector<std::string>& paths);
  Status load(std::string_view name_or_path);
  Status forget(std::string_view name_or_path);
  std::vector<PluginInfo> list();
  PluginInfo inspect(const std::string& path);
  PluginInfo would_load(const std::string& path);
  ProbeReport probe(const std::string& path);
  Status save_verified(std::string_view sha256, bool passed);
  // The keep-alive object of a loaded plugin's records; null if no plugin of that name is loaded.
  const void* keep_of(std::string_view name);
  // The result expires when the plugin has been closed.
  Result<std::weak_ptr<const void>> unload(std::string_view name);
  // The same for the version that was replaced.
  Result<std::weak_ptr<const void>> replace(std::string_view name, std::string_view path);

  // Searches all places, if this is the first call or something changed.
  void set_environment(FromEnvironment environment);
  // Settings of a rule file, of lower precedence than program and environment. One thread at a time. Loaded plugins are
  // affected by enforce_rules() only.
  void set_rules(std::optional<PluginProbe> probe, bool require_verified) noexcept {
    probe_in_rules_ = probe ? static_cast<int>(*probe) : -1;
    if (verified_in_rules_.exchange(require_verified) != require_verified)
      rules_pending_.store(require_verified);
  }
  // If rules have come to require verified plugins, unloads and refuses the others. Does not wait for a search, load or
  // unload in another thread, which calls this when it is done.
  void enforce_rules() noexcept;
  // The runtime has removed everything that was published.
  void reset();

 private:
  // Locks, and what they guard.
  struct LoaderState {
    std::mutex loading;    // held during a search, load or unload; the rest changes only under it
    base::EditMutex lock;  // held briefly, to change or to list; taken after `loading`
    PluginIndex index;
    std::vector<PluginRecord> replaced;         // earlier versions that calls may still use
    std::vector<std::string> places;            // given in code, the latest first
    std::vector<std::string> lock_directories;  // where a yard.lock applies
    std::vector<std::string> loading_paths;     // being loaded
    std::vector<KnownDigest> digests;           // of libraries that plugins need
    std::vector<std::string> starting;          // of these, where `start` runs, without `loading`
    std::condition_variable started;            // one of them has returned
    FromEnvironment environment;
    bool searched = false;
    bool searching = false;  // plugins for names in use are not yet loaded
    void inherit(LoaderState& parents);
  };
  class Edit;
  class LoadingLock;
  class Starting;
  // All lock files together.
  struct Locks {
    bool present = false;
    LockFile file;
    Refusal problem;
    Refusal allows(const PluginRecord& record) const;
  };
  LoaderState& state() { return state_.get(); }
  // Runs f(state) with `loading` held, then enforce_rules(), which may unload plugins. f must return a value. `beside_starts`:
  // also while plugins are started, which may hang.
  template <class F>
  auto exclusive(const F& f, bool beside_starts = false);
  // Waits until no plugin is started, or that of a path is not. With `loading` held, which it releases meanwhile.
  static void wait_for_start(LoaderState& state, std::string_view path = {});

  // discovery.cc. Called with `loading` held unless stated otherwise.
  Status discover(LoaderState& state, const std::vector<std::string>& given);
  std::vector<std::string> entries(const LoaderState& state,
                                   std::vector<RefusedPath>& refused) const;
  // Rebuilds the index. Plugins that were unloaded stay unloaded, unless their files are `given`.
  void search_again(LoaderState& state, const std::vector<std::string>& given);
  PluginRecord inspected(const std::string& path) const;  // needs no lock
  PluginRecord record_of(const std::string& path, bool given, LoaderState& state,
                         Directories& directories) const;
  Locks read_locks(const std::vector<std::string>& directories) const;
  // Whether lock files keep a plugin from being loaded.
  Refusal locked_out(const Locks& locks, const PluginRecord& r) const;
  // Applies a lock file of that directory from now on. The directory must be trusted.
  void add_lock_directory(LoaderState& state, const std::string& directory);

  // admission.cc: checks before a library is opened.
  Refusal admit(LoaderState& state, PluginProbe mode, const PluginRecord& record,
                const base::File& file) const;
  Refusal check_verified(const PluginRecord& record) const;
  // From stored results only.
  Refusal check_stored_results(PluginProbe mode, const PluginRecord& record) const;
  void unload_unverified(LoaderState& state);
  void run_and_store_probe(const PluginRecord& record, const base::File& file,
                           std::vector<std::string> others, ProbeReport& report) const;
  // Adds the stored results.
  PluginInfo with_results(PluginInfo info) const;
  // Paths of plugins that may provide the ops that the plugin has kernels for.
  static std::vector<std::string> dependencies_of(const PluginIndex& index,
                                                  const PluginRecord& record);

  // loader.cc. Called with `loading` held unless stated otherwise.
  Status load(LoaderState& state, std::string_view name_or_path);
  // `path` is a copy: while a plugin starts, another search may replace the records.
  Status load_record(LoaderState& state, std::string path);
  // The record of a loaded plugin; an error if there is none of that name.
  static Result<const PluginRecord*> loaded(LoaderState& state, std::string_view name);
  Result<std::weak_ptr<const void>> unload(LoaderState& state, std::string_view name);
  Status forget(LoaderState& state, std::string_view name_or_path);
  // Takes the place of `replaces`, if given; does nothing if that has the same digest.
  Refusal load_transaction(LoaderState& state, PluginRecord& record,
                           const PluginRecord* replaces = nullptr);
  // A library that is open already, of the same file, is shared.
  Refusal open_library(const LoaderState& state, const PluginRecord& record, PluginFile& file,
                       std::shared_ptr<Library>& to) const;
  Refusal publish(LoaderState& state, const PluginRecord& record,
                  const std::vector<registry::Step>& steps);
  Result<std::weak_ptr<const void>> replace(LoaderState& state, std::string_view name,
                                            std::string_view path);
  // An error if another file is at the path of a loaded plugin now. It is also stored in the record, for list().
  Status check_file(LoaderState& state, const std::string& path);
  // With `lock` held: whether a plugin that is found or being loaded serves it.
  static bool may_serve(const LoaderState& state, PluginOffer what, std::string_view name);
  // Loads the found plugins that serve one of these names; whether any was loaded.
  bool load_for(LoaderState& state, PluginOffer what, const std::vector<std::string>& names);
  Status would_deadlock() const;
  void store(LoaderState& state, PluginRecord record);
  // Removes what a loaded plugin has published. An error if others depend on it. `life` expires when it is closed.
  Status unpublish(const PluginRecord& record, std::weak_ptr<const void>* life = nullptr);

  // Precedence: program, environment, rules.
  std::optional<PluginProbe> probe_setting(const LoaderState& state) const noexcept {
    if (settings_.probe) return settings_.probe;
    if (state.environment.probe) return state.environment.probe;
    const int rules = probe_in_rules_.load(std::memory_order_relaxed);
    if (rules < 0) return std::nullopt;
    return static_cast<PluginProbe>(rules);
  }
  PluginProbe probe_mode(const LoaderState& state) const noexcept {
    return probe_setting(state).value_or(PluginProbe::kNever);
  }
  // Unset, a plugin that replaces another is probed if that is possible.
  PluginProbe replace_probe_mode(const LoaderState& state) const;

  std::atomic<int> probe_in_rules_{-1};
  std::atomic<bool> verified_in_rules_{false};
  std::atomic<bool> rules_pending_{false};  // enforce_rules() has something to do
  const PluginSettings settings_;
  const std::string library_path_;  // LD_LIBRARY_PATH
  const Services services_;
  const ResultStore results_;
  Process process_;
  std::atomic<size_t> waiting_{0};
  base::OwnedPerProcess<LoaderState> state_;
};

// Held during a search, load or unload. Code that runs meanwhile on the same thread must not load plugins.
class Loader::LoadingLock {
 public:
  explicit LoadingLock(LoaderState& state) : lock_(state.loading) { hold(); }
  LoadingLock(LoaderState& state, std::try_to_lock_t t) : lock_(state.loading, t) { hold(); }
  ~LoadingLock() { --t_depth, t_held = before_; }
  LoadingLock(const LoadingLock&) = delete;
  LoadingLock& operator=(const LoadingLock&) = delete;
  bool owns_lock() const noexcept { return lock_.owns_lock(); }
  static bool held_by_this_thread() noexcept { return t_depth > 0; }

 private:
  friend class Loader;
  void hold() noexcept { ++t_depth, before_ = std::exchange(t_held, &lock_); }
  static thread_local int t_depth;
  static thread_local std::unique_lock<std::mutex>* t_held;
  std::unique_lock<std::mutex> lock_;
  std::unique_lock<std::mutex>* before_ = nullptr;
};

// While a plugin is started, others may be loaded for calls: `loading` is released.
class Loader::Starting {
 public:
  Starting(LoaderState& state, const std::string& path);
  ~Starting();
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  LoaderState& state_;
  const std::string path_;
  const uint64_t forks_ = base::forks();
};

template <class F>
auto Loader::exclusive(const F& f, bool beside_starts) {
  const base::CancellationOff deferred;
  const base::MayWait unless_in_a_call;
  LoaderState& s = state();
  const auto locked = [&] {
    const LoadingLock lock(s);
    if (!beside_starts) wait_for_start(s);
    return f(s);
  };
  try {
    auto result = locked();
    enforce_rules();
    return result;
  } catch (...) {
    enforce_rules();
    throw;
  }
}

// Changes a state under its lock. At its end the number of plugins that can still be loaded is published for need().
class Loader::Edit {
 public:
  explicit Edit(Loader& loader, LoaderState& state)
      : loader_(loader), state_(state), lock_(state.lock.for_changes) {}
  ~Edit() { loader_.waiting_.store(state_.index.waiting(), std::memory_order_release); }
  LoaderState* operator->() noexcept { return &state_; }

 private:
  Loader& loader_;
  LoaderState& state_;
  std::lock_guard<base::EditMutex::ForChanges> lock_;
};

}  // namespace yard::plugin
