// SPDX-License-Identifier: Apache-2.0
// Explanations: a run of the selector with notes, in words.
#pragma once

#include <yard/explain.h>

#include <span>

#include "op/call.h"
#include "policy/process.h"
#include "select/candidate_set.h"
#include "select/select.h"

namespace yard::select {

struct ExplainRequest {
  std::shared_ptr<const registry::OpRecord> op_record;
  const op::Call* call;
  CallConstraints constraints;
  ProcessState process;
  std::span<const policy::Source> sources;  // lowest precedence first
  OpSettings settings = {};
};

Explanation explain(const ExplainRequest& q);

// A verdict in words: "hidden = 100 is not a multiple of 8". `text` is Notes::Entry::text.
std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text);

// The error of a call that no kernel can take, with one note per kernel.
Status no_kernel(const CandidateSet& candidates, const op::Call& call);

// Whether a kernel is available on its own device, apart from calls and policy; `text` gets the probe's.
yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text);

}  // namespace yard::select
