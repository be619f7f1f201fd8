// SPDX-License-Identifier: Apache-2.0
// The host table that kernels get, for commands that need the same threads and features.
#pragma once

#include <yard/plugin.h>

#include <functional>
#include <string_view>

namespace yard::tool {

// Valid as long as the process; the same threads and features as for every runtime.
const yard_host_t& host_table();

// Threads that a parallel_for of the caller may use.
int host_threads();

// 1: the machine has it and the operating system allows it, 0: not, -1: unknown name.
int host_feature(const char* name);

// Runs body(begin, end) over [0, count) on the host's threads.
void host_parallel_for(int64_t count, int64_t grain,
                       const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace yard::tool
