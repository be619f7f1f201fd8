// SPDX-License-Identifier: Apache-2.0
// The hooks that the program declares, and the numbers of backends that bring some. Both belong to the process,
// only grow, and take no lock: hooks are declared before main() and live on in a forked child.
#pragma once

#include <yard/detail/hook.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yard::detail {

// One for each name and signature, whatever became of the hooks.
struct HookDeclaration {
  std::string name, signature;
  std::atomic<int> hooks{0};  // that exist now
  HookDeclaration* next = nullptr;
};

}  // namespace yard::detail

namespace yard::registry {

using detail::HookDeclaration;

// Those with hooks that exist now.
std::vector<const HookDeclaration*> declared_hooks();
std::vector<const HookDeclaration*> declared_hooks(std::string_view name);

// The number that stands for a backend in chains and frames; never 0.
uint32_t backend_number(std::string_view name);

}  // namespace yard::registry
