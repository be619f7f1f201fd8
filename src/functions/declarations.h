// SPDX-License-Identifier: Apache-2.0
// The functions that the program declares. They belong to the process, are never removed and need no lock: they are declared
// before main() and stay valid in a forked child.
#pragma once

#include <yard/detail/function.h>

#include <string_view>
#include <vector>

#include "base/append_list.h"

namespace yard::functions {

// All that were ever declared, in the order of FunctionSite::index.
extern base::AppendList<detail::FunctionSite> g_sites;

// Those with Function objects that exist now; of one name.
std::vector<detail::FunctionSite*> declared_sites();
std::vector<detail::FunctionSite*> declared_sites(std::string_view group, std::string_view name);

}  // namespace yard::functions
