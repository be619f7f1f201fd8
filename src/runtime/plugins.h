// SPDX-License-Identifier: Apache-2.0
// What a runtime does for its plugins.
#pragma once

#include "dispatch/core.h"
#include "plugin/loader.h"
#include "policy/process.h"

namespace yard::runtime {

// The core must outlive them. `hook_in_use` says whether a hook of that name has been used,
// `group_in_use` the same of a group of functions.
plugin::Services plugin_services(detail::Core& core,
                                 std::function<bool(const std::string&)> hook_in_use,
                                 std::function<bool(const std::string&)> group_in_use);
// Empty where read_environment() has ignored it.
plugin::FromEnvironment plugin_environment(const policy::Reading& reading);

}  // namespace yard::runtime
