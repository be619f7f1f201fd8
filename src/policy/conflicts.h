// SPDX-License-Identifier: Apache-2.0
// Statements of one Config that exclude, cover or contradict each other: valid, and never what was meant. They are found by
// applying the compiled statements as a runtime would.
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

// What excludes some kernels of an op.
struct Exclusion {
  bool any = false;            // the op has such kernels
  const Clause* by = nullptr;  // null if one of them may run
};
// What excludes each kernel for which means(kernel) is true from all calls, or from those for which the clauses in `also`
// hold. Denies are named before other statements.
Exclusion exclusion(const OpUnderConfig& op, const std::function<bool(const KernelFacts&)>& means,
                    const std::vector<const Clause*>& also = {});
// How messages name a statement: "kernel_denies (vendor.*)", "dispatch_rules[2]". `own` is the rule that the message is about.
std::string statement(const OpUnderConfig& op, const Clause& c, uint32_t own = kNoClause);

// Warns of rules without effect, of rules that leave their calls or ops without a kernel, and of ops without a kernel.
void check_conflicts(const OpsUnderConfig& ops, Findings& to);

}  // namespace yard::policy
