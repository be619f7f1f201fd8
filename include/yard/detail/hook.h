// SPDX-License-Identifier: Apache-2.0
// How a call finds the hook that is engaged (yard/hook.h). Not for direct use.
//
// Each hook of a runtime has a site. What is active for the process is one pointer there, null if nothing is, so that
// a hook that is not engaged costs a few loads and branches. Only threads that are on a device, in a scope of hooks or in
// a scope whose policy concerns hooks look further. Chains are immutable and replaced as a whole; a call protects what it needs of its chain: a hook
// that runs alone keeps no other from being freed.
//
// A change of several hooks takes effect at one moment: while it is made, their sites show a link without a function,
// behind which calls find the chains in force, either the old ones of all hooks or the new ones.
#pragma once

#include <yard/detail/guard.h>
#include <yard/plugin.h>

#include <atomic>

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

struct HookChains;       // of one hook: src/provider/hook_table.h
struct HookScopes;       // chains by scope: src/provider/hook_table.cc
struct HookDeclaration;  // src/registry/declarations.h

struct HookSite {
  std::atomic<const HookLink*> process{nullptr};
  std::atomic<const HookChains*> all{nullptr};  // null: no providers
  // For scopes whose policy concerns hooks (ThreadHead::kProviders); null: not called in one yet.
  std::atomic<const HookScopes*> scoped{nullptr};
};
// The slot of a call beyond the inline ones. Throws yard::Error where calls nest too deep.
YARD_API HazardSlot& deep_slot(ThreadHead& thread, const HookSite& hook);

// A device (backend 0) or a scope of hooks that a thread is in.
struct HookFrame {
  const HookFrame* outer = nullptr;
  uint32_t backend = 0;
  yard_device_t device{};
  uint64_t table = 0;  // of a scope: the id of its HookTable
};

// The place of a call in its chain.
struct HookPlace {
  const HookLink* link = nullptr;      // runs now
  const HookLink* rest = nullptr;      // then these,
  const HookFrame* frame = nullptr;    // after those of these frames
  const HookFrame* all = nullptr;      // all frames of the thread
  const HookChains* chains = nullptr;  // where frames find theirs
};
// False if there is none.
YARD_API bool first_place(const HookChains& chains, const HookFrame* frames,
                          HookPlace& to) noexcept;
YARD_API bool next_place(HookPlace& place) noexcept;
// The same for a link that stands for a change in progress.
YARD_API bool place_in_change(const HookLink& link, HookPlace& to) noexcept;
// The same for a thread that is in a frame, or in a scope whose policy concerns hooks; the guard then protects the chains.
// Makes the chains of a scope at the first call in it.
YARD_API bool place_in_scope(const HookSite& site, ThreadHead& thread, Guard& guard,
                             HookPlace& to) noexcept;

// At the construction and destruction of a Hook. Any thread, also before main().
YARD_API const HookDeclaration* declare_hook(const char* name, const char* signature) noexcept;
YARD_API void undeclare_hook(const HookDeclaration* declaration) noexcept;
YARD_API const char* name_of(const HookDeclaration* declaration) noexcept;
// The site on a runtime, null: the shared one. Opens plugins that serve the hook; `again` is set if they cannot be
// opened now. Null when out of memory.
YARD_API HookSite* attach_hook(const HookDeclaration* declaration, Runtime* runtime,
                               bool& again) noexcept;

// Whether a frame or a scope may decide otherwise than what is active for the process.
inline bool is_scoped(const ThreadHead& thread) noexcept {
  return thread.hooks != nullptr || (thread.scope & ThreadHead::kProviders) != 0;
}
// The first link that is active for the process, protected by `guard`; null: none, or the thread is_scoped().
inline const HookLink* process_link(const HookSite& site, ThreadHead& thread,
                                    Guard& guard) noexcept {
  return !is_scoped(thread) ? guard.protect(site.process) : nullptr;
}
// What a call runs; false: the default. `link` is the result of process_link().
inline bool find_hook(const HookSite& site, ThreadHead& thread, Guard& guard, const HookLink* link,
                      HookPlace& to) noexcept {
  if (link != nullptr && link->function != nullptr) {
    to.link = link, to.rest = link->next;
    return true;
  }
  if (link != nullptr) {
    if (!place_in_change(*link, to)) return false;
  } else if (!is_scoped(thread) || !place_in_scope(site, thread, guard, to)) {
    return false;
  }
  if (!to.link->takes_next) guard.move_to_after_reading(to.link);
  return true;
}

// False: the hook is not engaged.
inline bool may_engage(const HookSite& site) noexcept {
  return site.process.load(std::memory_order_relaxed) != nullptr ||
         (t_thread != nullptr && is_scoped(*t_thread));
}

}  // namespace detail
}  // namespace yard
