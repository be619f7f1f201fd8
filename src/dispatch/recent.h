// SPDX-License-Identifier: Apache-2.0
// Making and reading a thread's memos of its last calls (yard/detail/recent.h) inside the library.
#pragma once

#include <yard/detail/recent.h>

#include "base/thread_record.h"
#include "dispatch/core.h"

namespace yard::dispatch {

// The memo's place for a site. Makes a thread's memos with its first call.
detail::Recent& recent_place(base::ThreadRecord& thread, uint64_t site_id);

// What a plain call was found to be: it fits, with no aliasing, and this is its plan. The guard holds the
// entry.
struct Found {
  const Entry& entry;
  const exec::Plan& plan;
  uint32_t flags;
  uint64_t evictions;  // the entry's count of evictions from before the plan was found
  uint64_t overlays;   // in a scope: the core's version of overlays from before the entry was found
};

// Remembers the call. Calls that cannot be told by sizes and facts alone are not remembered, and those that
// keep changing their form only now and then: storing costs more than it saves.
void remember(detail::Recent& last, const detail::Site& site, uint64_t scope, const Found& found,
              const yard_value_t* args) noexcept;

}  // namespace yard::dispatch
