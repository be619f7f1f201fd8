// SPDX-License-Identifier: Apache-2.0
// Making and reading a thread's memos of its last calls (yard/detail/recent.h) inside the library.
#pragma once

#include <yard/detail/recent.h>

#include "base/thread_record.h"
#include "dispatch/core.h"

namespace yard::dispatch {

// The memo's place for a site. Makes a thread's memos with its first call.
detail::Recent& recent_place(base::ThreadRecord& thread, uint64_t site_id);

// Remembers a plain call that was found to fit, with no aliasing, and its plan. `seen` is the entry's count
// of evictions from before the plan was found. The guard holds the entry. Calls that cannot be told by
// sizes and facts alone are not remembered, and those that keep changing their form only now and then:
// storing costs more than it saves.
void remember(detail::Recent& last, const detail::Site& site, uint64_t scope, const Entry& entry,
              const yard_value_t* args, const exec::Plan& plan, uint64_t seen) noexcept;

}  // namespace yard::dispatch
