// SPDX-License-Identifier: Apache-2.0
// Finds, loads and unloads the plugins of one runtime.
//
// Loading is one transaction: open the file, check and hash it, compare it with the lock file,
// open it as a library, query its descriptor, start it, publish. On a failure everything is
// undone and the plugin is refused with a reason. A replacement is the same, and the change that is published also removes
// the old version.
//
// Searches, loads, replacements and unloads take turns by one lock, which is released while code of a plugin or of the
// program runs: constructors of a library, query, start, what a change of the registry asks kernels, log sinks. A thread
// that such code waits for can load other plugins. What is under way with a plugin is noted by path, and only operations
// on the same plugin wait for it. Listing never waits.
#pragma once

#include <yard/plugins.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/results.h"
#include "base/thread_state.h"
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
  // Whether an op or a group of functions has been used; the last may be empty.
  std::function<bool(const std::string& op)> in_use;
  std::function<bool(const std::string& group)> group_in_use = {};
  // Whether this thread is inside a kernel's probe, verifier or cost hint, where nothing may be published.
  std::function<bool()> choosing;
};

// Settings from the environment; empty where unset.
struct FromEnvironment {
  std::string plugins, path;
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
  Status save_verified(std::string_view sha256, bool passed);
  // The keep-alive object of a loaded plugin's records; null if no plugin of that name is loaded.
  const void* keep_of(std::string_view name);
  // The result expires when the plugin has been closed.
  Result<std::weak_ptr<const void>> unload(std::string_view name);
  // The same for the version that was replaced.
  Result<std::weak_ptr<const void>> replace(std::string_view name, std::string_view path);

  // Searches all places, if this is the first call or something changed.
  void set_environment(FromEnvironment environment);
  // Whether the rule file asks for verified plugins. Applies to loads from now on.
  void require_verified(bool required) noexcept { verified_in_rules_.store(required); }
  // The runtime has removed everything that was published.
  void reset();

 private:
  // A plugin that a thread loads, replaces or unloads.
  struct Underway {
    std::string path;
    std::thread::id thread;
    std::string waits_for = {};  // the path of another that its thread waits for
  };
  // Locks, and what they guard.
  struct LoaderState {
    std::mutex
        loading;  // held during a search, load or unload, except while plugin code runs; the rest changes under it
    base::EditMutex lock;  // held briefly, to change or to list; taken after `loading`
    PluginIndex index;
    std::vector<PluginRecord> replaced;         // earlier versions that calls may still use
    std::vector<std::string> places;            // given in code, the latest first
    std::vector<std::string> lock_directories;  // where a yard.lock applies
    std::list<Underway> underway;               // the latest last
    std::condition_variable ended;              // one of them has ended
    FromEnvironment environment;
    bool searched = false;
    bool searching = false;  // plugins for names in use are not yet loaded
    void inherit(LoaderState& parents);
  };
  class Edit;
  class LoadingLock;
  class Released;
  class Claim;
  // All lock files together.
  struct Locks {
    bool present = false;
    LockFile file;
    Refusal problem;
    Refusal allows(const PluginRecord& record) const;
  };
  // Of this process. A reference is not kept where plugin code runs, which may fork.
  LoaderState& state() { return state_.get(); }
  // Runs f() with `loading` held.
  template <class F>
  auto exclusive(const F& f);
  // The same for what a program asks for; f returns a Status or a Result.
  template <class F>
  auto change(const F& f) -> decltype(f()) {
    YARD_RETURN_IF_ERROR(would_deadlock());
    return exclusive(f);
  }
  // loader.cc. With `lock` or `loading` held. Null: nothing is under way with that plugin.
  static const Underway* underway(const LoaderState& state, std::string_view path);
  // With `loading` held, which it releases meanwhile: waits until nothing is under way with a plugin in another thread.
  // False: it did not have to, or must not since that thread waits for this one.
  bool waited_for(const std::string& path);
  // The same for another plugin of that name.
  bool waited_for_namesake(const PluginRecord& of);
  // Finds a plugin with which nothing is under way; null if there is none.
  const PluginRecord* find_idle(std::string_view name_or_path);

  // discovery.cc. Called with `loading` held unless stated otherwise.
  Status discover_held(const std::vector<std::string>& given);
  // Files and directories to search.
  std::vector<std::string> places(const LoaderState& state,
                                  std::vector<RefusedPath>& refused) const;
  // Rebuilds the index. Plugins that were unloaded stay unloaded, unless their files are `given`.
  void search_again(const std::vector<std::string>& given);
  // Needs no lock.
  PluginRecord inspected(const std::string& path) const;
  PluginRecord record_of(const std::string& path, bool given, LoaderState& state,
                         Directories& directories) const;
  Locks read_locks(const std::vector<std::string>& directories) const;
  // Whether lock files keep a plugin from being loaded.
  Refusal locked_out(const Locks& locks, const PluginRecord& r) const;
  // Applies a lock file of that directory from now on. The directory must be trusted.
  void add_lock_directory(const std::string& directory);

