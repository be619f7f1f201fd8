// SPDX-License-Identifier: Apache-2.0
// The hooks of one runtime: a site for each hook that was used, the activations, and how a change of the registry, of
// the policy or of the activations reaches the sites.
//
// Calls see a change at one moment, whatever number of hooks it concerns, and no change waits for calls: what they use is
// freed when they end. The lock is taken by changes only.
//
// The order of a chain: the scopes that the thread is in, the innermost first; what is active for its device; what is
// active for the process. Among those of a device or of the process: higher priority, then later activated. A
// backend is in a chain once, at its first place.
#pragma once

#include <yard/detail/hook.h>
#include <yard/tensor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/append_list.h"
#include "base/fork.h"
#include "provider/eligibility.h"
#include "registry/declarations.h"
#include "registry/records.h"

namespace yard::provider {

struct Activation {
  std::string backend;
  std::optional<Device> device;  // none: the process; index -1: every device of that type
  bool operator==(const Activation&) const = default;
};
using Activations = std::vector<Activation>;  // in order

using HookRecords = std::vector<std::shared_ptr<const registry::Hook>>;

// The records that are active for a device that activations name, or for the process, in order.
HookRecords active_for(const HookRecords& providers, const Activations& activations,
                       const std::optional<Device>& device);

}  // namespace yard::provider

namespace yard::detail {

// The chains of one hook: for the process, for each device that has one of its own, and each provider alone, for the
// scopes of a thread. Immutable. Each link owns the record, and so the library, of what it runs.
struct HookChains {
  // Null without providers. `table` is the id of the HookTable.
  static std::unique_ptr<HookChains> make(provider::HookRecords providers,
                                          const provider::Activations& activations, uint64_t table);
  // What sites show while several of them change: `before` until `done`, then `after`. Either may be null.
  static std::unique_ptr<HookChains> make_change(const HookChains* before, HookChains* after,
                                                 std::shared_ptr<const std::atomic<bool>> done);

  provider::HookRecords providers;
  const HookLink* process = nullptr;
  struct OnDevice {
    Device device;
    const HookLink* first;
  };
  std::vector<OnDevice> devices;
  std::vector<const HookLink*> alone;  // each provider, for frames
  uint64_t table = 0;

  // The chains in force: these, unless they are a change. May be null.
  const HookChains* now() const noexcept;
  // Hands chains that no site shows any more to the reclaimer: the links one by one, since a call that runs one link
  // alone holds only that. Without memory for that they are leaked.
  static void retire(const HookChains* chains) noexcept;

 private:
  struct Link : HookLink {
    std::shared_ptr<const registry::Hook> record;
  };
  const HookLink* chain(const provider::HookRecords& records);
  static void hand_over(HookChains* chains);

  std::vector<std::unique_ptr<Link>> links_;
  // Of a change.
  std::shared_ptr<const std::atomic<bool>> done_;
  const HookChains *before_ = nullptr, *after_ = nullptr;
  std::vector<const void*> reached_by_;  // what else a call may hold while it uses these
};

}  // namespace yard::detail

namespace yard::provider {

using registry::HookDeclaration;

class HookTable {
 public:
  // `snapshot` gives the current one; any thread may call it, without a lock.
  using CurrentSnapshot = std::function<std::shared_ptr<const dispatch::Snapshot>()>;
  // `max_call_depth` must outlive it; null: the default.
  explicit HookTable(CurrentSnapshot snapshot,
                     const std::atomic<uint32_t>* max_call_depth = nullptr);
  ~HookTable();
  HookTable(const HookTable&) = delete;
  HookTable& operator=(const HookTable&) = delete;

  struct Site : detail::HookSite {
    Site(HookTable& t, const HookDeclaration& d) : table(t), declaration(&d) {}
    HookTable& table;
    const HookDeclaration* const declaration;
    std::atomic<bool> needed{false};  // plugins that serve it have been opened
    Site* next = nullptr;
    // By forks, so that they stay reachable.
    std::vector<const detail::HookChains*> left_behind;
    std::vector<const detail::HookScopes*> scopes_left_behind;
  };
  // Made on first use; lives as long as the table.
  Site& site(const HookDeclaration& declaration);
  // Whether a hook of that name has a site.
  bool in_use(std::string_view name) const noexcept;
  std::vector<std::string> names_in_use() const;
  // Makes the chains of the site for the scope, unless there are some.
  void make_scoped(Site& site, const detail::ScopeState& scope);

  // Registry or policy have changed. Holding no lock.
  void refresh();
  // In a forked child, before anything else runs there: completes or drops a change that the fork interrupted.
  void repair_in_child();

  // Becomes the latest activation. If `expected`, the backend may provide no hooks yet.
  Status activate(const Activation& a, bool expected);
  Status deactivate(const Activation& a);
  void deactivate_all();
  Activations activations() const;

  // An error that lists the backends with hooks, unless this is one of them.
  Status known(std::string_view backend) const;
  // Unique among all tables, also those that are gone.
  uint64_t id() const noexcept { return id_; }
  uint32_t max_call_depth() const noexcept;

 private:
  struct Lock {
    std::mutex lock;
    void inherit(Lock&) noexcept {}
  };
  using Change = std::function<Status(const registry::State&, Activations&)>;
  // Applies the change to the activations and brings every site up to date.
  Status edit(const Change& change);
  struct Pending {
    Site* site;
    std::unique_ptr<detail::HookChains> next;
  };
  void put_in_force(std::vector<Pending> pending);

  const CurrentSnapshot snapshot_;
  const std::atomic<uint32_t>* const max_call_depth_;
  const uint64_t id_;
  mutable base::OwnedPerProcess<Lock> lock_;
  base::OwnedAppendList<Site> sites_;
  // Immutable, so that a forked child can continue with it. Replaced under the lock.
  std::atomic<const Activations*> activations_{new Activations};
};

// Names of the backend's hooks that the program does not declare with their signature.
std::vector<std::string> orphans(const registry::State& state, std::string_view backend);
// A warning about them, with the declared names that are similar.
std::string orphan_text(std::string_view backend, const std::vector<std::string>& names);

}  // namespace yard::provider
