// SPDX-License-Identifier: Apache-2.0
#include "dispatch/run.h"

#include "base/random.h"
#include "base/results.h"
#include "base/stopwatch.h"
#include "dispatch/call.h"

namespace yard::dispatch {
namespace {

// The tensors of a call may overlap in another way than the tensors that its handle was bound to.
uint32_t flags_of(const PlannedCall& c, const yard_value_t* args) noexcept {
  if (!c.bound) return c.flags;
  const int32_t aliased = c.entry.program().fits(args);
  return aliased >= 0 ? static_cast<uint32_t>(aliased) : YARD_CALL_ALIASED;
}

// Returns when a timed call starts, or 0. Restarts the countdown first: the kernel may call ops.
int64_t start_sample(base::ThreadRecord& thread) noexcept {
  if (!thread.is_timed()) return 0;
  constexpr auto kMean = static_cast<uint64_t>(ThreadHead::kSampledOneIn);
  thread.until_sample = static_cast<int32_t>(kMean / 2 + base::thread_random() % (kMean + 1));
  return base::steady_ns();
}
void end_sample(int64_t start, health::Series* series) noexcept {
  if (start != 0 && series != nullptr)
    series->add_sample(static_cast<uint64_t>(base::steady_ns() - start));
}

// The probes of one call. A half-open kernel runs only if its breaker has a probe slot left.
class Probes final : public exec::AdmissionCheck {
 public:
  Probes(const Entry& entry, const exec::Plan& plan, exec::Request& r)
      : entry_(entry), plan_(plan), args_(r.args) {
    if (entry.candidates().half_open()) r.admission = this;
  }

  // Takes a probe slot as late as possible, because slots are few and an unused one is lost.
  bool admits(size_t attempt) override {
    const health::BreakerStatus* breaker =
        entry_.candidates().half_open_breaker(*plan_.attempts[attempt].kernel, args_);
    if (breaker == nullptr) return true;
    if (!breaker->probes->try_enter()) return false;
    entered_[attempt] = breaker;
    return true;
  }

  bool is_probe(size_t attempt) const noexcept override { return entered_[attempt] != nullptr; }

  // Returns whether a probe has decided something about its breaker.
  bool leave(const exec::Outcome& outcome) noexcept {
    bool decided = false;
    for (uint32_t i = 0; i < plan_.attempt_count; ++i)
      if (const health::BreakerStatus* const breaker = std::exchange(entered_[i], nullptr))
        decided |= breaker->probes->leave(result(plan_.attempts[i], *breaker, outcome));
    return decided;
  }

  ~Probes() override { leave({}); }
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

 private:
  // A kernel that was not run counts neither as a success nor as a failure. Neither does a kernel
  // whose breaker was opened by wrong results, if a canary could not judge this call.
  static ErrorClass result(const exec::Attempt& attempt, const health::BreakerStatus& breaker,
                           const exec::Outcome& outcome) noexcept {
    if (outcome.served == &attempt)
      return breaker.wrong_results && outcome.unjudged ? ErrorClass::kDeclined : ErrorClass::kOk;
    for (const exec::Failure& f : outcome.failures)
      if (f.attempt == &attempt) return f.error;
    return ErrorClass::kDeclined;
  }

  const Entry& entry_;
  const exec::Plan& plan_;
  const yard_value_t* const args_;
  const health::BreakerStatus* entered_[exec::Plan::kMaxAttempts] = {};
};

void note_outcome(const PlannedCall& c, const exec::Request& r, const exec::Outcome& outcome) {
  const Core& core = *c.site.core;
  const select::CandidateSet& candidates = c.entry.candidates();
  const bool checked = outcome.served != nullptr && outcome.checked;
  bool changed = false;
  if (!outcome.failures.empty() || checked) {
    const health::CallKind kind = candidates.kind_of(r.args);
    const auto now = std::chrono::steady_clock::now();
    const auto key = [&](const exec::Attempt* a) {
      return health::Key{a->kernel->op, a->kernel->id, a->kernel->backend_name, kind};
    };
    // Once the kind is counting, its calls have their own plans and classes.
    const auto is_of_kind = [&](const health::CallClass& k) {
      return k.program.get() == &c.entry.program() && candidates.kind_of(k.call->args()) == kind;
    };
    for (const exec::Failure& f : outcome.failures) {
      const registry::Kernel& kernel = *f.attempt->kernel;
      health::FailedOn on{.wrong = f.wrong,
                          .sizes = candidates.sizes_hash(r.args),
                          .text = [&] { return select::call_text(c.entry.program(), r.args); },
                          .kernel = &kernel};
      if (f.error == ErrorClass::kFault)
        on.successes = core.calls->totals(c.entry.name(), kernel.id, is_of_kind).calls;
      const auto update = core.board->fault(key(f.attempt), f.error, f.message, now, on);
      changed |= update.changed;
      if (update.opened && c.rollout != nullptr) c.rollout->note_opened(kernel.id, f.message);
    }
    if (checked) core.board->found_right(key(outcome.served), now);
  }
  if (changed || core.board.has_events()) core.health_changed();
}

class Observation {
 public:
  // Uses the caller's record, if there is one, for the times of transforms.
  Observation(const PlannedCall& c, exec::Request& r)
      : call_(c), all_(c.entry.candidates().settings().watch.observers.get()) {
    if (all_ == nullptr) return;
    start_ = base::steady_ns();
    const bool has_record = r.options != nullptr && r.options->result != nullptr;
    record_ = has_record ? r.options->result : r.record = &own_.emplace();
  }

