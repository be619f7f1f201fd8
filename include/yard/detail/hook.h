// SPDX-License-Identifier: Apache-2.0
// How a call finds the hook that is engaged. Not for direct use: see yard/hook.h.
//
// Each hook of a runtime has a site. What is active for the process is one pointer there, null when there is
// nothing, so that a hook nobody replaces costs two loads and two branches. Only threads that are on a device or in
// a set of hooks look further. Chains are immutable and replaced whole; a call holds what it needs of the one it began
// with: a hook that runs alone holds back nobody else.
//
// A change that concerns several hooks is one change: while it is made, their sites show a link without a function,
// behind which calls find what counts, for all of them the old or for all the new.
#pragma once

#include <yard/detail/guard.h>
#include <yard/plugin.h>

#include <atomic>
#include <cstdint>

namespace yard {

class Runtime;

namespace detail {

// One implementation in a chain.
struct HookLink {
  void (*function)(void) = nullptr;
  void* self = nullptr;
  const HookLink* next = nullptr;
  uint32_t backend = 0;  // its number
  bool takes_next = false;
};

struct HookChains;       // of one hook: src/provider/hook_chains.h
struct HookDeclaration;  // src/registry/declarations.h

struct HookSite {
  std::atomic<const HookLink*> process{nullptr};
  std::atomic<const HookChains*> all{nullptr};  // null: nobody provides it
};

// A device (backend 0) or a set of hooks that a thread is in.
struct HookFrame {
  const HookFrame* outer = nullptr;
  uint32_t backend = 0;
  yard_device_t device{};
  uint64_t table = 0;  // of a set: whose
};

// Where a call is in its chain.
struct HookPlace {
  const HookLink* link = nullptr;      // runs now
  const HookLink* rest = nullptr;      // then these,
  const HookFrame* frame = nullptr;    // after what these frames bring
  const HookFrame* all = nullptr;      // all frames of the thread
  const HookChains* chains = nullptr;  // where frames find what they bring
};
// False if there is none.
YARD_API bool first_place(const HookChains& chains, const HookFrame* frames,
                          HookPlace& to) noexcept;
YARD_API bool next_place(HookPlace& place) noexcept;
// The same for a link that stands for a change under way.
YARD_API bool place_in_change(const HookLink& link, HookPlace& to) noexcept;

// A hook with that name and signature exists, or does not any more. Any thread, also before main().
YARD_API const HookDeclaration* declare_hook(const char* name, const char* signature) noexcept;
YARD_API void undeclare_hook(const HookDeclaration* declaration) noexcept;
YARD_API const char* name_of(const HookDeclaration* declaration) noexcept;
// The site on a runtime, the shared one when null; opens plugins that serve it. `again` when it is to be asked
// again, since plugins cannot be opened just now. Null when there is no memory.
YARD_API HookSite* attach_hook(const HookDeclaration* declaration, Runtime* runtime,
                               bool& again) noexcept;

// The first that is active for the process, held by `guard`; null where there is none, or the thread is in something.
inline const HookLink* process_link(const HookSite& site, ThreadHead& thread,
                                    Guard& guard) noexcept {
  return thread.hooks == nullptr ? guard.protect(site.process) : nullptr;
}
// What a call runs; false: the default. `link` is what process_link() gave.
inline bool find_hook(const HookSite& site, ThreadHead& thread, Guard& guard, const HookLink* link,
                      HookPlace& to) noexcept {
  if (link != nullptr && link->function != nullptr) {
    to.link = link, to.rest = link->next;
    return true;
  }
  if (link != nullptr) {
    if (!place_in_change(*link, to)) return false;
  } else {
    if (thread.hooks == nullptr) return false;
    const HookChains* chains = guard.protect(site.all);
    if (chains == nullptr || !first_place(*chains, thread.hooks, to)) return false;
  }
  if (!to.link->takes_next) guard.move_to_after_reading(to.link);
  return true;
}

// Whether a call must look at all.
inline bool may_engage(const HookSite& site) noexcept {
  return site.process.load(std::memory_order_relaxed) != nullptr ||
         (t_thread != nullptr && t_thread->hooks != nullptr);
}

}  // namespace detail
}  // namespace yard
