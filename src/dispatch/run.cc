// SPDX-License-Identifier: Apache-2.0
// Running plans: under observation, with probes, reports to health, observers and rollouts; and after a failure.
#include "dispatch/run.h"

#include <algorithm>
#include <optional>

#include "base/random.h"
#include "base/results.h"
#include "dispatch/call.h"
#include "select/candidate_set.h"

namespace yard::dispatch {
namespace {

using Clock = std::chrono::steady_clock;

// The probes of one call: each half-open kernel runs only if its breaker has a probe slot left, which is given back.
class Probes final : public exec::AdmissionCheck {
 public:
  Probes(const Entry& entry, const exec::Plan& plan, exec::Request& r)
      : entry_(entry), plan_(plan), args_(r.args) {
    if (entry.candidates().half_open()) r.admission = this;
  }

  // Called when the kernel is about to run: slots are few, and one that is taken for nothing is lost.
  bool admits(size_t attempt) override {
    const health::BreakerStatus* breaker =
        entry_.candidates().half_open_breaker(*plan_.attempts[attempt].kernel, args_);
    if (breaker == nullptr) return true;
    if (!breaker->probes->try_enter()) return false;
    entered_[attempt] = breaker->probes.get();
    of_results_[attempt] = breaker->wrong_results;
    return true;
  }

  bool is_probe(size_t attempt) const noexcept override { return entered_[attempt] != nullptr; }

  // Whether a probe has decided something.
  bool leave(const exec::Outcome& outcome) noexcept {
    bool decided = false;
    for (uint32_t i = 0; i < plan_.attempt_count; ++i)
      if (entered_[i] != nullptr)
        decided |= std::exchange(entered_[i], nullptr)->leave(result(i, outcome));
    return decided;
  }

  ~Probes() override { leave({}); }
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

 private:
  // A kernel that was not run counts neither way. Nor does one with wrong results before, of which a canary could not
  // judge these.
  ErrorClass result(size_t attempt, const exec::Outcome& outcome) const noexcept {
    const exec::Attempt* a = &plan_.attempts[attempt];
    if (outcome.served == a)
      return of_results_[attempt] && outcome.unjudged ? ErrorClass::kDeclined : ErrorClass::kOk;
    for (const exec::Failure& f : outcome.failures)
      if (f.attempt == a) return f.error;
    return ErrorClass::kDeclined;
  }

  const Entry& entry_;
  const exec::Plan& plan_;
  const yard_value_t* const args_;
  health::ProbeSlots* entered_[exec::Plan::kMaxAttempts] = {};
  bool of_results_[exec::Plan::kMaxAttempts] =
      {};  // probes of breakers that wrong results have opened
};

// What one call reports to the health board.
class Report {
 public:
  Report(const Core& core, const Entry& entry, const exec::Request& r)
      : core_(core), entry_(entry), r_(r) {}

  void failed(const exec::Failure& f) {
    health::FailedOn on;
    on.evidence = f.wrong ? health::Evidence::kResult : health::Evidence::kCall;
    on.text = [this] { return select::call_text(entry_.program(), r_.args); };
    on.sizes = select::sizes_hash(entry_.candidates().dims(), r_.args);
    if (f.error == ErrorClass::kFault) on.successes = successes(f.attempt);
    on.kernel = f.attempt->kernel;
    const health::Key k = key(f.attempt);
    const health::BoardUpdate update = core_.board->fault(k, f.error, f.message, now(), on);
    moved_ |= update.changed;
    if (update.opened) opened_ = &f;
  }
  // Results that were checked and are right. Other successes are read from counters when a call fails.
  void checked(const exec::Attempt* a) {
    const health::Key k = key(a);
    core_.board->success(k, now(), health::Evidence::kResult);
  }
  bool moved() const noexcept { return moved_; }
  // The failure that has opened a breaker; null: none.
  const exec::Failure* opened() const noexcept { return opened_; }

