// SPDX-License-Identifier: Apache-2.0
// The selector orders the kernels that are allowed, able and healthy.
#pragma once

#include "select/candidate_set.h"

namespace yard::select {

// Marks a verifier's verdict, whose figures have no common meaning, in yard_verdict_t::flags.
inline constexpr uint32_t kByVerifier = 1;

// The third figure of YARD_REASON_TRANSFORM, after the parameter and the kinds of transforms.
enum class NoTransform : int64_t { kForbidden, kOtherDevice, kNotCopyable };

// The outcome for each candidate, in the order of the set, for explanations.
struct Notes {
  struct Entry {
    yard_verdict_t verdict{};
    double estimate_ns = -1;   // includes transforms; negative if unknown
    bool by_estimate = false;  // all kernels that compete with it have an estimate
    std::vector<NeededTransform> transforms;
    uint32_t rule = policy::kNoClause;  // the clause that decided its place
    double priority = 0;                // adjusted by scores
    bool by_chain = false;              // the fallback chain decided its place
    std::string text;  // from a verifier that threw, a probe that refused, or an open breaker
  };
  std::vector<Entry> entries;
  size_t by_mode = 0;     // how many the program's mode put first
  std::string mode_text;  // why the mode put none first
};

// Indices of the candidates that can take the call, best first. `by` says what decided the first:
// the static map, a rule (kConfig, kHotReload), a mode of the program (kProgram), or the rest.
struct Order : std::vector<uint16_t> {
  Mode by = Mode::kDynamic;
  // With mode fallback, says what decided the place of each candidate.
  std::vector<Mode> modes = {};
  bool transforms = false;  // the first candidate needs a transform

  Mode mode_of(size_t i) const noexcept { return i < modes.size() ? modes[i] : by; }
};

// `args` are those of an op::Call. Runs verifiers, cost hints and, the first time, probes.
Order select(const CandidateSet& candidates, const yard_value_t* args, uint32_t count,
             uint32_t flags, Notes* notes = nullptr);

// Counts the nested selections of this thread. Plugin code in a selection may call ops, but must
// not change the candidates or wait for other selections.
int select_depth() noexcept;
inline bool inside_select() noexcept { return select_depth() > 0; }

// `sources` are those that the policy of the set was merged from, weakest first.
Explanation explain(const CandidateSet& candidates, const op::Call& call,
                    std::span<const policy::Source> sources);

}  // namespace yard::select
