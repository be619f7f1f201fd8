// SPDX-License-Identifier: Apache-2.0
// Explanations: the selector's own run with its notes kept, put into words.
#pragma once

#include <yard/explain.h>

#include <span>

#include "op/call.h"
#include "policy/sources.h"
#include "select/candidate_set.h"
#include "select/select.h"

namespace yard::select {

struct Question {
  std::shared_ptr<const registry::OpRecord> op_record;
  const op::Call* call;
  CallConstraints constraints;
  Surroundings where;
  std::span<const policy::Source> sources;  // weakest first
  OpSettings settings = {};
};

Explanation explain(const Question& q);

// A verdict in words: "hidden = 100 is not a multiple of 8". `text` is what a probe or verifier said.
std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text);

// Why no kernel can take the call: one line per kernel, for the error of such a call.
Status no_kernel(const CandidateSet& candidates, const op::Call& call);

// Whether a kernel could be chosen on its own device, whatever the call: listing's `available`.
yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text);

}  // namespace yard::select
