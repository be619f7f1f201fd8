// SPDX-License-Identifier: Apache-2.0
// When a library is tried in a process of its own before it is opened in this one: opened, asked, started, and
// each of its kernels run on a few small calls. That finds mistakes, not malice: it is no sandbox.
#pragma once

#include <yard/status.h>

#include <optional>
#include <string_view>

namespace yard {

enum class PluginProbe : int {
  kNever,
  kChanged,  // unless a file with these very bytes has been tried before: then what came of it counts
  kAlways,
};
// "never", "changed", "always".
YARD_API const char* to_string(PluginProbe probe) noexcept;
YARD_API std::optional<PluginProbe> parse_plugin_probe(std::string_view text) noexcept;

}  // namespace yard
