// SPDX-License-Identifier: Apache-2.0
// Reasons: the catalogue, with a name and a meaning for each code; and verdicts in words.
#pragma once

#include <yard/plugin.h>

#include <span>
#include <string>
#include <string_view>

#include "select/select.h"

namespace yard::select {

struct ReasonInfo {
  std::string_view name;     // "denied_vendor"
  std::string_view meaning;  // one sentence for the page of reasons
};

// By code: those of yard_reason_t below YARD_REASON_COUNT.
std::span<const ReasonInfo> reasons() noexcept;
// A kernel's own codes are "own".
std::string_view reason_name(int32_t code) noexcept;
std::string reason_meaning(int32_t code);
// The clause that a verdict is due to; null if it is not due to policy.
const policy::Clause* deciding_clause(const CandidateSet& candidates,
                                      const yard_verdict_t& verdict);
// A verdict in words: "hidden = 100 is not a multiple of 8". `text` is Notes::Entry::text.
std::string describe(const CandidateSet& candidates, const KernelCandidate& c,
                     const yard_verdict_t& v, const std::string& text);
// The error of a call that no kernel can take, with one note per kernel.
Status no_kernel(const CandidateSet& candidates, const op::Call& call);
// Whether a kernel is available on its own device, apart from calls and policy; `text` gets the probe's.
yard_verdict_t standing(const KernelCandidate& c, const yard_host_t* host, std::string* text);
// "is open; probes begin in 3 s"
std::string open_breaker_text(const health::BreakerStatus& breaker);
// The text of a probe that refused; empty if it gave none.
std::string refusal(const registry::DeviceProbe& probe);

}  // namespace yard::select
