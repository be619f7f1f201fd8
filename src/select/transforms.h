// SPDX-License-Identifier: Apache-2.0
// Transforms in selections: whether those that a call needs for a kernel are allowed and possible, and how long they take.
#pragma once

#include <string>
#include <vector>

#include "select/select.h"

namespace yard::select {

// Rejects a kernel that needs a transform where policy forbids it, or which the host cannot make. Figures: the parameter,
// the kinds of transforms, and why not.
void check_transforms(const CandidateSet& candidates, const KernelCandidate& c,
                      const yard_value_t* args, Device device, yard_verdict_t& v);

// The verdict of check_transforms() in words.
std::string transform_text(const CandidateSet& candidates, const KernelCandidate& c,
                           const yard_verdict_t& v);

// The estimated time of the transforms of a call that passes check_transforms(). `notes` may be null.
struct TransformTime {
  bool any = false;
  double ns = 0;
};
TransformTime transform_time(const KernelCandidate& c, const yard_value_t* args,
                             std::vector<Notes::Entry::Transform>* notes);

}  // namespace yard::select
