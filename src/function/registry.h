// SPDX-License-Identifier: Apache-2.0
// The dispatched functions of one runtime: tables that follow its registry and policy, and groups whose backends come
// when they are first needed.
//
// Only the shared runtime serves the functions that are called; others can list what their plugins bring. One loads
// groups at a time, and runs providers and plugins meanwhile; one makes tables at a time, and runs probes. The turn of
// groups comes before that of the plugin loader, so nobody waits for it who has the latter.
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

#include "base/owned_per_process.h"
#include "dispatch/core.h"
#include "function/sources.h"
#include "function/table.h"

namespace yard::function {

// What the runtime does for its functions.
struct Services {
  std::function<Status(Changes)> apply;
  // Opens the plugins that serve a group; false: not now.
  std::function<bool(std::string_view group)> need;
  // Whether this thread is loading plugins, or runs the code of one that is being loaded: need() would say no, and
  // who holds a lock that we want may wait for this thread.
  std::function<bool()> inside_loader;
  // Which plugins might have served a group and were refused, a line each.
  std::function<std::vector<std::string>(std::string_view group)> refused;
};

// Which verifiers are checked.
struct Verification {
  std::string function, backend;  // "group/name"; empty: all
  const void* keep = nullptr;     // only what this plugin brought
  // Called before each sample; see VerifyOptions::watch_function.
  std::function<void(std::string_view function, std::string_view backend, size_t sample)> watch;
};

class Registry {
 public:
  // The core must outlive it.
  Registry(detail::Core& core, Services services);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // From now on calls of functions are this runtime's.
  void serve();
  // The one whose calls they are; null: none yet.
  static Registry* serving() noexcept;
  // Whether this thread is judging candidates, of functions or of ops: what it calls meanwhile chooses nothing.
  static bool judging() noexcept;
  // A function is called for the first time, or asked about: its group is loaded and its table made. Holding no guard.
  void attach(detail::FunctionSite& site);
  // Registry or policy have changed. Holding no lock.
  void follow();
  // Everything that was registered is gone: groups are loaded again when they are next needed.
  void start_over();
  // What the environment says about checks of verifiers.
  void environment_says(std::optional<bool> check);

  void add_provider(std::string group, FunctionSetup setup, std::string name);
  Status load(std::string_view group);
  // Whether one of the group's functions has been asked for.
  bool in_use(std::string_view group) const noexcept { return sources_.loaded(group); }
  void check_verifiers(bool on);

  std::vector<FunctionInfo> list();
  std::vector<FunctionSource> sources() const { return sources_.list(); }
  FunctionExplanation explain(detail::FunctionSite& site, const detail::FunctionArgs& args);
  std::vector<std::string> check(detail::FunctionSite& site, const detail::FunctionArgs& args);
  // How often each implementation has run well.
  void add_successes(std::vector<health::Successes>& to);
  // Checks verifiers by sample calls.
  std::vector<FunctionReport> verify(const Verification& what);
  detail::Core& core() const noexcept { return core_; }

 private:
  // One loads at a time, and may come back here while it does.
  struct Turn {
    std::recursive_mutex lock;
    void inherit(Turn&) noexcept {}
  };
  // One makes tables at a time.
  struct Tables {
    std::recursive_mutex lock;  // a probe may come back here
    void inherit(Tables&) noexcept {}
  };

  enum class Ask {
    kFirst,  // what has not been asked yet, unless the group is loaded
    kLate,   // what has not been asked yet
    kAgain,  // and what failed
  };
  // Whether this thread is loading it.
  static bool loading_here(std::string_view group) noexcept;
  // The first error.
  Status load_group(std::string_view group, Ask ask);
  // In its turn.
  Status ask_sources(Group& group, bool again);
  Status ask_source(const Group& group, Source& source);
  void late_provider(std::string_view group);
  // Whether anybody declares, provides or serves a function of it.
  bool known(std::string_view group) const;
  Status unknown(std::string_view group) const;
  // Whether all is there that a table of it needs: its group, and those of the functions that it chooses with.
  bool ready(const detail::FunctionSite& site) const;
  void bring_up_to_date(detail::FunctionSite& site);

  detail::Core& core_;
  const Services services_;
  std::atomic<bool> serves_{false};
  std::atomic<bool> checked_;
  Sources sources_;
  base::OwnedPerProcess<Turn> turn_;
  base::OwnedPerProcess<Tables> tables_;
};

}  // namespace yard::function
