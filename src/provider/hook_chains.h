// SPDX-License-Identifier: Apache-2.0
// The chains of one hook: for the process, for each device that has one of its own, and each provider alone, for the
// scopes of a thread. Immutable. Each link owns the record, and so the library, of what it runs.
//
// The order of a chain: the scopes that the thread is in, the innermost first; what is active for its device; what is
// active for the process. Among those of a device or of the process: higher priority, then later activated. A
// backend is in a chain once, at its first place.
#pragma once

#include <yard/detail/hook.h>
#include <yard/tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  // alone holds only that.
  static void retire(HookChains* chains);

 private:
  struct Link : HookLink {
    std::shared_ptr<const registry::Hook> record;
  };
  const HookLink* chain(const provider::HookRecords& records);

  std::vector<std::unique_ptr<Link>> links_;
  // Of a change.
  std::shared_ptr<const std::atomic<bool>> done_;
  const HookChains *before_ = nullptr, *after_ = nullptr;
  std::vector<const void*> reached_by_;  // what else a call may hold while it uses these
};

}  // namespace yard::detail