  // Whether the plugin passed `yard verify`, if that is required.
  Refusal check_verified(const PluginRecord& record) const;
  // Adds the stored result.
  PluginInfo with_results(PluginInfo info) const;

  // loader.cc. Called with `loading` held unless stated otherwise.
  Status load_held(std::string_view name_or_path);
  // `path` is a copy: while plugin code runs, another search may replace the records.
  Status load_record(std::string path);
  // The record of a loaded plugin; an error if there is none of that name.
  Result<const PluginRecord*> loaded(std::string_view name);
  // Takes the place of `replaces`, if given; does nothing if that has the same digest.
  Refusal load_transaction(PluginRecord& record, const PluginRecord* replaces = nullptr);
  // Records of earlier loads of the same file.
  std::vector<PluginRecord> loads_of(const FileId& id);
  // A library that is open already, of the same file, is shared. Without a lock.
  Refusal open_library(const std::vector<PluginRecord>& earlier, const PluginRecord& record,
                       PluginFile& file, std::shared_ptr<Library>& to) const;
  Result<std::weak_ptr<const void>> replace_held(std::string_view name, std::string_view path);
  // With `lock` or `loading` held: whether a plugin that is found or being loaded serves it.
  static bool may_serve(const LoaderState& state, const PluginRecord& record, PluginOffer what,
                        std::string_view name);
  // Loads the found plugins that serve one of these names; whether any was loaded, here or by another thread.
  bool load_for(PluginOffer what, const std::vector<std::string>& names);
  Status would_deadlock() const;
  void store(PluginRecord record);
  // Removes what a loaded plugin has published. An error if others depend on it. `life` expires when it is closed.
  Status unpublish(const PluginRecord& record, std::weak_ptr<const void>* life = nullptr);

  std::atomic<bool> verified_in_rules_{false};
  const PluginSettings settings_;
  const Services services_;
  const ResultStore results_;
  Process process_;
  std::atomic<size_t> waiting_{0};
  base::OwnedPerProcess<LoaderState> state_;
};

// Held during a search, load or unload. Code that runs meanwhile on the same thread must not load plugins.
class Loader::LoadingLock {
 public:
  template <class... How>
  explicit LoadingLock(Loader& loader, How... how) : lock_(loader.state().loading, how...) {
    if (lock_.owns_lock()) t_held = this;
  }
  ~LoadingLock() {
    if (lock_.owns_lock()) lock_.unlock();
    write_messages();
    if (t_held == this) t_held = nullptr;
  }
  LoadingLock(const LoadingLock&) = delete;
  LoadingLock& operator=(const LoadingLock&) = delete;
  bool owns_lock() const noexcept { return lock_.owns_lock(); }
  static bool held_by_this_thread() noexcept { return t_held != nullptr; }
  // Logs when the lock is released next: log sinks are the program's code. On the thread that holds it.
  static void log(LogLevel level, std::string text, bool event = false) noexcept {
    base::if_memory_allows([&] { t_held->messages_.push_back({level, std::move(text), event}); });
  }

 private:
  friend class Loader;
  struct Message {
    LogLevel level;
    std::string text;
    bool event;
  };
  void write_messages() noexcept {
    for (Message& m : std::exchange(messages_, {}))
      (m.event ? base::log_event : base::log)(m.level, "plugin", std::move(m.text));
  }
  static thread_local LoadingLock* t_held;
  std::unique_lock<std::mutex> lock_;
  std::vector<Message> messages_;
};

// While it lives, `loading` is released: this thread runs code of a plugin or of the program. If that forks, the child goes
// on with the lock of its own state.
class Loader::Released {
 public:
  explicit Released(Loader& loader) : loader_(loader) {
    LoadingLock::t_held->lock_.unlock();
    LoadingLock::t_held->write_messages();
  }
  ~Released() { LoadingLock::t_held->lock_ = std::unique_lock(loader_.state().loading); }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  Loader& loader_;
};

template <class F>
auto Loader::exclusive(const F& f) {
  const base::CancellationOff deferred;
  const base::MayWait unless_in_a_call;
  const LoadingLock lock(*this);
  return f();
}

// Changes the state under its lock. At its end the number of plugins that can still be loaded is published for need().
class Loader::Edit {
 public:
  explicit Edit(Loader& loader)
      : loader_(loader), state_(loader.state()), lock_(state_.lock.for_changes) {}
  ~Edit() { loader_.waiting_.store(state_.index.waiting(), std::memory_order_release); }
  LoaderState* operator->() noexcept { return &state_; }

 private:
  Loader& loader_;
  LoaderState& state_;
  std::lock_guard<base::EditMutex::ForChanges> lock_;
};

// This thread loads, replaces or unloads the plugin of a path. Made and ended with `loading` held.
class Loader::Claim {
 public:
  Claim(Loader& loader, const std::string& path);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

 private:
  Loader& loader_;
  const std::string path_;
};

}  // namespace yard::plugin
