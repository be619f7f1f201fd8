// SPDX-License-Identifier: Apache-2.0
// Gives commands access to the threads and CPU features that kernels get from the host.
#pragma once

#include <yard/plugin.h>

#include <functional>
#include <string_view>

namespace yard::tool {

// The table is never freed. Its threads and features are the same as in every runtime.
const yard_host_t& host_table();

int host_threads();

// Returns 1 if this process can use the feature, 0 if not, and -1 for an unknown name.
int host_feature(const char* name);

void host_parallel_for(int64_t count, int64_t grain,
                       const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace yard::tool
