// SPDX-License-Identifier: Apache-2.0
// The dispatched functions of one runtime: tables that follow its registry and policy, and groups whose backends are
// loaded on first use.
//
// Only the shared runtime serves calls of functions; others can list what their plugins provide. One thread at a time
// loads a group, which runs providers and plugins under no lock; one at a time makes tables, which runs probes.
#pragma once

#include <yard/function.h>
#include <yard/registry.h>
#include <yard/verify.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/append_list.h"
#include "base/fork.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "provider/provider_table.h"

namespace yard::provider {

struct Source {
  struct Error {
    const std::string text;
    Error* next = nullptr;
  };
  const std::string name;
  const FunctionSetup setup;
  std::atomic<bool> done{false};
  std::atomic<uint64_t> attempts{0};
  base::OwnedAppendList<Error>
      errors{};  // of attempts, where the text changed; kept for concurrent readers
  Source* next = nullptr;

  // Of the last attempt; empty: it succeeded, or there was none.
  std::string error() const;
};

struct Group {
  const std::string name;
  std::atomic<bool> loaded{false};  // all its sources have been asked once
  base::OwnedAppendList<Source> sources{};
  Group* next = nullptr;
};

// The program's providers of lazy groups of functions, and the state of each. Lists only grow, their nodes live as long
// as the service, and all that changes in a node is atomic: readers take no lock, so a forked child can use everything,
// whatever another thread of the parent was doing. The lock is for writers; the child has its own.
class Sources {
 public:
  // Null: it has no provider and was not loaded.
  Group* find(std::string_view name) const noexcept;
  // Made if there is none.
  Group& group(std::string_view name);
  bool loaded(std::string_view name) const noexcept;
  // By group, then in the order of add().
  std::vector<FunctionSource> list() const;
  std::vector<std::string> groups() const;  // that have providers

  // Whether the group is loaded already: then the caller must ask the new source.
  bool add(std::string_view group, FunctionSetup setup, std::string name);
  // A source to ask that is not among `asked`: one that has not been asked yet, with `again` also one that failed.
  // Null: there is none; then, with `all` that it can have, the group is loaded.
  Source* next(Group& group, const std::vector<const Source*>& asked, bool again, bool all);
  void tried(Source& source, const Status& status);
  // The group is loaded again on next use.
  void unload(std::string_view group);
  void reset();

 private:
  struct Writers {
    std::mutex lock;
    void inherit(Writers&) noexcept {}
  };
  Group& group_locked(std::string_view name);

  base::OwnedAppendList<Group> groups_;
  base::OwnedPerProcess<Writers> writers_;
};

// Which verifiers are checked.
struct Verification {
  std::string function, backend;  // "group/name"; empty: all
  const void* keep = nullptr;     // only records of this plugin
  // Called before each sample; see VerifyOptions::watch_function.
  std::function<void(std::string_view function, std::string_view backend, size_t sample)> watch;
};

class FunctionService {
 public:
  // Core and loader must outlive it. `apply` applies changes to the runtime.
  FunctionService(detail::Core& core, plugin::Loader& loader, std::function<Status(Changes)> apply);
  FunctionService(const FunctionService&) = delete;
  FunctionService& operator=(const FunctionService&) = delete;

  // From now on this runtime serves calls of functions.
  void serve();
  // The one that does; null: none yet.
  static FunctionService* serving() noexcept;
  // Whether this thread is deciding about providers or candidates: calls that it makes then choose nothing.
  static bool selecting() noexcept;
  // The first call of a function, or a question about it: loads its group and makes its table. Holding no guard.
  void attach(detail::FunctionSite& site);
  // Registry or policy have changed. Holding no lock.
  void follow();
  // All that was registered is gone: groups are loaded again on next use.
  void reset();

  void add_provider(std::string group, FunctionSetup setup, std::string name);
  Status load(std::string_view group);
  // Whether one of the group's functions has been asked for.
  bool in_use(std::string_view group) const noexcept { return sources_.loaded(group); }

  std::vector<FunctionInfo> list();
  std::vector<FunctionSource> sources() const { return sources_.list(); }
  FunctionExplanation explain(detail::FunctionSite& site, const detail::FunctionArgs& args);
  // How often each implementation has succeeded.
  void add_successes(std::vector<health::Successes>& to);
  // Checks verifiers by sample calls.
  std::vector<FunctionReport> verify(const Verification& what);
  detail::Core& core() const noexcept { return core_; }

 private:
  // Which groups are being loaded, each by one thread.
  struct Loads {
    std::mutex lock;
    std::condition_variable ended;
    std::vector<const Group*> groups;
    void inherit(Loads&) noexcept {}  // the threads are not in the child
  };
  class GroupLoad;
  // Recursive: probes may call functions.
  struct Lock {
    std::recursive_timed_mutex lock;
    void inherit(Lock&) noexcept {}
  };
  // Calls f() with the lock of tables held. Does not wait for it for long: a probe that runs under it may be waiting for
  // this thread. False: f was not called, and the thread that holds the lock follows all changes when it is done.
  template <class F>
  bool with_tables(const F& f);

  enum class Ask {
    kFirst,  // sources that have not been asked yet, unless the group is loaded
    kLate,   // sources that have not been asked yet
    kAgain,  // also those that failed
  };
  // The first error.
  Status load_group(std::string_view group, Ask ask);
  // Within a GroupLoad.
  Status ask_sources(Group& group, bool again);
  Status ask_source(const Group& group, Source& source);
  void late_provider(std::string_view group);
  // All groups that functions are declared in, provided for or registered in.
  std::vector<std::string> known_groups() const;
  // Whether the group of the function is loaded, or is being loaded by this thread.
  bool ready(const detail::FunctionSite& site) const;
  void bring_up_to_date(detail::FunctionSite& site);
  // Makes the table for a scope, unless there is one.
  void make_scoped(detail::FunctionSite& site, const detail::ScopeState& scope);

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<Status(Changes)> apply_;
  std::atomic<bool> serves_{false};
  Sources sources_;
  base::OwnedPerProcess<Loads> loads_;
  base::OwnedPerProcess<Lock> tables_;
  std::atomic<bool> behind_{false};  // a thread could not wait for the tables
};

}  // namespace yard::provider
