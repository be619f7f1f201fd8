// SPDX-License-Identifier: Apache-2.0
// How a call finds the hook that is engaged. Not for direct use: see yard/hook.h.
//
// Each hook of a runtime has a site. What is active for the process is one pointer there, null when there is
// nothing, so that a hook nobody replaces costs two loads and two branches. Only threads that are on a device or in
// a set of hooks look further. Chains are immutable and replaced whole; a call holds the one it began with.
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

struct HookChains;       // of one hook: src/registry/hook_chains.h
struct HookDeclaration;  // src/registry/hook_declarations.h

struct HookSite {
  std::atomic<const HookLink*> process{nullptr};
  std::atomic<const HookChains*> all{nullptr};  // null: nobody provides it
};

// A device (backend 0) or a set of hooks that a thread is in.
struct HookFrame {
  const HookFrame* outer = nullptr;
  uint32_t backend = 0;
  yard_device_t device{};
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
  if (link != nullptr) {
    to.link = link, to.rest = link->next;
    return true;
  }
  if (thread.hooks == nullptr) return false;
  const HookChains* chains = guard.protect(site.all);
  return chains != nullptr && first_place(*chains, thread.hooks, to);
}

// Whether a call must look at all.
inline bool may_engage(const HookSite& site) noexcept {
  return site.process.load(std::memory_order_relaxed) != nullptr ||
         (t_thread != nullptr && t_thread->hooks != nullptr);
}

}  // namespace detail
}  // namespace yard
