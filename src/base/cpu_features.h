// SPDX-License-Identifier: Apache-2.0
// Features of the processor that the operating system lets programs use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace yard::base {

// Returns 1 if the feature is usable, 0 if it is not, and -1 for a name that no architecture has.
int has_cpu_feature(std::string_view name) noexcept;

std::vector<std::string> known_cpu_features();

}  // namespace yard::base
