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

}  // namespace yard::select
