// SPDX-License-Identifier: Apache-2.0
// Conformance: the same call to the reference kernel and to each other one.
#include "tune/conformance.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tune/case_run.h"
#include "tune/tally.h"

namespace yard::tune {
namespace {

using Verdict = Outcome::Verdict;

Outcome failure(std::string what) {
  return {Verdict::kFailed, std::numeric_limits<double>::infinity(), "", std::move(what)};
}

Outcome judge_failure(const Candidate& c, const CaseRun& t, const Status& status) {
  if (c.claims(YARD_KERNEL_FAILS_BEFORE_WRITING))
    if (const std::string damage = t.found.damage(true); !damage.empty())
      return failure(fmt::format("failed, promised to fail before writing, and {}", damage));
  if (status.error_class() == ErrorClass::kDeclined)
    return {Verdict::kDeclined, 0, "", std::string(status.message())};
  return failure(std::string(status.message()));
}

// Same inputs, same bits; what is in the outputs beforehand is no input.
std::string differs_when_repeated(const Candidate& c, const CaseRun& t, int repeats) {
  const std::vector<char> bits = t.found.bits();
  for (int i = 1; i < repeats; ++i) {
    t.found.restore();
    t.found.scramble();
    if (const Status s = c.run(t.call, t.found); !s.ok())
      return fmt::format("succeeds at first and fails when repeated: {}", s.message());
    if (t.found.bits() != bits)
      return fmt::format("claims to be deterministic, but run {} gave other bits", i + 1);
  }
  return "";
}

// NaN has no sign worth telling.
std::string figures(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.9g}", v); }

Outcome judge(const Candidate& c, const CaseRun& t, std::span<const yard_tolerance_t> tolerances,
              int repeats) {
  Outcome outcome;
  if (!c.takes(t.call, &outcome)) return outcome;
  if (!t.reference.ok())
    return {Verdict::kSkipped, 0, "no_reference",
            "the reference kernel fails: " + std::string(t.reference.message())};
  t.found.restore();
  const Status status = c.run(t.call, t.found);
  if (std::string damage = t.found.damage(); !damage.empty()) return failure(std::move(damage));
  if (!status.ok()) return judge_failure(c, t, status);
  const Difference d = compare(t.found.written(), t.expected.written(), tolerances);
  outcome.error = d.ratio;
  if (!d.worst.empty())
    outcome.what = fmt::format("{} is {} where the reference has {}", d.worst,
                               figures(d.worst_found), figures(d.worst_expected));
  if (!d.within) {
    outcome.verdict = Verdict::kFailed;
  } else if (c.claims(YARD_KERNEL_DETERMINISTIC)) {
    if (std::string what = differs_when_repeated(c, t, repeats); !what.empty())
      return failure(std::move(what));
  }
  return outcome;
}

class ConformanceRun {
 public:
  ConformanceRun(const Subject& subject, const VerifyOptions& options, std::vector<bool>& used)
      : record_(*subject.op_record), options_(options) {
    for (const std::string& id : subject.kernels) {
      const registry::Kernel& k = *record_.kernels.find(id)->second;
      KernelReport report;
      report.op = k.op, report.id = k.id, report.backend = k.backend_name, report.kind = k.kind;
      kernels_.push_back(
          {Candidate(subject, k), Tally(std::move(report), options.expectations, used)});
    }
    if (const registry::Kernel* k = oracle_of(record_)) oracle_.emplace(subject, *k);
  }

  // False if `step` ended it.
  bool cases(const Step& step) {
    const op::Program& program = *record_.op->program;
    if (!oracle_) return skip_all("the op has no reference kernel"), true;
    Generator generator(program, &record_.op->d, seed_of(program, options_.seed),
                        options_.max_elements);
    size_t done = 0;
    for (size_t tries = 0; done < options_.cases && tries < kTriesPerCase * options_.cases;
         ++tries) {
      std::optional<Case> c = generator.next();
      if (!c) break;
      if (!oracle_->takes(c->call, nullptr)) continue;
      CaseRun run(program, *std::move(c));
      watch(oracle_->kernel(), run);
      run.reference = oracle_->run(run.call, run.expected);
      // A call that the op's meaning calls wrong is nobody's to run.
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
    for (Copied& h : kernels_) to.push_back(std::move(h.tally).finish(complete));
    return to;
  }

 private:
  struct Copied {
    Candidate candidate;
    Tally tally;
  };

  void watch(const registry::Kernel& kernel, const CaseRun& run) const {
    if (options_.watch) options_.watch(kernel.op, kernel.id, run.where);
  }

  void judge_all(const CaseRun& run) {
    for (Copied& h : kernels_) {
      Outcome o;
      watch(h.candidate.kernel(), run);
      // The reference kernel has nobody to lean on.
      if (&h.candidate.kernel() == &oracle_->kernel() && !run.reference.ok())
        o = failure(std::string(run.reference.message()));
      else
        o = judge(h.candidate, run, record_.op->tolerances, options_.repeats);
      failed_ += o.verdict == Verdict::kFailed ? 1 : 0;
      h.tally.add(o, run.where);
    }
  }

  void skip_all(const char* why) {
    for (Copied& h : kernels_) h.tally.add({Verdict::kSkipped, 0, "no_reference", why}, {});
  }

  const registry::OpRecord& record_;
  const VerifyOptions& options_;
  std::vector<Copied> kernels_;
  std::optional<Candidate> oracle_;
  size_t failed_ = 0;
};

}  // namespace

std::vector<KernelReport> conform(const Subject& subject, const VerifyOptions& options,
                                  const Step& step, std::vector<bool>& used, bool* finished) {
  ConformanceRun run(subject, options, used);
  *finished = run.cases(step);
  return std::move(run).finish(*finished);
}

}  // namespace yard::tune
