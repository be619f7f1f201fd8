// SPDX-License-Identifier: Apache-2.0
#include "dispatch/watched.h"

#include <optional>

#include "select/health_key.h"

namespace yard::detail {
namespace {

using Clock = std::chrono::steady_clock;

// The half-open kernels of one call: each runs only if its gate lets the call in, which must come out again.
class Trials {
 public:
  Trials(const Entry& entry, const exec::Plan& plan, exec::Request& r) : plan_(plan) {
    if (!entry.contest().on_trial()) return;
    uint32_t left = plan.attempt_count;
    for (uint32_t i = 0; i < plan.attempt_count; ++i) {
      const health::Held* held = entry.contest().trial(*plan.attempts[i].kernel, r.args);
      if (held == nullptr) continue;
      // One that is refused is skipped, unless nobody else is left to run the call.
      if (held->gate->try_enter())
        entered_[i] = held->gate.get();
      else if (left > 1)
        r.skip |= 1u << i, --left;
    }
  }

  // Whether a trial has decided something.
  bool leave(const exec::Outcome& outcome) noexcept {
    bool decided = false;
    for (uint32_t i = 0; i < plan_.attempt_count; ++i)
      if (entered_[i] != nullptr)
        decided |= std::exchange(entered_[i], nullptr)->leave(result(&plan_.attempts[i], outcome));
    return decided;
  }

  ~Trials() { leave({}); }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

 private:
  // A kernel that was not run says nothing.
  static ErrorClass result(const exec::Attempt* a, const exec::Outcome& outcome) noexcept {
    if (outcome.served == a) return ErrorClass::kOk;
    for (const exec::Failure& f : outcome.failures)
      if (f.attempt == a) return f.why.error_class();
    return ErrorClass::kDeclined;
  }

  const exec::Plan& plan_;
  health::Gate* entered_[exec::Plan::kMaxAttempts] = {};
};

bool speaks_against(ErrorClass c) noexcept {
  return c == ErrorClass::kTransient || c == ErrorClass::kFault || c == ErrorClass::kDeviceLost ||
         c == ErrorClass::kFatal;
}

void set_direct(const Entry& entry, const exec::Plan& plan, bool direct) noexcept {
  if (!plan.simple || plan.direct.load(std::memory_order_relaxed) == direct) return;
  plan.direct.store(direct, std::memory_order_relaxed);
  entry.forget_memos();
}

// What health has to say about the kernels of one call.
class Report {
 public:
  Report(const Core& core, const Entry& entry, const exec::Request& r)
      : core_(core), entry_(entry), r_(r) {}

  void failed(const exec::Failure& f) {
    ErrorClass c = f.why.error_class();
    const health::Key k = key(f.attempt);
    // The host runs this very code, so it cannot be lost: one kernel must not take all others out.
    if (c == ErrorClass::kDeviceLost && k.device.type == Device{}.type) c = ErrorClass::kFault;
    const health::Told told = core_.board.fault(k, c, f.said, now());
    moved_ |= told.changed;
    if (told.watched) f.attempt->stats->suspect.store(true, std::memory_order_relaxed);
  }
  void succeeded(const exec::Attempt* a) { moved_ |= core_.board.success(key(a), now()).changed; }
  bool moved() const noexcept { return moved_; }

 private:
  health::Key key(const exec::Attempt* a) {
    if (!kind_)
      kind_ = select::call_kind(entry_.program(), select::health_dims(entry_.program()), r_.args);
    return select::health_key(*a->kernel, *kind_);
  }
  Clock::time_point now() {
    if (!now_) now_ = Clock::now();
    return *now_;
  }

  const Core& core_;
  const Entry& entry_;
  const exec::Request& r_;
  std::optional<select::CallKind> kind_;
  std::optional<Clock::time_point> now_;
  bool moved_ = false;
};

}  // namespace

void note_outcome(const Core& core, const Entry& entry, const exec::Plan& plan,
                  const exec::Request& request, const exec::Outcome& outcome) {
  Report report(core, entry, request);
  for (const exec::Failure& f : outcome.failures) {
    if (f.attempt == &plan.attempts[0] && speaks_against(f.why.error_class()))
      set_direct(entry, plan, false);
    report.failed(f);
  }
  if (outcome.served != nullptr && outcome.served->stats->suspect.load(std::memory_order_relaxed)) {
    report.succeeded(outcome.served);
  }
  if (outcome.served == &plan.attempts[0]) set_direct(entry, plan, true);
  if (report.moved() || core.board.has_events()) core.health_moved();
}

Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome) {
  Trials trials(entry, plan, request);
  Status s = exec::execute(thread, plan, request, outcome);
  const bool decided = trials.leave(outcome);
  note_outcome(core, entry, plan, request, outcome);
  if (decided) core.health_moved();
  return s;
}

}  // namespace yard::detail