 private:
  // Of all calls of this kind. Once the kind is counting, its calls have plans of their own, and classes that stand for
  // them count no others.
  uint64_t successes(const exec::Attempt* a) {
    const auto is_of_kind = [&](const health::CallClass& c) {
      return c.program.get() == &entry_.program() && kind_of_call(c.call->args()) == kind();
    };
    return core_.calls->totals(entry_.name(), a->kernel->id, is_of_kind).calls;
  }
  health::CallKind kind_of_call(const yard_value_t* args) const {
    return select::call_kind(entry_.program(), entry_.candidates().dims(), args);
  }
  const health::CallKind& kind() {
    if (!kind_) kind_ = kind_of_call(r_.args);
    return *kind_;
  }
  health::Key key(const exec::Attempt* a) {
    return {a->kernel->op, a->kernel->id, a->kernel->backend_name, kind()};
  }
  Clock::time_point now() {
    if (!now_) now_ = Clock::now();
    return *now_;
  }

  const Core& core_;
  const Entry& entry_;
  const exec::Request& r_;
  std::optional<health::CallKind> kind_;
  std::optional<Clock::time_point> now_;
  const exec::Failure* opened_ = nullptr;
  bool moved_ = false;
};

// Calls whose times are compared with each other: of one op and kind.
uint64_t kind_of(const Entry& entry, const yard_value_t* args) {
  const select::CandidateSet& candidates = entry.candidates();
  const uint64_t kind = select::call_kind(entry.program(), candidates.dims(), args).hash();
  return (kind ^ candidates.op_record().op->index) * 0x9e3779b97f4a7c15u;
}

}  // namespace

const exec::Failure* note_outcome(const Core& core, const Entry& entry,
                                  const exec::Request& request, const exec::Outcome& outcome) {
  Report report(core, entry, request);
  for (const exec::Failure& f : outcome.failures) report.failed(f);
  if (outcome.served != nullptr && outcome.checked) report.checked(outcome.served);
  if (report.moved() || core.board.has_events()) core.health_changed();
  return report.opened();
}

namespace {

// One call, from before its kernels run until its observers have seen it.
class Observation {
 public:
  explicit Observation(const Entry& entry)
      : entry_(entry), all_(entry.candidates().settings().watch.observers.get()) {
    if (all_ != nullptr) start_ = base::steady_ns();
  }
  // Transforms are timed: in the caller's record, if there is one.
  void prepare(exec::Request& r) {
    if (all_ == nullptr) return;
    if (r.options != nullptr && r.options->result != nullptr)
      record_ = r.options->result;
    else
      record_ = r.record = &own_.emplace();
  }

  // The plan's first kernel has succeeded, and nothing else was done.
  void report(const exec::Plan& plan, const yard_value_t* args, uint32_t flags) const noexcept {
    tell({.program = entry_.program(),
          .index = entry_.candidates().op_record().op->index,
          .args = args,
          .flags = flags,
          .labels = entry_.candidates().settings().labels,
          .kernel = plan.attempts[0].kernel,
          .start = start_,
          .end = base::steady_ns(),
          .mode = plan.modes[0]});
  }
  void report(const exec::Request& r, const exec::Outcome& outcome) const noexcept {
    if (all_ == nullptr) return;
    const int64_t end = base::steady_ns();
    // Without memory the call goes on, and is not seen.
    base::if_memory_allows([&] {
      const op::Labels& known = entry_.candidates().settings().labels;
      op::Labels all;
      if (r.options != nullptr && !r.options->labels.empty()) {
        // Labels that no rule reads are not part of the entry.
        std::map<std::string, std::string, std::less<>> both = r.options->labels;
        both.insert(known.begin(), known.end());
        all.assign(both.begin(), both.end());
      }
      std::vector<registry::ObservedCall::Failure> failures;
      for (const exec::Failure& f : outcome.failures)
        failures.push_back({*f.attempt->kernel, f.error, f.message});
      tell({.program = entry_.program(),
            .index = entry_.candidates().op_record().op->index,
            .args = r.args,
            .flags = r.flags,
            .labels = all.empty() ? known : all,
            .kernel = outcome.served != nullptr ? outcome.served->kernel : nullptr,
            .selected = r.selected,
            .start = start_,
            .end = end,
            .select_ns = r.select_ns,
            .mode = record_->mode,
            .pre_ns = record_->pre_ns,
            .post_ns = record_->post_ns,
            .failures = failures});
    });
  }

 private:
  void tell(const registry::ObservedCall& call) const noexcept {
    for (const auto& o : *all_) o->seen(call);
  }

