// SPDX-License-Identifier: Apache-2.0
#include "tune/exercise.h"

#include <optional>

#include "tune/trial.h"

namespace yard::tune {
namespace {

class ExerciseRun {
 public:
  ExerciseRun(const Subject& subject, const ExerciseOptions& options)
      : subject_(subject), family_(*subject.family), options_(options) {
    if (const registry::Kernel* k = oracle_of(family_)) oracle_.emplace(subject, *k);
  }

  Exercised all() {
    for (const std::string& id : subject_.kernels) {
      one(Candidate(subject_, *family_.kernels.find(id)->second));
      if (!to_.damage.empty()) break;
    }
    return std::move(to_);
  }

 private:
  void one(const Candidate& candidate) {
    const op::Program& program = *family_.op->program;
    Generator generator(program, &family_.op->d, seed_of(program, options_.seed),
                        options_.max_elements);
    ++to_.kernels;
    size_t done = 0;
    for (size_t tries = 0; done < options_.cases && tries < kTriesPerCase * options_.cases;
         ++tries) {
      std::optional<Case> c = generator.next();
      if (!c) break;
      if (!candidate.takes(c->call, nullptr)) continue;
      Trial trial(program, *std::move(c));
      if (is_wrong(trial)) continue;
      ++done;
      if (!leaves_all_else_alone(candidate, trial)) break;
    }
  }

  // Whether the call means nothing, so that a kernel may do with it as it likes.
  bool is_wrong(const Trial& trial) {
    if (!oracle_ || !oracle_->takes(trial.call, nullptr)) return false;
    watch(oracle_->kernel(), trial);
    return oracle_->run(trial.call, trial.expected).error_class() == ErrorClass::kCaller;
  }

  bool leaves_all_else_alone(const Candidate& candidate, const Trial& trial) {
    watch(candidate.kernel(), trial);
    ++to_.runs;
    const Status status = candidate.run(trial.call, trial.found);
    const bool promised = !status.ok() && candidate.claims(YARD_KERNEL_FAILS_BEFORE_WRITING);
    to_.damage = trial.found.damage(promised);
    return to_.damage.empty();
  }

  void watch(const registry::Kernel& kernel, const Trial& trial) const {
    if (options_.watch) options_.watch(kernel.id, trial.where);
  }

  const Subject& subject_;
  const registry::Family& family_;
  const ExerciseOptions& options_;
  std::optional<Candidate> oracle_;
  Exercised to_;
};

}  // namespace

Exercised exercise(const Subject& subject, const ExerciseOptions& options) {
  return ExerciseRun(subject, options).all();
}

}  // namespace yard::tune
