// SPDX-License-Identifier: Apache-2.0
// Finds, loads and unloads the plugins of one runtime.
//
// Loading is one transaction: open the file, look at it, hash it, hold it against the lock file, try it out in
// another process where that is wished for, open it as a library, ask it what it brings, start it, publish.
// Whatever fails, all of it is undone and the plugin is refused with a reason. One load, unload or search at a
// time; listing never waits for those.
#pragma once

#include <yard/plugins.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/editing.h"
#include "base/this_process.h"
#include "plugin/catalogue.h"
#include "plugin/lock_file.h"
#include "plugin/results.h"
#include "registry/changes.h"
#include "registry/lazy_loader.h"

namespace yard::plugin {

// What the runtime does for its loader.
struct Services {
  const yard_host_t* host = nullptr;
  // Publishes, all or nothing.
  std::function<Status(const std::vector<registry::Step>&)> apply;
  // Whether an op that is known has been asked for before.
  std::function<bool(const std::string& op)> in_use;
  // The same of a hook.
  std::function<bool(const std::string& hook)> hook_in_use;
  // And of a group of functions; may be empty.
  std::function<bool(const std::string& group)> group_in_use = {};
  // What the program has stated of devices, for probes; may be empty.
  std::function<std::vector<std::string>()> device_features = {};
  // Whether this thread is where nothing may be published: in a probe, verifier or cost hint.
  std::function<bool()> choosing;
};

// What the environment says about plugins; empty where it has no say.
struct FromEnvironment {
  std::string plugins, path;
  std::optional<PluginProbe> probe = {};
  bool operator==(const FromEnvironment&) const = default;
};

class Loader final : public registry::LazyLoader {
 public:
  Loader(PluginSettings settings, Services services);
  virtual ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  bool need(PluginOffer what, std::string_view name) noexcept override;
  std::vector<std::string> refused_for(PluginOffer what, std::string_view name) override;
  // Whether this thread is loading or unloading something: need() would say no.
  static bool inside() noexcept;

  // See yard/plugins.h.
  Status discover(const std::vector<std::string>& paths);
  Status load(std::string_view name_or_path);
  Status forget(std::string_view name_or_path);
  std::vector<PluginInfo> list();
  PluginInfo inspect(const std::string& path);
  PluginInfo would_load(const std::string& path);
  ProbeReport probe(const std::string& path);
  Status remember_verified(std::string_view sha256, bool passed);
  // What the records of a loaded plugin hold; null if there is none of that name.
  const void* keep_of(std::string_view name);
  // Expires when the plugin is out.
  Result<std::weak_ptr<const void>> unload(std::string_view name);

  // Looks through all places, the first time and when this is something new.
  void set_environment(FromEnvironment environment);
  // What a rule file says; weaker than the program and the environment. One thread at a time. keep_to_rules() does
  // what this means for plugins that are loaded.
  void set_rules(std::optional<PluginProbe> probe, bool require_verified) noexcept {
    probe_in_rules_ = probe ? static_cast<int>(*probe) : -1;
    if (verified_in_rules_.exchange(require_verified) != require_verified)
      unjudged_.store(require_verified);
  }
  // Takes out what was loaded before only verified plugins were allowed, and refuses it. Waits for nobody: while
  // something is being loaded, the one who does comes here afterwards.
  void keep_to_rules() noexcept;
  // Everything that was published has been taken out by others.
  void start_over();

 private:
  // Locks, and what they guard. A forked child makes a new one of what it can still read.
  struct LoaderState {
    uint32_t process = 0;
    std::mutex loading;  // held by whoever searches, loads or unloads; only they change the rest
    std::mutex data;     // held briefly, to change or to list
    std::atomic<bool> editing{false};
    Catalogue catalogue;
    std::vector<std::string> places;            // given in code, the latest first
    std::vector<std::string> lock_directories;  // where a yard.lock counts
    std::vector<std::string> underway;          // being loaded
    FromEnvironment environment;
    bool searched = false;
    bool searching = false;  // and what is in use has not been held against what was found
  };
  class Edit;
  class Turn;
  // What the lock files say together.
  struct Locks {
    bool present = false;
    LockFile file;
    Refusal problem;
    Refusal allows(const Record& record) const;
  };
  LoaderState& state();

