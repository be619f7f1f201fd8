// SPDX-License-Identifier: Apache-2.0
#include "tune/exercise.h"

#include <optional>

#include "tune/case_run.h"

namespace yard::tune {
namespace {

class ExerciseRun {
 public:
  ExerciseRun(const Subject& subject, const ExerciseOptions& options)
      : subject_(subject), record_(*subject.op_record), options_(options) {
    if (const registry::Kernel* k = oracle_of(record_)) oracle_.emplace(subject, *k);
  }

  Exercised all() {
    for (const std::string& id : subject_.kernels) {
      one(Candidate(subject_, *record_.kernels.find(id)->second));
      if (!to_.damage.empty()) break;
    }
    return std::move(to_);
  }

 private:
  void one(const Candidate& candidate) {
    const op::Program& program = *record_.op->program;
    Generator generator(program, &record_.op->d, seed_of(program, options_.seed),
                        options_.max_elements);
    ++to_.kernels;
    size_t done = 0;
    for (size_t tries = 0; done < options_.cases && tries < kTriesPerCase * options_.cases;
         ++tries) {
      std::optional<Case> c = generator.next();
      if (!c) break;
      if (!candidate.takes(c->call, nullptr)) continue;
      CaseRun run(program, *std::move(c));
      if (is_wrong(run)) continue;
      ++done;
      if (!leaves_all_else_alone(candidate, run)) break;
    }
  }

  // Whether the call means nothing, so that a kernel may do with it as it likes.
  bool is_wrong(const CaseRun& run) {
    if (!oracle_ || !oracle_->takes(run.call, nullptr)) return false;
    watch(oracle_->kernel(), run);
    return oracle_->run(run.call, run.expected).error_class() == ErrorClass::kCaller;
  }

  bool leaves_all_else_alone(const Candidate& candidate, const CaseRun& run) {
    watch(candidate.kernel(), run);
    ++to_.runs;
    const Status status = candidate.run(run.call, run.found);
    const bool promised = !status.ok() && candidate.claims(YARD_KERNEL_FAILS_BEFORE_WRITING);
    to_.damage = run.found.damage(promised);
    return to_.damage.empty();
  }

  void watch(const registry::Kernel& kernel, const CaseRun& run) const {
    if (options_.watch) options_.watch(kernel.id, run.where);
  }

  const Subject& subject_;
  const registry::OpRecord& record_;
  const ExerciseOptions& options_;
  std::optional<Candidate> oracle_;
  Exercised to_;
};

}  // namespace

Exercised exercise(const Subject& subject, const ExerciseOptions& options) {
  return ExerciseRun(subject, options).all();
}

}  // namespace yard::tune