  void report(const exec::Request& r, const exec::Outcome& outcome) const {
    if (all_ == nullptr) return;
    const int64_t end = base::steady_ns();
    const Entry& entry = call_.entry;
    const op::Labels& known = entry.candidates().settings().labels;
    op::Labels all;  // the entry lacks labels that no rule reads
    if (r.options != nullptr && !r.options->labels.empty())
      all = labels_over(r.options->labels, known);
    std::vector<registry::ObservedCall::Failure> failures;
    for (const exec::Failure& f : outcome.failures)
      failures.push_back({*f.attempt->kernel, f.error, f.message});
    const registry::ObservedCall call{
        .program = entry.program(),
        .index = entry.index(),
        .args = r.args,
        .flags = r.flags,
        .labels = all.empty() ? known : all,
        .kernel = outcome.served != nullptr ? outcome.served->kernel : nullptr,
        .selected = call_.selected,
        .start = start_,
        .end = end,
        .select_ns = call_.select_ns,
        .mode = record_->mode,
        .pre_ns = record_->pre_ns,
        .post_ns = record_->post_ns,
        .failures = failures};
    for (const auto& o : *all_) o->seen(call);
  }

 private:
  const PlannedCall& call_;
  const registry::CallObservers* const all_;
  std::optional<ResultRecord> own_;
  const ResultRecord* record_ = nullptr;
  int64_t start_ = 0;
};

policy::RolloutTally& tally_of(const policy::Rollout& rollout, const Entry& entry,
                               const yard_value_t* args, bool in_rollout) {
  const uint64_t kind = entry.candidates().kind_of(args).hash() ^ entry.index();
  return rollout.tally(kind * 0x9e3779b97f4a7c15u, in_rollout);
}

bool takes_rollout(const policy::Rollout& rollout, const PlannedCall& c) {
  const op::Labels& known = c.entry.candidates().settings().labels;
  if (rollout.rule().labels.empty()) return rollout.takes(known);
  return rollout.takes(labels_over(call_labels(c.options, c.thread.scope_state), known));
}

// Runs a plan by the executor, and adds the time to `rollout` unless it is null. This function and
// the next two are not inlined, because their facts would take stack in other calls.
[[gnu::noinline]] Status run_watched(const PlannedCall& c, const policy::Rollout* rollout) {
  const WithFacts facts(c.cells, c.args);
  exec::Request asked = request(c, facts.args());
  const bool in_rollout = c.rollout != nullptr;
  policy::RolloutTally* const tally =
      rollout != nullptr ? &tally_of(*rollout, c.entry, asked.args, in_rollout) : nullptr;
  asked.time_checks = tally != nullptr;
  asked.check_always = in_rollout && tally->wants_check();
  const int64_t start = tally != nullptr ? base::steady_ns() : 0;
  Probes probes(c.entry, c.plan, asked);
  const Observation observation(c, asked);
  const int64_t sample = start_sample(c.thread);
  exec::Outcome outcome;
  Status s = exec::execute(c.thread, c.plan, asked, outcome);
  end_sample(sample, outcome.series);
  observation.report(asked, outcome);
  const bool decided = probes.leave(outcome);
  note_outcome(c, asked, outcome);
  if (decided) c.site.core->health_changed();
  // A mistake of the caller is not due to the rules.
  if (tally == nullptr || s.error_class() == ErrorClass::kCaller) return s;
  const auto took = static_cast<uint64_t>(base::steady_ns() - start);
  tally->add(took - std::min(took, outcome.checking_ns), !outcome.failures.empty());
  if (const bool wrong = outcome.found_wrong(); wrong || outcome.checked) tally->add_check(wrong);
  return s;
}

[[gnu::noinline]] Status fall_back(const PlannedCall& c, int32_t code, const char* message) {
  const WithFacts facts(c.cells, c.args);
  const exec::Request asked = request(c, facts.args());
  exec::Outcome outcome;
  Status s = exec::execute_after_failure(c.thread, c.plan, asked, code, message, outcome);
  note_outcome(c, asked, outcome);
  return s;
}

[[gnu::noinline]] int32_t give_workspace(const PlannedCall& c, yard_call_t& call) {
  const WithFacts facts(c.cells, c.args);
  call.flags = flags_of(c, facts.args());
  return exec::give_workspace(c.thread, *c.plan.attempts[0].kernel, call, facts.args(),
                              c.cells.count);
}

// Runs a plan that is direct or needs only a workspace.
Status run_directly(const PlannedCall& c) {
  char* const error = c.thread.message();
  const int64_t sample = start_sample(c.thread);
  yard_call_t call;
  start_call(call, error, c.flags, c.site.core->host, c.plan.self);
  const int32_t code = call_kernel(call, [&]() -> int32_t {
    const int32_t failed = c.plan.direct ? YARD_OK : give_workspace(c, call);
    return failed == YARD_OK ? c.plan.run(&call, c.cells.at, c.cells.count) : failed;
  });
  if (ResultRecord* const record = c.options != nullptr ? c.options->result : nullptr) {
    exec::note_kernel(*record, c.plan.attempts[0].kernel->id);
    record->run_ns = base::steady_ns() - c.started;
    record->attempts = 1;
  }
  if (code != YARD_OK) return fall_back(c, code, error);
  end_sample(sample, c.plan.series);
  count(c.thread, c.plan.counter);
  return {};
}

}  // namespace

// Sets field by field, because clearing the 136 bytes of the id takes longer than all the rest.
int64_t begin_record(ResultRecord& r) noexcept {
  r.kernel[0] = '\0';
  r.mode_name = nullptr;
  r.mode = Mode::kDynamic;
  r.cached = false;
  r.attempts = r.fallback_from = 0;
  r.select_ns = r.run_ns = r.pre_ns = r.post_ns = 0;
  return base::steady_ns();
}

int64_t note_plan(ResultRecord& r, const Entry& entry, const exec::Plan& plan, int64_t start) {
  r.cached = true;
  r.mode = plan.modes[0];
  if (r.mode == Mode::kProgram) r.mode_name = entry.candidates().mode().program->name;
  const int64_t now = base::steady_ns();
  r.select_ns = now - start;
  return now;
}

exec::Request request(const PlannedCall& c, const yard_value_t* args) {
  const Entry& e = c.entry;
  return {.op = e.name().c_str(),
          .host = c.site.core->host,
          .args = args,
          .count = e.program().arg_count(),
          .flags = flags_of(c, args),
          .strict = e.candidates().strict(),
          .writes_inputs = e.program().has_inout(),
          .options = c.options,
          .given = c.cells.at,
          .program = &e.program(),
          .states = c.site.core->states_for(c.options),
          .save = e.candidates().saves_inputs(),
          .checker = e.candidates().settings().watch.checker.get(),
          .labels = &e.candidates().settings().labels};
}

Status run(const PlannedCall& c) {
  if (c.rollout != nullptr) return run_watched(c, c.rollout);
  if ((c.plan.direct || c.plan.only_workspace) && (c.options == nullptr || !c.options->deadline))
    return run_directly(c);
  const auto& rollout = c.entry.candidates().settings().watch.rollout;
  if (rollout != nullptr && takes_rollout(*rollout, c))
    return resolve_call(c.site, c.cells, c.options, rollout);
  return run_watched(c, rollout.get());
}

[[gnu::noinline]] Status::Rep* run_plan(const PlannedCall& c) {
  return base::or_out_of_memory([&] { return run(c); }).release();
}

[[gnu::noinline]] Status::Rep* after_failure(const PlannedCall& c, int32_t code,
                                             const char* message) {
  return base::or_out_of_memory([&] { return fall_back(c, code, message); }).release();
}

void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why) {
  if (why.error_class() != ErrorClass::kCaller) tally_of(rollout, entry, args, true).add_unserved();
}

void fill_route(Route& route, const Core& core, const exec::Plan& plan) noexcept {
  route.plan = &plan;
  route.typed = plan.direct ? plan.attempts[0].kernel->d.typed : nullptr;
  route.host = core.host, route.self = plan.self, route.counter = plan.counter;
}

}  // namespace yard::dispatch
