// SPDX-License-Identifier: Apache-2.0
// Finds statements of one Config that exclude, cover or contradict each other. Such statements are
// valid but never intended. The compiled statements are applied as a runtime would apply them.
#pragma once

#include "policy/check.h"

namespace yard::policy {

// An op under all statements of a Config. Borrows the name.
struct OpUnderConfig {
  const std::string& name;
  std::vector<KernelFacts> kernels;
  Clauses clauses;
};
using OpsUnderConfig = std::vector<OpUnderConfig>;

// The clause that excludes some kernels of an op.
struct Exclusion {
  bool any = false;            // the op has such kernels
  const Clause* by = nullptr;  // null if one of them may run
};
// Returns the exclusion of every kernel for which means(kernel) is true, from all calls or from the
// calls for which the clauses in `also` hold.
Exclusion exclusion(const OpUnderConfig& op, const std::function<bool(const KernelFacts&)>& means,
                    const std::vector<const Clause*>& also = {});
// Returns the name of a statement in messages, such as "kernel_denies (vendor.*)". `own` is the
// rule that the message is about.
std::string statement(const OpUnderConfig& op, const Clause& c, uint32_t own = kNoClause);

void check_conflicts(const OpsUnderConfig& ops, Findings& to);

}  // namespace yard::policy
