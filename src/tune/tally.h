// SPDX-License-Identifier: Apache-2.0
// Counting what became of one kernel's cases, with what was expected of them.
#pragma once

#include <yard/verify.h>

#include <span>
#include <string>
#include <vector>

namespace yard::tune {

// What one kernel did with one case.
struct Outcome {
  enum class Verdict : uint8_t { kPassed, kFailed, kSkipped, kDeclined };
  Verdict verdict = Verdict::kPassed;
  double error = 0;    // in units of the tolerance
  std::string reason;  // of a skipped one
  std::string what;    // details of anything but a plain pass
};

class Tally {
 public:
  // `used` has a place for each expectation and outlives the tally.
  Tally(KernelReport report, std::span<const Expectation> expectations, std::vector<bool>& used);

  void add(const Outcome& outcome, VerifyCase where);
  // Unexpected passes are known only at the end, if it was reached.
  KernelReport finish(bool complete) &&;

 private:
  // An expectation that speaks of this kernel and op, and what its calls did.
  struct Line {
    size_t index;
    const Expectation* e;
    size_t passed = 0, failed = 0;
    VerifyCase last_pass;
  };

  Line* find(const VerifyCase& where);
  void fail(VerifyCase where);
  void note(const std::string& reason, const std::string& detail);

  KernelReport r_;
  std::vector<Line> lines_;
  std::vector<bool>& used_;
  bool worst_failed_ = false;
};

}  // namespace yard::tune
