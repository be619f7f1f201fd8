// SPDX-License-Identifier: Apache-2.0
// The selector: one total order over the kernels that are allowed, able and healthy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "select/candidate_set.h"

namespace yard::select {

// In yard_verdict_t::flags of a verdict that a verifier gave: its figures are its own.
inline constexpr uint32_t kByVerifier = 1;

// What a probe that refused said, in words; empty if it said nothing.
std::string refusal(const registry::Probe& probe);

// What became of each candidate, in the order of the set. Kept only when somebody asks why.
struct Notes {
  struct Entry {
    yard_verdict_t verdict{};
    double estimate_ns = -1;
    int32_t rule = -1;             // that put it where it is: index into OpRules::rules()
    double priority = 0;           // adjusted
    std::vector<uint32_t> scores;  // that adjusted it: indices into OpRules::scores()
    bool by_chain = false;         // the fallback chain put it where it is
    std::string text;              // of a verifier that threw or a probe that refused
  };
  std::vector<Entry> entries;
  size_t by_mode = 0;     // how many the program's mode has put first
  std::string mode_text;  // why it gave no answer
};

// Able candidates, best first, as indices into the set; and what put the first one there: the static map,
// a rule (kConfig or kHotReload), a mode of the program (kProgram) or the rest of the order (kDynamic).
struct Order : std::vector<uint16_t> {
  Mode by = Mode::kDynamic;
};

// `args` holds metadata only (op::Call): tensors without data. Runs verifiers, cost hints and, the first
// time, probes; takes no lock. `flags` are YARD_CALL_*.
Order select(const CandidateSet& candidates, const yard_value_t* args, uint32_t count,
             uint32_t flags, Notes* notes = nullptr);

// Whether the calling thread is inside select(): plugin code that runs there must not change what is
// being selected from, nor wait for other selections.
bool inside_select() noexcept;
// How many selections this thread is inside of: plugin code that is asked may call ops.
int select_depth() noexcept;

}  // namespace yard::select
