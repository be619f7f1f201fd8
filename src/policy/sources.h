// SPDX-License-Identifier: Apache-2.0
// Policies from several sources, weakest first, and which source set what.
#pragma once

#include <yard/explain.h>
#include <yard/policy.h>

#include <span>
#include <vector>

namespace yard::policy {

struct Source {
  const char* name;  // "environment", "process", "scope", "call"
  const Policy* policy;
};

// The policy in force.
Policy combine(std::span<const Source> sources);

// Its set fields, each with the source that decided it; deny lists name every source.
std::vector<PolicyNote> notes(std::span<const Source> sources);

// The set fields of one policy.
std::vector<PolicyNote> notes(const Policy& policy, const char* source);

}  // namespace yard::policy
