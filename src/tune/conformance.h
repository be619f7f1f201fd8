// SPDX-License-Identifier: Apache-2.0
// Holding the kernels of one op against its reference kernel. The interface is yard/verify.h.
#pragma once

#include <yard/verify.h>

#include <memory>
#include <set>
#include <vector>

#include "registry/changes.h"
#include "select/candidate_set.h"

namespace yard::tune {

// What is being verified.
struct Subject {
  std::shared_ptr<const registry::OpRecord> op_record;
  std::set<std::string> kernels;  // ids
  select::ProcessState where;
};

// Called before each case with how many are done and have failed; false ends the run.
using Step = std::function<bool(size_t done, size_t failed)>;

// One report for each kernel of the subject. `used` has a place for each expectation of the options; those
// that matched a call are set. False in `finished` if `step` ended it.
std::vector<KernelReport> conform(const Subject& subject, const VerifyOptions& options,
                                  const Step& step, std::vector<bool>& used, bool* finished);

}  // namespace yard::tune
