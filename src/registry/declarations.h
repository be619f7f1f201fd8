// SPDX-License-Identifier: Apache-2.0
// The hooks and dispatched functions that the program declares, and the numbers of backends in hook chains.
//
// Declarations belong to the process, are never removed and need no lock: they are made before main() and stay valid in
// a forked child.
#pragma once

#include <yard/detail/function.h>
#include <yard/detail/hook.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yard::detail {

// One per name and signature.
struct HookDeclaration {
  std::string name, signature;
  std::atomic<int> declared{0};  // Hook objects that exist now
  HookDeclaration* next = nullptr;
};

}  // namespace yard::detail

namespace yard::registry {

using detail::HookDeclaration;

// Those with Hook objects that exist now; of one name.
std::vector<const HookDeclaration*> declared_hooks();
std::vector<const HookDeclaration*> declared_hooks(std::string_view name);

// The number of a backend in hook chains and frames; never 0.
uint32_t backend_number(std::string_view name);

// All that were ever declared; those with Function objects that exist now; of one name.
std::vector<detail::FunctionSite*> all_function_sites();
std::vector<detail::FunctionSite*> function_sites();
std::vector<detail::FunctionSite*> function_sites(std::string_view group, std::string_view name);

}  // namespace yard::registry
