// SPDX-License-Identifier: Apache-2.0
// The host table: what kernels may ask of the runtime they run in.
#pragma once

#include <yard/plugin.h>

namespace yard::detail {
class Core;
}

namespace yard::runtime {

// A table for one runtime; `core` is set once it exists.
struct Host {
  yard_host_t table;
  detail::Core* core = nullptr;
  Host();
};

}  // namespace yard::runtime