  // ---- discover.cc; all hold `loading` ----
  std::vector<std::string> entries(const LoaderState& state,
                                   std::vector<RefusedPath>& refused) const;
  // Plugins that were unloaded stay so, but for those whose files are `given`.
  void look_again(LoaderState& state, const std::vector<std::string>& given);
  Record inspected(const std::string& path) const;  // needs no lock
  Record record_of(const std::string& path, bool given, LoaderState& state,
                   Directories& directories) const;
  Locks read_locks(const std::vector<std::string>& directories) const;
  // From now on a lock file of that directory counts. It must be one that can be trusted.
  void lock_by(LoaderState& state, const std::string& directory);

  // ---- vetting.cc: what must be known of a library before it is opened ----
  Refusal vet(LoaderState& state, const Record& record, const base::File& file) const;
  // By what is remembered of its digest.
  Refusal not_verified(const Record& record) const;
  // All that is remembered against it.
  Refusal known_against(PluginProbe mode, const Record& record) const;
  void try_out(const Record& record, const base::File& file, std::vector<std::string> others,
               ProbeReport& report) const;
  // Adds what is remembered.
  PluginInfo with_results(PluginInfo info) const;
  static std::vector<std::string> others_for(const Catalogue& catalogue, const Record& record);

  // ---- loader.cc; all hold `loading` ----
  Status load_record(LoaderState& state, const std::string& path);
  Refusal bring_in(LoaderState& state, Record& record);
  Refusal open_library(const Record& record, Candidate& candidate,
                       std::shared_ptr<Library>& to) const;
  Refusal publish(LoaderState& state, const Record& record,
                  const std::vector<registry::Step>& steps);
  // Holds `data`: whether a plugin that is found or being loaded serves it.
  static bool may_serve(const LoaderState& state, PluginOffer what, std::string_view name);
  // Loads what is found and serves one of these; whether anything was.
  bool load_for(LoaderState& state, PluginOffer what, const std::vector<std::string>& names);
  Status would_deadlock() const;
  void put(LoaderState& state, Record record);
  // Unpublishes what a loaded plugin brought. An error if others depend on it. `life` expires when it is out.
  Status take_out(const Record& record, std::weak_ptr<const void>* life = nullptr);

  // The weakest has its say where the others say nothing.
  PluginProbe probe_mode(const LoaderState& state) const noexcept {
    const int rules = probe_in_rules_.load(std::memory_order_relaxed);
    const auto weakest = rules < 0 ? PluginProbe::kNever : static_cast<PluginProbe>(rules);
    return settings_.probe.value_or(state.environment.probe.value_or(weakest));
  }

  std::atomic<int> probe_in_rules_{-1};
  std::atomic<bool> verified_in_rules_{false};
  std::atomic<bool> unjudged_{false};  // see keep_to_rules()
  const PluginSettings settings_;
  const Services services_;
  const Results results_;
  Process process_;
  std::atomic<size_t> waiting_{0};
  std::atomic<LoaderState*> state_;
};

// One search, load or unload. What it runs on this thread gets no turn of its own. Rules that came meanwhile are
// followed when it is over.
class Loader::Turn {
 public:
  Turn(Loader& loader, LoaderState& state) : loader_(loader), lock_(state.loading) { ++t_turns; }
  // Only if nobody else has it: ask taken().
  Turn(Loader& loader, LoaderState& state, std::try_to_lock_t t)
      : loader_(loader), lock_(state.loading, t) {
    ++t_turns;
  }
  ~Turn() {
    --t_turns;
    if (!taken()) return;
    lock_.unlock();
    loader_.keep_to_rules();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool taken() const noexcept { return lock_.owns_lock(); }
  static bool mine() noexcept { return t_turns > 0; }

 private:
  static thread_local int t_turns;
  Loader& loader_;
  std::unique_lock<std::mutex> lock_;
};

// Changes a state: under its lock, and so that a forked child can tell.
class Loader::Edit {
 public:
  explicit Edit(Loader& loader, LoaderState& state)
      : loader_(loader), state_(state), lock_(state.data), editing_(state.editing) {}
  ~Edit() { loader_.waiting_.store(state_.catalogue.waiting(), std::memory_order_release); }
  LoaderState* operator->() noexcept { return &state_; }

 private:
  Loader& loader_;
  LoaderState& state_;
  std::lock_guard<std::mutex> lock_;
  base::Editing editing_;
};

}  // namespace yard::plugin
