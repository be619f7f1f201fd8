// SPDX-License-Identifier: Apache-2.0
// The dispatched functions that the program declares. They belong to the process, only grow, and take no lock:
// functions are declared before main() and live on in a forked child.
#pragma once

#include <yard/detail/function.h>

#include <string_view>
#include <vector>

#include "registry/records.h"

namespace yard::registry {

// All that ever were; those with objects that exist now; those of a name.
std::vector<detail::FunctionSite*> all_function_sites();
std::vector<detail::FunctionSite*> function_sites();
std::vector<detail::FunctionSite*> function_sites(std::string_view group, std::string_view name);

// Whether an implementation fits what is declared: an error if functions of its name are, and none with its
// signature.
Status check_function(const Hook& implementation);

}  // namespace yard::registry
