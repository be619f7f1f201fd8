// SPDX-License-Identifier: Apache-2.0
// The hooks of one runtime: a site for each hook that was used, what is activated, and how a change of either
// reaches the sites.
//
// A site switches by one store, so that a call runs the chain before or after a change, never a mixture. Nobody waits
// for calls: what they use is freed when they are done. The lock is for those who change something.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/owned_per_process.h"
#include "registry/changes.h"
#include "registry/hook_chains.h"
#include "registry/hook_declarations.h"

namespace yard::registry {

class HookTable {
 public:
  // `state` gives the registry's current state; any thread, without a lock.
  explicit HookTable(std::function<std::shared_ptr<const State>()> state);
  ~HookTable();
  HookTable(const HookTable&) = delete;
  HookTable& operator=(const HookTable&) = delete;

  struct Site : detail::HookSite {
    const HookDeclaration* declaration = nullptr;
    std::atomic<bool> needed{false};  // plugins that serve it have been opened
    Site* next = nullptr;
  };
  // Made when it is first asked for; stays for the life of the table.
  Site& site(const HookDeclaration& declaration);
  // Whether a hook of that name has a site.
  bool in_use(std::string_view name) const noexcept;
  // Of all sites.
  std::vector<std::string> names_in_use() const;

  // The registry has changed. Holding no lock.
  void refresh();

  // Becomes the latest. `expected`: it is fine if nobody brings hooks under that name yet. With `strict`, orphans
  // are an error.
  Status activate(const Activation& a, bool expected, bool strict);
  Status deactivate(const Activation& a);
  void deactivate_all();
  Activations activations() const;

  // Whether the backend brings hooks now; else an error that names those who do.
  Status known(std::string_view backend) const;
  std::shared_ptr<const State> state() const { return state_(); }

 private:
  struct Lock {
    std::mutex lock;
    void inherit(Lock&) noexcept {}
  };
  using Change = std::function<Status(const State&, Activations&)>;
  // Changes the activations, if it likes, and brings every site up to date.
  Status edit(const Change& change);
  void update(Site& site, const State& state, const Activations& activations, bool changed);

  const std::function<std::shared_ptr<const State>()> state_;
  mutable base::OwnedPerProcess<Lock> lock_;
  std::atomic<Site*> sites_{nullptr};
  // Whole at any time, so that a child of fork can go on with it. Replaced under the lock.
  std::atomic<const Activations*> activations_{new Activations};
};

// Names of the backend's hooks that are there to override, while nobody declares them with that signature.
std::vector<std::string> orphans(const State& state, std::string_view backend);
// They as an error: "... brings hooks that nobody declares: a; did you mean 'b'?"
Status orphan_error(std::string_view backend, const std::vector<std::string>& names);

}  // namespace yard::registry
