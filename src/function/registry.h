// SPDX-License-Identifier: Apache-2.0
// The dispatched functions of one runtime: tables that follow its registry and policy, and groups whose backends come
// when they are first needed.
//
// Only the shared runtime serves the functions that are called; others can list what their plugins bring. One lock for
// whoever changes something, never held while a provider, a plugin or a verifier runs.
#pragma once

#include <yard/functions.h>
#include <yard/registry.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/owned_per_process.h"
#include "dispatch/core.h"
#include "function/table.h"

namespace yard::function {

// What the runtime does for its functions.
struct Services {
  std::function<Status(Changes)> apply;
  // Opens the plugins that serve a group; false: not now.
  std::function<bool(std::string_view group)> need;
};

class Registry {
 public:
  // The core must outlive it.
  Registry(detail::Core& core, Services services);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // From now on calls of functions are this runtime's.
  void serve();
  // A function is called for the first time, or asked about: its group is loaded and its table made. Holding no guard.
  void attach(detail::FunctionSite& site);
  // Registry or policy have changed. Holding no lock.
  void follow();
  // Everything that was registered is gone: groups are loaded again when they are next needed.
  void start_over();
  // The variables that backends chose are read again. `check`: what the environment says about verifiers.
  void environment_changed(std::optional<bool> check);

  void add_provider(std::string group, FunctionSetup setup, std::string name);
  Status load(std::string_view group);
  // Whether one of the group's functions has been asked for.
  bool in_use(std::string_view group);
  void check_verifiers(bool on);

  std::vector<FunctionInfo> list();
  std::vector<FunctionSource> sources();
  FunctionExplanation explain(detail::FunctionSite& site, const detail::FunctionArgs& args);
  std::vector<std::string> check(detail::FunctionSite& site, const detail::FunctionArgs& args);
  detail::Core& core() const noexcept { return core_; }

 private:
  struct Source {
    FunctionSource info;
    FunctionSetup setup;
  };
  struct Group {
    bool loaded = false;  // all of it has been asked once
    std::vector<std::shared_ptr<Source>>
        sources;  // in the order they came; the pointees under the lock
  };
  struct Book {
    std::mutex lock;  // for the rest; held briefly
    std::map<std::string, Group, std::less<>> groups;
    void inherit(Book& parents) { groups = parents.groups; }
  };
  // One loads at a time, and may come back here while it does.
  struct Turn {
    std::recursive_mutex lock;
    void inherit(Turn&) noexcept {}
  };
  struct Switches {
    std::recursive_mutex lock;  // a probe may come back here
    Variables variables;
    void inherit(Switches& parents) { variables = parents.variables; }
  };

  // Asks what has not been asked yet, with `again` also what failed. The first error.
  Status load_group(std::string_view group, bool again);
  Status ask_source(Source& source);
  void read_switches(const registry::State& state, Variables& variables);
  void bring_up_to_date(detail::FunctionSite& site, const Variables& variables);

  detail::Core& core_;
  const Services services_;
  std::atomic<bool> serves_{false};
  std::atomic<bool> checked_;
  base::OwnedPerProcess<Book> book_;
  base::OwnedPerProcess<Turn> turn_;
  base::OwnedPerProcess<Switches> switches_;
};

}  // namespace yard::function