  const Entry& entry_;
  const registry::CallObservers* const all_;
  std::optional<ResultRecord> own_;
  const ResultRecord* record_ = nullptr;
  int64_t start_ = 0;
};

}  // namespace

[[gnu::noinline]] uint32_t bound_flags(const Entry& e, const Cells& cells) noexcept {
  try {
    const WithFacts facts(cells);
    if (const int32_t aliased = e.program().fits(facts.args()); aliased >= 0)
      return static_cast<uint32_t>(aliased);
  } catch (const std::bad_alloc&) {
  }
  return YARD_CALL_ALIASED;  // not known
}

Status fall_back(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                 const exec::Plan& plan, const exec::Request& request, int32_t code,
                 const char* message) {
  exec::Outcome outcome;
  Status s = exec::execute_after_failure(thread, plan, request, code, message, outcome);
  note_outcome(core, entry, request, outcome);
  return s;
}

Status run_observed(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                    const exec::Plan& plan, const yard_value_t* args, const yard_value_t* given,
                    uint32_t flags) {
  std::optional<SampledTime> time;
  if (thread.is_timed()) time.emplace(thread);
  char* const error = thread.message();
  Observation observation(entry);
  const int32_t code = run_direct(error, core, plan, given, entry.program().arg_count(), flags);
  if (code == YARD_OK) {
    if (time) time->add_to(plan.series);
    observation.report(plan, args, flags);
    count(thread, plan.counter);
    return {};
  }
  exec::Request asked = request(entry, core, args, given, flags, nullptr);
  observation.prepare(asked);
  exec::Outcome outcome;
  Status s = exec::execute_after_failure(thread, plan, asked, code, error, outcome);
  observation.report(asked, outcome);
  note_outcome(core, entry, asked, outcome);
  return s;
}

Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome,
                   const exec::Failure** opened) {
  Probes probes(entry, plan, request);
  Observation observation(entry);
  observation.prepare(request);
  std::optional<SampledTime> time;
  if (thread.is_timed()) time.emplace(thread);
  Status s = exec::execute(thread, plan, request, outcome);
  if (time) time->add_to(outcome.series);
  observation.report(request, outcome);
  const bool decided = probes.leave(outcome);
  const exec::Failure* const opening = note_outcome(core, entry, request, outcome);
  if (opened != nullptr) *opened = opening;
  if (decided) core.health_changed();
  return s;
}

Status run_tallied(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, const exec::Request& request,
                   const policy::Rollout& rollout, bool in_rollout) {
  policy::RolloutTally& tally = rollout.tally(kind_of(entry, request.args), in_rollout);
  exec::Request asked = request;
  asked.time_checks = true;
  asked.check_always = in_rollout && tally.wants_check();
  exec::Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  const exec::Failure* opened = nullptr;
  Status s = run_watched(thread, core, entry, plan, asked, outcome, &opened);
  if (in_rollout && opened != nullptr)
    rollout.note_opened(opened->attempt->kernel->id, opened->message);
  // A caller's mistake is not due to the rules.
  if (s.error_class() == ErrorClass::kCaller) return s;
  const auto took = static_cast<uint64_t>((std::chrono::steady_clock::now() - start).count());
  tally.add(took - std::min(took, outcome.checking_ns), !outcome.failures.empty());
  if (const bool wrong = outcome.found_wrong(); wrong || outcome.checked) tally.add_check(wrong);
  return s;
}

void tally_unserved(const policy::Rollout& rollout, const Entry& entry, const yard_value_t* args,
                    const Status& why) {
  if (why.error_class() != ErrorClass::kCaller)
    rollout.tally(kind_of(entry, args), true).add_unserved();
}

bool takes_rollout(const policy::Rollout& rollout, const Entry& entry, const Options* options,
                   const ScopeState* scope) {
  const op::Labels& known = entry.candidates().settings().labels;
  const bool said = (options != nullptr && !options->labels.empty()) ||
                    (scope != nullptr && !scope->content.labels.empty());
  if (rollout.rule().labels.empty() || !said) return rollout.takes(known);
  op::Labels all = call_labels(options, scope);  // call and scope over the process
  for (const auto& label : known)
    if (std::none_of(all.begin(), all.end(), [&](const auto& l) { return l.first == label.first; }))
      all.push_back(label);
  return rollout.takes(all);
}

