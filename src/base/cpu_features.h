// SPDX-License-Identifier: Apache-2.0
// Features of the processor that the operating system lets programs use.
#pragma once

#include <string_view>
#include <vector>

namespace yard::base {

// 1: usable, 0: not, -1: unknown name on all supported architectures. Cached; any thread.
int has_cpu_feature(std::string_view name) noexcept;

// Names of the usable ones, sorted.
std::vector<std::string_view> cpu_features();
// Names that has_cpu_feature() knows.
std::vector<std::string_view> known_cpu_features();

}  // namespace yard::base
