// SPDX-License-Identifier: Apache-2.0
// An Explanation tells why one kernel was selected and the others were not.
//
//   yard::Explanation e = yard::explain(rms_norm, out, x, weight, 1e-6f).value();
//   std::puts(e.to_text().c_str());
//   e = yard::explain("rms_norm(f32[8,4096], f32[4096])@cpu").value();  // runtime.h
#pragma once

#include <yard/detail/params.h>
#include <yard/policy.h>

namespace yard {

struct Candidate {
  struct Transform {
    std::string argument;  // of the op
    std::string what;      // "permute, cast"
    double estimate_ns = 0;
  };
  // An entry of `score` in the rule file whose conditions the call meets.
  struct Score {
    std::string name, place;  // "", "score[1] (rules.yaml:7)"
    double add = 0, multiply = 1;
  };

  std::string id;
  Kind kind = Kind::kDefault;
  std::string vendor;  // may be empty
  std::string backend;
  int priority = 0;
  std::string verdict;                // "selected", "able" (lost to the winner), "rejected"
  std::string reason;                 // see docs/reference/reasons.md; empty for the winner
  std::string detail;                 // the reason with its figures, as a sentence
  std::optional<double> estimate_ns;  // its cost estimate, including the transforms
  std::vector<Transform> transforms;  // copies of arguments that it needs for the call
  double adjusted_priority = 0;       // (priority + sum of add) times all multiply of the scores
  std::vector<Score> scores;
  std::string placed_by;  // "fallback_chains.softmax (rules.yaml:9)" if a chain gave it its place
};
YARD_API std::string to_string(const Candidate::Score& score);

struct Explanation {
  struct PolicyNote {
    std::string field, value, source;  // where the field was set
  };

  std::string op;
  std::string call;                   // the CallSpec
  std::string selected;               // id of the winner; empty if no kernel can run
  std::vector<Candidate> candidates;  // in the order of attempts, then the others
  std::vector<PolicyNote> policy;
  std::vector<std::string> counterfactuals;  // "deny_vendors excluded vendor.acme, ..."
  uint64_t generation = 0;                   // of the snapshot

  YARD_API std::string to_text(bool colour = false) const;  // an aligned table
  YARD_API std::string to_json() const;
};

struct Resolution {  // the kernel that would run, and those after it
  std::string op, kernel, backend, vendor;
  Kind kind = Kind::kDefault;
  std::vector<std::string> fallbacks;  // ids, in order
  uint64_t generation = 0;
};

template <class Signature>
class Op;        // op.h
struct Options;  // options.h
namespace detail {
struct Site;
YARD_API Result<Explanation> explain_site(Site* site, const yard_value_t* args,
                                          const Options* options);
}  // namespace detail

// Explains a call of a typed op on the shared runtime without running it.
template <class... P, class... A>
requires(sizeof...(A) == sizeof...(P)) Result<Explanation> explain(const Op<void(P...)>& op,
                                                                   const A&... a) {
  Status why;
  detail::Site* site = op.attached(&why);
  if (site == nullptr) return why;
  return [&](const P&... p) {
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return detail::explain_site(site, args, nullptr);
  }(detail::as_argument(a)...);
}

}  // namespace yard
