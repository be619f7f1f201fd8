// SPDX-License-Identifier: Apache-2.0
// The dispatched functions of one runtime: tables that follow its registry and policy, and groups whose backends are
// loaded on first use.
//
// Only the shared runtime serves calls of functions; others can list what their plugins provide. One thread at a time
// loads groups, which runs providers and plugins; one at a time makes tables, which runs probes. Lock order: group lock
// before the lock of the plugin loader.
#pragma once

#include <yard/function.h>
#include <yard/registry.h>
#include <yard/verify.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "provider/provider_table.h"
#include "provider/sources.h"

namespace yard::provider {

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
  // Unset: unchanged.
  void check_verifiers(std::optional<bool> on);

  std::vector<FunctionInfo> list();
  std::vector<FunctionSource> sources() const { return sources_.list(); }
  FunctionExplanation explain(detail::FunctionSite& site, const detail::FunctionArgs& args);
  std::vector<std::string> check(detail::FunctionSite& site, const detail::FunctionArgs& args);
  // How often each implementation has succeeded.
  void add_successes(std::vector<health::Successes>& to);
  // Checks verifiers by sample calls.
  std::vector<FunctionReport> verify(const Verification& what);
  detail::Core& core() const noexcept { return core_; }

 private:
  // Recursive: providers, plugins and probes may call functions.
  struct Lock {
    std::recursive_mutex lock;
    void inherit(Lock&) noexcept {}
  };

  enum class Ask {
    kFirst,  // sources that have not been asked yet, unless the group is loaded
    kLate,   // sources that have not been asked yet
    kAgain,  // also those that failed
  };
  // Whether this thread is loading it.
  static bool loading_here(std::string_view group) noexcept;
  // The first error.
  Status load_group(std::string_view group, Ask ask);
  // Under the group lock.
  Status ask_sources(Group& group, bool again);
  Status ask_source(const Group& group, Source& source);
  void late_provider(std::string_view group);
  // All groups that functions are declared in, provided for or registered in.
  std::vector<std::string> known_groups() const;
  // Whether everything is loaded that its table needs: its group, and those of functions with the same choice key.
  bool ready(const detail::FunctionSite& site) const;
  void bring_up_to_date(detail::FunctionSite& site);

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<Status(Changes)> apply_;
  std::atomic<bool> serves_{false};
  std::atomic<bool> checked_;
  Sources sources_;
  base::OwnedPerProcess<Lock> groups_;
  base::OwnedPerProcess<Lock> tables_;
};

}  // namespace yard::provider
