// SPDX-License-Identifier: Apache-2.0
// A kernel by itself, and a call to try it on: what every judgement of kernels is made from.
#pragma once

#include <memory>

#include "exec/plan.h"
#include "exec/states.h"
#include "op/call.h"
#include "select/candidate_set.h"
#include "tune/conformance.h"
#include "tune/generator.h"
#include "tune/tally.h"

namespace yard::tune {

// Calls that cannot be used are made again, this often for each that counts.
inline constexpr size_t kTriesPerCase = 16;

// One kernel as if it were the only one. It must outlive this.
class Candidate {
 public:
  Candidate(const Subject& subject, const registry::Kernel& kernel);

  const registry::Kernel& kernel() const noexcept { return kernel_; }
  bool claims(uint32_t flag) const noexcept { return (kernel_.d.flags & flag) != 0; }

  // Whether it takes the call; if not, `why`.
  bool takes(const op::Call& call, Outcome* why) const;
  Status run(const op::Call& call, const CallTensors& tensors) const;
  // On arguments that fit and have facts. Any thread.
  Status run(const yard_value_t* args, uint32_t count, uint32_t flags) const;

 private:
  select::CandidateSet candidates_;
  exec::Plan::Ptr plan_;
  // Of a kernel that has some; with its default options.
  std::unique_ptr<exec::States> states_ = std::make_unique<exec::States>();
  const registry::Kernel& kernel_;
  size_t place_ = 0;
};

// One case with two sets of its tensors.
struct CaseRun {
  CaseRun(const op::Program& program, Case c);
  op::Call call;
  ParsedCall parsed;
  CallTensors found, expected;
  VerifyCase where;
  Status reference;  // what the reference kernel said of it
};

// The op's meaning: its best reference kernel. Null if it has none.
const registry::Kernel* oracle_of(const registry::OpRecord& op_record);

// Ops get calls of their own, whatever else is tried.
uint64_t seed_of(const op::Program& program, uint64_t seed);

}  // namespace yard::tune