// ---- Plans that are not direct, and what follows a failure ----

[[gnu::noinline]] Status::Rep* after_failure(base::ThreadRecord& thread, const Entry& e,
                                             const Core& core, const exec::Plan& plan,
                                             const Cells& cells, uint32_t flags, int32_t code,
                                             const char* message) {
  return base::or_out_of_memory([&] {
           const WithFacts facts(cells);
           return fall_back(thread, core, e, plan,
                            request(e, core, facts.args(), cells.at, flags, nullptr), code,
                            message);
         })
      .release();
}

// A call of a direct plan that is timed.
static Status::Rep* run_timed(base::ThreadRecord& thread, const Entry& e, const Core& core,
                              const exec::Plan& plan, const Cells& cells, uint32_t flags,
                              bool bound) {
  SampledTime time(thread);
  char* const error = thread.message();
  const int32_t code = run_direct(error, core, plan, cells.at, cells.count, flags);
  if (code != YARD_OK)
    return after_failure(thread, e, core, plan, cells, bound ? bound_flags(e, cells) : flags, code,
                         error);
  time.add_to(plan.series);
  count(thread, plan.counter);
  return nullptr;
}

// A call of a plan that is direct but for its kernel's workspace.
static Status run_with_workspace(base::ThreadRecord& thread, const Entry& e, const Core& core,
                                 const exec::Plan& plan, const Cells& cells, uint32_t flags) {
  const WithFacts facts(cells);
  const registry::Kernel& kernel = *plan.attempts[0].kernel;
  char* const error = thread.message();
  std::optional<SampledTime> time;
  if (thread.is_timed()) time.emplace(thread);
  yard_call_t call;
  start_call(call, error, flags, core.host, plan.self);
  const int32_t code = call_kernel(call, [&]() -> int32_t {
    const int32_t failed = exec::give_workspace(thread, kernel, call, facts.args(), cells.count);
    return failed == YARD_OK ? plan.run(&call, cells.at, cells.count) : failed;
  });
  if (code != YARD_OK)
    return Status::adopt(after_failure(thread, e, core, plan, cells, flags, code, error));
  if (time) time->add_to(plan.series);
  count(thread, plan.counter);
  return {};
}

[[gnu::noinline]] Status::Rep* run_plan(base::ThreadRecord& thread, const Entry& e,
                                        const Core& core, const exec::Plan& plan,
                                        const Cells& cells, uint32_t flags, bool bound) {
  if (plan.direct) return run_timed(thread, e, core, plan, cells, flags, bound);
  if (bound) flags = bound_flags(e, cells);
  const yard_value_t* const given = cells.at;
  return base::or_out_of_memory([&]() -> Status {
           if (plan.only_workspace) return run_with_workspace(thread, e, core, plan, cells, flags);
           const WithFacts facts(cells);
           const yard_value_t* const args = facts.args();
           if (plan.observed) return run_observed(thread, core, e, plan, args, given, flags);
           const auto& watch = e.candidates().settings().watch;
           if (watch.rollout == nullptr)
             return run_watched(thread, core, e, plan,
                                request(e, core, args, given, flags, nullptr));
           if (!takes_rollout(*watch.rollout, e, nullptr, thread.scope_state))
             return run_tallied(thread, core, e, plan,
                                request(e, core, args, given, flags, nullptr), *watch.rollout,
                                false);
           Status why;
           Site* const site = const_cast<Core&>(core).sites.attach(e.name(), kPackedLetters, &why);
           if (site == nullptr)  // the op has just been removed; this call ends as it began
             return run_watched(thread, core, e, plan,
                                request(e, core, args, given, flags, nullptr));
           return call_in_rollout(*site, cells, nullptr, watch.rollout);
         })
      .release();
}

void fill_route(Route& route, const Core& core, const exec::Plan& plan) noexcept {
  route.plan = &plan;
  route.typed = plan.direct ? plan.attempts[0].kernel->d.typed : nullptr;
  route.host = core.host, route.self = plan.self, route.counter = plan.counter;
}

}  // namespace yard::dispatch
