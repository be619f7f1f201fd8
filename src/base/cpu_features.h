// SPDX-License-Identifier: Apache-2.0
// What the processor can do and the operating system lets programs use.
#pragma once

#include <string_view>
#include <vector>

namespace yard::base {

// 1: usable, 0: not, -1: no feature of that name on any machine we know. Cached; any thread.
int has_cpu_feature(std::string_view name) noexcept;

// Names of the usable ones, sorted.
std::vector<std::string_view> cpu_features();

}  // namespace yard::base
