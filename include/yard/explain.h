// SPDX-License-Identifier: Apache-2.0
// Explanations: why this kernel, and why not the others. Plain data, made by the selector itself.
//
//   std::puts(yard::explain("rms_norm(f32[8,4096], f32[4096])@cpu").value().to_text().c_str());
#pragma once

#include <yard/policy.h>

#include <optional>
#include <string>
#include <vector>

namespace yard {

// An entry of `score` that holds for the call and names the kernel.
struct ScoreNote {
  std::string name;   // as the file has it; empty: none
  std::string place;  // "score[1] (rules.yaml:7)"
  double add = 0, multiply = 1;
};
// "'wide rows', score[1] (rules.yaml:7): + 10, x 2"
YARD_API std::string to_string(const ScoreNote& note);

// One kernel of the op and what became of it.
struct Candidate {
  std::string id;
  Kind kind = Kind::kDefault;
  std::string vendor;  // empty: nobody's
  std::string backend;
  int priority = 0;
  std::string verdict;  // "selected", "able" (lost to the winner), "rejected"
  std::string reason;   // name in the catalogue: docs/reference/reasons.md; empty for the winner
  std::string detail;   // the reason with its figures, for people
  std::optional<double> estimate_ns;  // what it expects to take, if it says so
  // What the file's `score` makes of the priority, (priority + sum of add) times all multiply; and by what.
  double adjusted_priority = 0;
  std::vector<ScoreNote> scores;
  // Where it stands because of a fallback chain: "fallback_chains.softmax (rules.yaml:9)"; else empty.
  std::string placed_by;
};

// A field of the policy in force, and which source said so.
struct PolicyNote {
  std::string field, value, source;
};

struct Explanation {
  std::string op;
  std::string call;      // the CallSpec
  std::string selected;  // id of the winner; empty: no kernel is allowed, able and healthy
  std::vector<Candidate>
      candidates;  // in the order in which they would be tried, rejected ones last
  std::vector<PolicyNote> policy;
  // "deny_vendors excluded vendor.acme, which would have been first"
  std::vector<std::string> counterfactuals;
  uint64_t generation = 0;  // of the snapshot that was asked

  // A table that lines up; colour only if asked for.
  YARD_API std::string to_text(bool colour = false) const;
  // {"op", "call", "selected", "candidates": [...], "policy", ...}
  YARD_API std::string to_json() const;
};

// The short form: what would run, and what after it.
struct Resolution {
  std::string op, kernel, backend, vendor;
  Kind kind = Kind::kDefault;
  std::vector<std::string> fallbacks;  // ids, in order
  uint64_t generation = 0;
};

}  // namespace yard
