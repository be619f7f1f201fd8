// SPDX-License-Identifier: Apache-2.0
// The host table that kernels get, for commands that need the same threads and features.
#pragma once

#include <yard/plugin.h>

#include <functional>
#include <string_view>

namespace yard::tool {

// The table stays valid. It has the same threads and features as that of every runtime.
const yard_host_t& host_table();

// Threads that a parallel_for of the caller may use.
int host_threads();

// Returns 1 if the machine has the feature and the operating system allows it, 0 if not, and -1 for
// an unknown name.
int host_feature(const char* name);

// Runs body(begin, end) over [0, count) on the host's threads.
void host_parallel_for(int64_t count, int64_t grain,
                       const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace yard::tool
