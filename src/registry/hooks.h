// SPDX-License-Identifier: Apache-2.0
// The hooks of one runtime: a site for each hook that was used, what is activated, and how a change of either
// reaches the sites.
//
// A change is seen by calls at one moment, whatever number of hooks it concerns (hook_chains.h). Nobody waits for calls:
// what they use is freed when they are done. The lock is for those who change something.
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
  // `state` gives the registry's current state, `left_out` why a hook does not count though it may be active, nothing
  // where it does; any thread, without a lock.
  using LeftOut = std::function<std::string(const Hook&)>;
  explicit HookTable(std::function<std::shared_ptr<const State>()> state, LeftOut left_out = {});
  ~HookTable();
  HookTable(const HookTable&) = delete;
  HookTable& operator=(const HookTable&) = delete;

  struct Site : detail::HookSite {
    const HookDeclaration* declaration = nullptr;
    std::atomic<bool> needed{false};  // plugins that serve it have been opened
    Site* next = nullptr;
    std::vector<const detail::HookChains*> left_behind;  // by forks, so that they stay reachable
  };
  // Made when it is first asked for; stays for the life of the table.
  Site& site(const HookDeclaration& declaration);
  // Whether a hook of that name has a site.
  bool in_use(std::string_view name) const noexcept;
  // Of all sites.
  std::vector<std::string> names_in_use() const;

  // Registry or policy have changed. Holding no lock.
  void refresh();
  // In a forked child, before anything else runs there: a change that was being made at the fork is made or not.
  void mend_in_child();

  // Becomes the latest. `expected`: it is fine if nobody brings hooks under that name yet. With `strict`, orphans
  // are an error.
  Status activate(const Activation& a, bool expected, bool strict);
  Status deactivate(const Activation& a);
  void deactivate_all();
  Activations activations() const;

  // Whether the backend brings hooks now; else an error that names those who do.
  Status known(std::string_view backend) const;
  std::shared_ptr<const State> state() const { return state_(); }
  std::string why_left_out(const Hook& hook) const { return left_out_ ? left_out_(hook) : ""; }
  // Tells tables apart, also those that are gone.
  uint64_t id() const noexcept { return id_; }

 private:
  struct Lock {
    std::mutex lock;
    void inherit(Lock&) noexcept {}
  };
  using Change = std::function<Status(const State&, Activations&)>;
  // Changes the activations, if it likes, and brings every site up to date.
  Status edit(const Change& change);
  HookRecords providers_of(const Site& site, const State& state) const;
  struct Pending {
    Site* site;
    std::unique_ptr<detail::HookChains> next;
  };
  void put_in_force(std::vector<Pending> pending);

  const std::function<std::shared_ptr<const State>()> state_;
  const LeftOut left_out_;
  const uint64_t id_;
  mutable base::OwnedPerProcess<Lock> lock_;
  std::atomic<Site*> sites_{nullptr};
  // Whole at any time, so that a forked child can go on with it. Replaced under the lock.
  std::atomic<const Activations*> activations_{new Activations};
};

// Names of the backend's hooks that are there to override, while nobody declares them with that signature.
std::vector<std::string> orphans(const State& state, std::string_view backend);
// They as an error: "... brings hooks that nobody declares: a; did you mean 'b'?"
Status orphan_error(std::string_view backend, const std::vector<std::string>& names);

}  // namespace yard::registry
