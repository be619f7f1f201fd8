// SPDX-License-Identifier: Apache-2.0
// The backends that are linked into the library. The build writes the list, so that adding a backend
// changes no source of the core.
#pragma once

#include <yard/plugin.h>

#include <iterator>
#include <span>

namespace yard::runtime {

// The query functions, in the order of backends/CMakeLists.txt. Lives as long as the process; any
// thread may read it; does not allocate.
std::span<const yard_plugin_query_t> builtin_backends() noexcept;

}  // namespace yard::runtime
