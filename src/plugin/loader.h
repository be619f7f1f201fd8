// SPDX-License-Identifier: Apache-2.0
// Finds, loads and unloads the plugins of one runtime.
//
// A load has four steps. Scan finds files. Check looks at permissions, manifest, run paths, digest,
// lock files and stored results, and runs no code of the file. Open maps the library, queries its
// descriptor and starts it. Commit publishes the steps in one change of the registry. A refusal
// undoes everything. A replacement is a load whose change also removes the old version.
//
// One lock protects the index. A thread that works on a plugin has a Claim on its name, and other
// threads wait until the claim ends. A thread that has a claim never waits for another one, because
// two threads could then wait for each other: it gets a refusal and can try again.
#pragma once

#include "base/events.h"
#include "plugin/admission.h"
#include "plugin/library.h"

namespace yard::plugin {

struct PluginRecord : FoundFile {
  PluginState last_state = PluginState::kFound;  // set by the loader; see state()
  bool by_path = false;                          // loaded by its path, which no search finds
  std::weak_ptr<KeepAlive> keep_alive;           // from the last load
  std::shared_ptr<const LibraryStatus> library;

  PluginRecord() = default;
  explicit PluginRecord(const FoundFile& file) : FoundFile(file) {
    if (refusal.refused()) last_state = PluginState::kRefused;
  }
  // A library closes when its last record in the registry is released, so the state can change.
  PluginState state() const noexcept;
  bool in_process() const noexcept {
    return state() == PluginState::kLoaded || state() == PluginState::kUnloading;
  }
  bool was_unloaded() const noexcept {
    return state() == PluginState::kUnloaded || state() == PluginState::kPinned;
  }
  bool serves(registry::PluginOffer what, std::string_view name) const noexcept {
    return contains(manifest.offers(what), name);
  }
  void refuse(Refusal r) { refusal = std::move(r), last_state = PluginState::kRefused; }
  PluginInfo info() const;
};

// Records are in search order.
struct PluginIndex : std::vector<PluginRecord> {
  PluginRecord* find_path(std::string_view path) noexcept;
  // Searches by path if there is a '/', else by name. Prefers plugins that are or could be loaded.
  PluginRecord* find(std::string_view name_or_path) noexcept;
  // Returns a plugin of this name that takes precedence: one in the process, or an earlier one that
  // is not refused. If `of` is `requested`, unloaded plugins do not count.
  const PluginRecord* precedent(const PluginRecord& of, bool requested = false) const noexcept;
  void store(PluginRecord record);    // replaces a record with this path
  void add_new(PluginRecord record);  // ignores a record whose path or file is known
};

struct Services {
  const yard_host_t* host = nullptr;
  uint64_t runtime = 0;  // Core::id, for events
  // Publishes all steps or none.
  std::function<Status(const std::vector<registry::Step>&)> apply;
  // Returns whether an op or a group of functions has been used.
  std::function<bool(registry::PluginOffer what, const std::string& name)> in_use;
  // Returns whether this thread is in a probe, verifier or cost hint and must not publish.
  std::function<bool()> choosing;
};

class Loader final : public registry::LazyLoader {
  using Lock = std::unique_lock<base::Mutex>;

 public:
  Loader(PluginSettings settings, Services services);

  bool need(registry::PluginOffer what, std::string_view name) noexcept override;
  std::vector<std::string> refused_for(registry::PluginOffer what, std::string_view name) override;
  // Returns whether this thread loads or unloads a plugin. need() then returns false.
  static bool inside() noexcept;

  // See yard/plugins.h.
  Status discover(const std::vector<std::string>& given);
  Status load(std::string_view name_or_path);
  Status forget(std::string_view name_or_path);
  std::vector<PluginInfo> list();
  PluginInfo inspect(const std::string& path, bool would_load);
  const ResultStore& results() const noexcept { return results_; }
  // Returns what the records of a loaded plugin hold, or null if no such plugin is loaded.
  const void* keep_of(std::string_view name);
  // The result expires when the plugin, or the replaced version, is closed.
  Result<std::weak_ptr<const void>> unload(std::string_view name);
  Result<std::weak_ptr<const void>> replace(std::string_view name, std::string_view path,
                                            KeptOps keep);

  // Searches all places, unless nothing has changed since the last call.
  void set_environment(FromEnvironment environment);
  // Sets whether the rule file asks for verified plugins. Applies to later loads.
  void require_verified(bool required) noexcept { verified_in_rules_.store(required); }
  // Call this when the runtime has removed everything that was published.
  void reset();

 private:
  class Claim;

  Status would_deadlock() const;

  // The caller holds the lock.
  const Claim* find_claim(std::string_view name) const noexcept;
  // Waits until no thread works on the plugin. Fails if the plugin is unknown.
  Result<const PluginRecord*> find_idle(Lock& lock, std::string_view name_or_path);
  // Like find_idle(), but also fails if the plugin is not loaded.
  Result<const PluginRecord*> find_loaded(Lock& lock, std::string_view name);

  // Searches without the lock. Unloaded plugins stay unloaded unless their files are `given`.
  void scan(Lock& lock, const std::vector<std::string>& given);
  // Checks lock files and stored results. `remember` makes lock files beside it apply to others.
  Refusal check_admitted(const PluginFile& file, bool remember);
  // Opens and commits, after the step `remove` of a replacement. Fills in `record`.
  Refusal install(PluginRecord& record, const PluginFile& file,
                  std::optional<registry::RemoveKept> remove);
  Refusal open_library(const PluginFile& file, std::shared_ptr<Library>& to);

  // Unless it is `requested`, loads the plugin only if its state is kFound.
  Refusal load_path(const std::string& path, bool requested);
  // Loads plugins that serve a name, or waits for them. Logs all refusals except kBusy.
  Refusal load_for(registry::PluginOffer what, std::string_view name);
  // Without `why`, the event's reason is the version and the path.
  void tell(const base::EventKind& kind, const PluginRecord& of, std::string why = {}) const;

  const PluginSettings settings_;
  const Services services_;
  const ResultStore results_;
  const Process process_;
  std::atomic<bool> verified_in_rules_{false};

  base::Mutex mutex_{base::Rank::kLoader};
  base::Condition ended_;  // a claim has ended
  PluginIndex index_;
  std::vector<std::shared_ptr<LibraryStatus>> libraries_;  // open libraries
  std::vector<std::string> places_;                        // given in code, the latest first
  std::set<std::string> lock_folders_;                     // folders whose yard.lock applies
  std::vector<const Claim*> claims_;
  FromEnvironment environment_;
  bool searched_ = false;
  base::InChild in_child_;
};

}  // namespace yard::plugin
