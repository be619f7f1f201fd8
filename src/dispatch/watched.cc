// SPDX-License-Identifier: Apache-2.0
#include "dispatch/watched.h"

#include <optional>

#include "select/health_key.h"

namespace yard::detail {
namespace {

using Clock = std::chrono::steady_clock;

// The half-open kernels of one call: each runs only if its gate lets the call in, which must come out again.
class Probes final : public exec::Door {
 public:
  Probes(const Entry& entry, const exec::Plan& plan, exec::Request& r)
      : entry_(entry), plan_(plan), args_(r.args) {
    if (entry.candidates().half_open()) r.door = this;
  }

  // Only when the kernel is about to run: probes are few, and one that runs nothing is lost.
  bool admits(size_t attempt) override {
    const health::BreakerStatus* breaker =
        entry_.candidates().half_open_breaker(*plan_.attempts[attempt].kernel, args_);
    if (breaker == nullptr) return true;
    if (!breaker->probes->try_enter()) return false;
    entered_[attempt] = breaker->probes.get();
    return true;
  }

  // Whether a probe has decided something.
  bool leave(const exec::Outcome& outcome) noexcept {
    bool decided = false;
    for (uint32_t i = 0; i < plan_.attempt_count; ++i)
      if (entered_[i] != nullptr)
        decided |= std::exchange(entered_[i], nullptr)->leave(result(&plan_.attempts[i], outcome));
    return decided;
  }

  ~Probes() override { leave({}); }
  Probes(const Probes&) = delete;
  Probes& operator=(const Probes&) = delete;

 private:
  // A kernel that was not run says nothing.
  static ErrorClass result(const exec::Attempt* a, const exec::Outcome& outcome) noexcept {
    if (outcome.served == a) return ErrorClass::kOk;
    for (const exec::Failure& f : outcome.failures)
      if (f.attempt == a) return f.error;
    return ErrorClass::kDeclined;
  }

  const Entry& entry_;
  const exec::Plan& plan_;
  const yard_value_t* const args_;
  health::ProbeSlots* entered_[exec::Plan::kMaxAttempts] = {};
};

bool speaks_against(ErrorClass c) noexcept {
  return c == ErrorClass::kTransient || c == ErrorClass::kFault || c == ErrorClass::kDeviceLost ||
         c == ErrorClass::kFatal;
}

void set_direct(const Entry& entry, const exec::Plan& plan, bool direct) noexcept {
  if (!plan.simple || plan.direct.load() == direct) return;
  plan.direct.store(direct);
  entry.forget_memos();
}

// What health has to say about the kernels of one call.
class Report {
 public:
  Report(const Core& core, const Entry& entry, const exec::Request& r)
      : core_(core), entry_(entry), r_(r) {}

  void failed(const exec::Failure& f) {
    const health::Key k = key(f.attempt);
    const health::BoardUpdate update = core_.board.fault(k, f.error, f.said, now());
    moved_ |= update.changed;
    if (update.watched) f.attempt->stats->suspects.fetch_or(kind_bit(k));
    // It is open, and hears of nobody but probes.
    if (update.changed) f.attempt->stats->suspects.fetch_and(update.failing | ~kind_bit(k));
  }
  // Of a kernel that has not failed of late nothing is told, nor of kinds of calls that have not.
  void succeeded(const exec::Attempt* a) {
    std::atomic<uint64_t>& suspects = a->stats->suspects;
    if (suspects.load() == 0) return;
    const select::CallKind& k = kind();
    const uint64_t bit = health::kind_bit(k.device, k.dtypes, k.sizes);
    if ((suspects.load() & bit) == 0) return;
    // Before the board is asked: a fault that is told meanwhile is in its answer, or sets its bit again.
    uint64_t others = suspects.fetch_and(~bit) & ~bit;
    const health::BoardUpdate update = core_.board.success(key(a), now());
    moved_ |= update.changed;
    if ((update.failing & bit) != 0) suspects.fetch_or(bit);  // another kind has the same
    // They were closed manually.
    if (update.failing == 0) suspects.compare_exchange_strong(others, 0);
  }
  bool moved() const noexcept { return moved_; }

 private:
  const select::CallKind& kind() {
    if (!kind_)
      kind_ = select::call_kind(entry_.program(), select::health_dims(entry_.program()), r_.args);
    return *kind_;
  }
  health::Key key(const exec::Attempt* a) { return select::health_key(*a->kernel, kind()); }
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
    report.failed(f);
    if (f.attempt == &plan.attempts[0] && speaks_against(f.error)) set_direct(entry, plan, false);
  }
  if (outcome.served != nullptr) report.succeeded(outcome.served);
  if (outcome.served == &plan.attempts[0]) {
    const std::atomic<uint64_t>& suspects = outcome.served->stats->suspects;
    if (suspects.load() == 0) {
      set_direct(entry, plan, true);
      // Another thread's call may have failed in between, and have found the plan not yet direct.
      if (suspects.load() != 0) set_direct(entry, plan, false);
    }
  }
  if (report.moved() || core.board.has_events()) core.health_moved();
}

Status run_watched(base::ThreadRecord& thread, const Core& core, const Entry& entry,
                   const exec::Plan& plan, exec::Request request, exec::Outcome& outcome) {
  Probes probes(entry, plan, request);
  Status s = exec::execute(thread, plan, request, outcome);
  const bool decided = probes.leave(outcome);
  note_outcome(core, entry, plan, request, outcome);
  if (decided) core.health_moved();
  return s;
}

}  // namespace yard::detail
