// SPDX-License-Identifier: Apache-2.0
#include "tune/conformance.h"

#include <fmt/format.h>
#include <yard/verify.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "base/text.h"
#include "tune/elements.h"

namespace yard::tune {
namespace {

using Verdict = Outcome::Verdict;

constexpr size_t kFailuresKept = 8;

// Counts the outcomes of one kernel, and compares them with the expectations for it.
class ReportBuilder {
 public:
  // `used` has an element for each expectation and outlives the builder.
  ReportBuilder(KernelReport report, std::span<const Expectation> expectations,
                std::vector<bool>& used);

  void add(const Outcome& outcome, VerifyCase where);
  // `complete`: all cases were run; only then is a pass known to be unexpected.
  KernelReport finish(bool complete) &&;

 private:
  // An expectation for this kernel and op, and the outcomes of the calls that match it.
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

ReportBuilder::ReportBuilder(KernelReport report, std::span<const Expectation> expectations,
                             std::vector<bool>& used)
    : r_(std::move(report)), used_(used) {
  for (size_t i = 0; i < expectations.size(); ++i)
    if (const Expectation& e = expectations[i];
        glob_matches(e.kernel, r_.id) && glob_matches(e.op, r_.op))
      lines_.push_back({i, &e, 0, 0, {}});
}

// The first expectation that matches the call.
ReportBuilder::Line* ReportBuilder::find(const VerifyCase& where) {
  const std::string with = fmt::format("{} contents={}", where.call, to_string(where.contents));
  for (Line& l : lines_) {
    if (!glob_matches(l.e->call, where.call) && !glob_matches(l.e->call, with)) continue;
    used_[l.index] = true;
    return &l;
  }
  return nullptr;
}

void ReportBuilder::note(const std::string& reason, const std::string& detail) {
  for (VerifyReason& n : r_.reasons) {
    if (n.reason != reason) continue;
    ++n.count;
    return;
  }
  r_.reasons.push_back({reason, detail, 1});
}

void ReportBuilder::fail(VerifyCase where) {
  ++r_.failed;
  if (!worst_failed_ || where.error > r_.worst.error) r_.worst = where;
  worst_failed_ = true;
  if (r_.failures.size() < kFailuresKept) r_.failures.push_back(std::move(where));
}

void ReportBuilder::add(const Outcome& outcome, VerifyCase where) {
  where.error = outcome.error, where.what = outcome.what;
  Line* line = find(where);
  const bool unsupported = line != nullptr && line->e->kind == Expectation::Kind::kUnsupported;
  if (outcome.verdict == Verdict::kSkipped) {
    ++r_.skipped;
    return note(outcome.reason, outcome.what);
  }
  if (outcome.verdict == Verdict::kDeclined) {
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
  if (outcome.verdict == Verdict::kPassed) {
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

KernelReport ReportBuilder::finish(bool complete) && {
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

Outcome failure(std::string what) {
  return {Verdict::kFailed, std::numeric_limits<double>::infinity(), "", std::move(what)};
}

Outcome judge_failure(const KernelRunner& k, const CaseRun& t, const Status& status) {
  if (k.has_flag(YARD_KERNEL_FAILS_BEFORE_WRITING))
    if (const std::string damage = t.found.damage(true); !damage.empty())
      return failure(fmt::format("failed, promised to fail before writing, and {}", damage));
  if (status.error_class() == ErrorClass::kDeclined)
    return {Verdict::kDeclined, 0, "", std::string(status.message())};
  return failure(std::string(status.message()));
}

// The same inputs must give the same bits, whatever the outputs held before.
std::string differs_when_repeated(const KernelRunner& k, const CaseRun& t, int repeats) {
  const std::vector<char> bits = t.found.bits();
  for (int i = 1; i < repeats; ++i) {
    t.found.restore();
    t.found.scramble();
    if (const Status s = k.run(t.call, t.found); !s.ok())
      return fmt::format("succeeds at first and fails when repeated: {}", s.message());
    if (t.found.bits() != bits)
      return fmt::format("claims to be deterministic, but run {} gave other bits", i + 1);
  }
  return "";
}

Outcome judge(const KernelRunner& k, const CaseRun& t, std::span<const yard_tolerance_t> tolerances,
              int repeats) {
  Outcome outcome;
  if (!k.accepts(t.call, &outcome)) return outcome;
  if (!t.reference.ok())
    return {Verdict::kSkipped, 0, "no_reference",
            "the reference kernel fails: " + std::string(t.reference.message())};
  t.found.restore();
  const Status status = k.run(t.call, t.found);
  if (std::string damage = t.found.damage(); !damage.empty()) return failure(std::move(damage));
  if (!status.ok()) return judge_failure(k, t, status);
  const Difference d = compare(t.found.written(), t.expected.written(), tolerances);
  outcome.error = d.ratio;
  if (!d.worst.empty())
    outcome.what = fmt::format("{} is {} where the reference has {}", d.worst,
                               format_element(d.worst_found), format_element(d.worst_expected));
  if (!d.within) {
    outcome.verdict = Verdict::kFailed;
  } else if (k.has_flag(YARD_KERNEL_DETERMINISTIC)) {
    if (std::string what = differs_when_repeated(k, t, repeats); !what.empty())
      return failure(std::move(what));
  }
  return outcome;
}

class ConformanceRun {
 public:
  ConformanceRun(const OpUnderTest& op, const VerifyOptions& options, std::vector<bool>& used)
      : record_(*op.op_record), options_(options) {
    for (const std::string& id : op.kernels) {
      const registry::Kernel& k = *record_.kernels.find(id)->second;
      KernelReport report;
      report.op = k.op, report.id = k.id, report.backend = k.backend_name, report.kind = k.kind;
      kernels_.push_back(
          {KernelRunner(op, k), ReportBuilder(std::move(report), options.expectations, used)});
    }
    if (const registry::Kernel* k = reference_kernel(record_)) reference_.emplace(op, *k);
  }

  // False if `step` ended it.
  bool cases(const Step& step) {
    const op::Program& program = *record_.op->program;
    if (!reference_) return skip_all("the op has no reference kernel"), true;
    Generator generator(program, &record_.op->d, seed_of(program, options_.seed),
                        options_.max_elements);
    size_t done = 0;
    for (size_t tries = 0; done < options_.cases && tries < kTriesPerCase * options_.cases;
         ++tries) {
      std::optional<Case> c = generator.next();
      if (!c) break;
      if (!reference_->accepts(c->call, nullptr)) continue;
      CaseRun run(program, *std::move(c));
      watch(reference_->kernel(), run);
      run.reference = reference_->run(run.call, run.expected);
      // Calls that the reference kernel rejects as invalid are not run by others.
      if (run.reference.error_class() == ErrorClass::kCaller) continue;
      if (!step(done, failed_)) return false;
      judge_all(run);
      ++done;
    }
    if (done == 0) skip_all("no call could be made that the reference kernel takes");
    return true;
  }

  std::vector<KernelReport> finish(bool complete) && {
    std::vector<KernelReport> to;
    for (UnderTest& k : kernels_) to.push_back(std::move(k.report).finish(complete));
    return to;
  }

 private:
  struct UnderTest {
    KernelRunner runner;
    ReportBuilder report;
  };

  void watch(const registry::Kernel& kernel, const CaseRun& run) const {
    if (options_.watch) options_.watch(kernel.op, kernel.id, run.where);
  }

  void judge_all(const CaseRun& run) {
    for (UnderTest& k : kernels_) {
      Outcome o;
      watch(k.runner.kernel(), run);
      // The reference kernel itself has nothing to be compared with.
      if (&k.runner.kernel() == &reference_->kernel() && !run.reference.ok())
        o = failure(std::string(run.reference.message()));
      else
        o = judge(k.runner, run, record_.op->tolerances, options_.repeats);
      failed_ += o.verdict == Verdict::kFailed ? 1 : 0;
      k.report.add(o, run.where);
    }
  }

  void skip_all(const char* why) {
    for (UnderTest& k : kernels_) k.report.add({Verdict::kSkipped, 0, "no_reference", why}, {});
  }

  const registry::OpRecord& record_;
  const VerifyOptions& options_;
  std::vector<UnderTest> kernels_;
  std::optional<KernelRunner> reference_;
  size_t failed_ = 0;
};

class SmokeTest {
 public:
  SmokeTest(const OpUnderTest& op, const SmokeTestOptions& options)
      : op_(op), record_(*op.op_record), options_(options) {
    if (const registry::Kernel* k = reference_kernel(record_)) reference_.emplace(op, *k);
  }

  SmokeTestReport all() {
    for (const std::string& id : op_.kernels) {
      one(KernelRunner(op_, *record_.kernels.find(id)->second));
      if (!report_.damage.empty()) break;
    }
    return std::move(report_);
  }

 private:
  void one(const KernelRunner& kernel) {
    const op::Program& program = *record_.op->program;
    Generator generator(program, &record_.op->d, seed_of(program, options_.seed),
                        options_.max_elements);
    ++report_.kernels;
    size_t done = 0;
    for (size_t tries = 0; done < options_.cases && tries < kTriesPerCase * options_.cases;
         ++tries) {
      std::optional<Case> c = generator.next();
      if (!c) break;
      if (!kernel.accepts(c->call, nullptr)) continue;
      CaseRun run(program, *std::move(c));
      if (is_invalid(run)) continue;
      ++done;
      if (!stays_in_bounds(kernel, run)) break;
    }
  }

  // Whether the reference kernel rejects the call as invalid; the behaviour of kernels is then undefined.
  bool is_invalid(const CaseRun& run) {
    if (!reference_ || !reference_->accepts(run.call, nullptr)) return false;
    watch(reference_->kernel(), run);
    return reference_->run(run.call, run.expected).error_class() == ErrorClass::kCaller;
  }

  bool stays_in_bounds(const KernelRunner& kernel, const CaseRun& run) {
    watch(kernel.kernel(), run);
    ++report_.runs;
    const Status status = kernel.run(run.call, run.found);
    const bool promised = !status.ok() && kernel.has_flag(YARD_KERNEL_FAILS_BEFORE_WRITING);
    report_.damage = run.found.damage(promised);
    return report_.damage.empty();
  }

  void watch(const registry::Kernel& kernel, const CaseRun& run) const {
    if (options_.watch) options_.watch(kernel.id, run.where);
  }

  const OpUnderTest& op_;
  const registry::OpRecord& record_;
  const SmokeTestOptions& options_;
  std::optional<KernelRunner> reference_;
  SmokeTestReport report_;
};

}  // namespace

std::vector<KernelReport> check_conformance(const OpUnderTest& op, const VerifyOptions& options,
                                            const Step& step, std::vector<bool>& used,
                                            bool* finished) {
  ConformanceRun run(op, options, used);
  *finished = run.cases(step);
  return std::move(run).finish(*finished);
}

SmokeTestReport run_smoke_test(const OpUnderTest& op, const SmokeTestOptions& options) {
  return SmokeTest(op, options).all();
}

}  // namespace yard::tune

namespace yard {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr const char* kForm = "KERNEL OP CALLSPEC : unsupported|fails : reason";

std::string_view trim(std::string_view s) {
  const size_t from = s.find_first_not_of(kBlanks);
  if (from == std::string_view::npos) return {};
  return s.substr(from, s.find_last_not_of(kBlanks) - from + 1);
}

// Removes and returns the first word.
std::string_view word(std::string_view& s) {
  s = trim(s);
  const size_t end = std::min(s.find_first_of(kBlanks), s.size());
  const std::string_view w = s.substr(0, end);
  s = trim(s.substr(end));
  return w;
}

// Removes and returns everything up to a colon between blanks, which no CallSpec contains. Empty if there is none.
std::optional<std::string_view> part(std::string_view& s) {
  for (size_t at = 0; at < s.size(); ++at) {
    const bool before = at == 0 || kBlanks.find(s[at - 1]) != std::string_view::npos;
    const bool after = at + 1 == s.size() || kBlanks.find(s[at + 1]) != std::string_view::npos;
    if (s[at] != ':' || !before || !after) continue;
    const std::string_view head = trim(s.substr(0, at));
    s = trim(s.substr(at + 1));
    return head;
  }
  return std::nullopt;
}

// The error in the line; empty if there is none.
std::string read_expectation(std::string_view line, Expectation& to) {
  const auto subject = part(line);
  const auto kind = subject ? part(line) : std::nullopt;
  if (!kind) return fmt::format("expected `{}`, with blanks around each ':'", kForm);
  std::string_view rest = *subject;
  to.kernel = word(rest);
  to.op = word(rest);
  to.call = rest;
  if (to.kernel.empty() || to.op.empty() || to.call.empty())
    return fmt::format(
        "expected three globs before the first ':', for kernel, op and call; got '{}'", *subject);
  if (*kind == "unsupported") {
    to.kind = Expectation::Kind::kUnsupported;
  } else if (*kind == "fails") {
    to.kind = Expectation::Kind::kFails;
  } else {
    return fmt::format("expected 'unsupported' or 'fails', got '{}'{}", *kind,
                       base::did_you_mean(*kind, {"unsupported", "fails"}));
  }
  to.reason = line;
  return to.reason.empty() ? "the reason is missing: expected it after the second ':'" : "";
}

}  // namespace

Result<std::vector<Expectation>> parse_expectations(std::string_view text, std::string_view name) {
  std::vector<Expectation> to;
  std::vector<std::string> problems;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;
    Expectation e;
    e.line = number;
    const std::string problem = read_expectation(line, e);
    if (problem.empty())
      to.push_back(std::move(e));
    else
      problems.push_back(fmt::format("{}:{}: {}", name, number, problem));
  }
  if (problems.empty()) return to;
  Status s(Code::kParse, problems[0]);
  for (size_t i = 1; i < problems.size(); ++i) s.note(problems[i]);
  return s;
}

}  // namespace yard
