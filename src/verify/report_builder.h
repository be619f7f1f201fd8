// SPDX-License-Identifier: Apache-2.0
// Makes the report of a kernel from the outcomes of its calls.
#pragma once

#include <fmt/format.h>

#include "verify/kernel_runner.h"

namespace yard::verification {

inline KernelReport report_of(const registry::Kernel& k) {
  KernelReport to;
  to.op = k.op, to.id = k.id, to.backend = k.backend_name, to.kind = k.kind;
  return to;
}

inline void note(KernelReport& report, std::string_view reason, std::string_view detail) {
  const auto it = std::ranges::find(report.reasons, reason, &KernelReport::Reason::reason);
  if (it != report.reasons.end())
    ++it->count;
  else
    report.reasons.push_back({std::string(reason), std::string(detail), 1});
}

// Counts the outcomes of one kernel and compares them with the expectations.
class ReportBuilder {
 public:
  ReportBuilder(KernelReport report, std::span<const Expectation> expectations,
                std::vector<bool>& used)
      : r_(std::move(report)), used_(used) {
    for (size_t i = 0; i < expectations.size(); ++i)
      if (const Expectation& e = expectations[i];
          glob_matches(e.kernel, r_.id) && glob_matches(e.op, r_.op))
        lines_.push_back({i, &e, 0, 0, {}});
  }

  void add(const Outcome& outcome, KernelReport::Case where) {
    where.error = outcome.error, where.what = outcome.what;
    Line* const line = find(where);
    if (outcome.verdict == Outcome::Verdict::kSkipped)
      return ++r_.skipped, note(r_, outcome.reason, where.what);
    if (outcome.verdict == Outcome::Verdict::kDeclined)
      return ++r_.declined, note(r_, "declined", where.what);
    r_.errors.push_back(outcome.error);
    if (line != nullptr && line->e->kind == Expectation::Kind::kUnsupported)
      return fail(std::move(where),
                  fmt::format("the kernel takes it, but line {} says unsupported: {}",
                              line->e->line, line->e->reason));
    if (outcome.verdict == Outcome::Verdict::kPassed) {
      ++r_.passed;
      if (line != nullptr) ++line->passed, line->last_pass = where;
      if (r_.failed == 0 && (r_.worst.call.empty() || where.error > r_.worst.error))
        r_.worst = std::move(where);
    } else if (line == nullptr) {
      fail(std::move(where));
    } else {
      ++line->failed, ++r_.expected;
      note(r_, "expected", line->e->reason);
    }
  }

  // Only if all cases were run, a pass is known to be unexpected.
  KernelReport finish(bool all_ran) && {
    for (Line& l : lines_) {
      if (!all_ran || l.e->kind != Expectation::Kind::kFails || l.failed > 0 || l.passed == 0)
        continue;
      --r_.passed;
      fail(std::move(l.last_pass),
           fmt::format("unexpected pass: line {} says that one of {} such calls fails: {}",
                       l.e->line, l.passed, l.e->reason));
    }
    std::ranges::stable_sort(r_.reasons, std::ranges::greater(), &KernelReport::Reason::count);
    return std::move(r_);
  }

 private:
  // An expectation for this kernel and op, and the outcomes of the calls that match it.
  struct Line {
    size_t index;
    const Expectation* e;
    size_t passed = 0, failed = 0;
    KernelReport::Case last_pass;
  };

  Line* find(const KernelReport::Case& where) {
    const std::string with = fmt::format("{} contents={}", where.call, to_string(where.contents));
    for (Line& l : lines_) {
      if (!glob_matches(l.e->call, where.call) && !glob_matches(l.e->call, with)) continue;
      used_[l.index] = true;
      return &l;
    }
    return nullptr;
  }

  static constexpr size_t kFailuresKept = 8;
  // A failure that is not numerical has the text `what`.
  void fail(KernelReport::Case where, std::string what = {}) {
    if (!what.empty()) where.error = kInfinity, where.what = std::move(what);
    if (r_.failed++ == 0 || where.error > r_.worst.error) r_.worst = where;
    if (r_.failures.size() < kFailuresKept) r_.failures.push_back(std::move(where));
  }

  KernelReport r_;
  std::vector<Line> lines_;
  std::vector<bool>& used_;
};

}  // namespace yard::verification
