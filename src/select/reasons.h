// SPDX-License-Identifier: Apache-2.0
// The catalogue of reasons, with a name and a meaning for each code, and texts of verdicts.
#pragma once

#include "select/select.h"

namespace yard::select {

struct ReasonInfo {
  std::string_view name;     // "denied_vendor"
  std::string_view meaning;  // one sentence for the page of reasons
};

// Indexed by code. Holds the codes of yard_reason_t below YARD_REASON_COUNT.
std::span<const ReasonInfo> reasons() noexcept;
// Returns "own" for a kernel's own codes.
std::string_view reason_name(int32_t code) noexcept;
std::string reason_meaning(int32_t code);
// Returns the clause that caused the verdict, or null if policy did not.
const policy::Clause* deciding_clause(const CandidateSet& candidates,
                                      const yard_verdict_t& verdict);
// Returns text like "hidden = 100 is not a multiple of 8". `text` is Notes::Entry::text.
std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text);
// Returns the error of a call that no kernel can take, with one note per kernel.
Status no_kernel(const CandidateSet& candidates, const op::Call& call);
// Ignores calls, and policy except the backend's switch. `text` gets the text of the probe.
yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text);
// Returns text like "is open; probes begin in 3 s".
std::string open_breaker_text(const health::BreakerStatus& breaker);
// Returns an empty text if the probe gave none.
std::string refusal(const registry::DeviceProbe& probe);

}  // namespace yard::select
