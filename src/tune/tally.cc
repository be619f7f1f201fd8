// SPDX-License-Identifier: Apache-2.0
// Counting outcomes: see tally.h.
#include "tune/tally.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace yard::tune {
namespace {

constexpr size_t kFailuresKept = 8;

}  // namespace

Tally::Tally(KernelReport report, std::span<const Expectation> expectations,
             std::vector<bool>& used)
    : r_(std::move(report)), used_(used) {
  for (size_t i = 0; i < expectations.size(); ++i)
    if (const Expectation& e = expectations[i];
        glob_matches(e.kernel, r_.id) && glob_matches(e.op, r_.op))
      lines_.push_back({i, &e, 0, 0, {}});
}

// The first line that speaks of the call.
Tally::Line* Tally::find(const VerifyCase& where) {
  const std::string with = fmt::format("{} contents={}", where.call, to_string(where.contents));
  for (Line& l : lines_) {
    if (!glob_matches(l.e->call, where.call) && !glob_matches(l.e->call, with)) continue;
    used_[l.index] = true;
    return &l;
  }
  return nullptr;
}

void Tally::note(const std::string& reason, const std::string& detail) {
  for (VerifyReason& n : r_.reasons) {
    if (n.reason != reason) continue;
    ++n.count;
    return;
  }
  r_.reasons.push_back({reason, detail, 1});
}

void Tally::fail(VerifyCase where) {
  ++r_.failed;
  if (!worst_failed_ || where.error > r_.worst.error) r_.worst = where;
  worst_failed_ = true;
  if (r_.failures.size() < kFailuresKept) r_.failures.push_back(std::move(where));
}

void Tally::add(const Outcome& outcome, VerifyCase where) {
  where.error = outcome.error, where.what = outcome.what;
  Line* line = find(where);
  const bool unsupported = line != nullptr && line->e->kind == Expectation::Kind::kUnsupported;
  if (outcome.verdict == Outcome::Verdict::kSkipped) {
    ++r_.skipped;
    return note(outcome.reason, outcome.what);
  }
  if (outcome.verdict == Outcome::Verdict::kDeclined) {
    ++r_.declined;
    return note("declined", outcome.what);
  }
  r_.errors.push_back(outcome.error);
  if (unsupported) {
    where.error = std::numeric_limits<double>::infinity();
    where.what = fmt::format("the kernel takes it, but line {} says unsupported: {}", line->e->line,
                             line->e->reason);
    return fail(std::move(where));
  }
  if (outcome.verdict == Outcome::Verdict::kPassed) {
    ++r_.passed;
    if (line != nullptr) ++line->passed, line->last_pass = where;
    if (!worst_failed_ && (r_.worst.call.empty() || where.error > r_.worst.error))
      r_.worst = std::move(where);
    return;
  }
  if (line == nullptr) return fail(std::move(where));
  ++line->failed, ++r_.expected;
  note("expected", line->e->reason);
}

KernelReport Tally::finish(bool complete) && {
  for (Line& l : lines_) {
    if (!complete || l.e->kind != Expectation::Kind::kFails || l.failed > 0 || l.passed == 0)
      continue;
    l.last_pass.error = std::numeric_limits<double>::infinity();
    l.last_pass.what =
        fmt::format("unexpected pass: line {} says that one of {} such calls fails: {}", l.e->line,
                    l.passed, l.e->reason);
    --r_.passed;
    fail(std::move(l.last_pass));
  }
  std::stable_sort(r_.reasons.begin(), r_.reasons.end(),
                   [](const VerifyReason& a, const VerifyReason& b) { return a.count > b.count; });
  return std::move(r_);
}

}  // namespace yard::tune
