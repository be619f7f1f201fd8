// SPDX-License-Identifier: Apache-2.0
// The slow path: calls with options, and calls whose plan is not known.
#include <fmt/format.h>

#include "base/results.h"
#include "base/stopwatch.h"
#include "dispatch/call.h"
#include "dispatch/run.h"
#include "dispatch/trace.h"

namespace yard::dispatch {
namespace {

class ResolvedCall {
 public:
  ResolvedCall(Site& site, const Cells& cells, const Options* options,
               std::shared_ptr<const policy::Rollout> rollout)
      : core_(*site.core),
        site_(site),
        cells_(cells),
        o_(options),
        thread_(base::this_thread()),
        scope_(thread_.scope_state),
        rollout_(std::move(rollout)),
        flags_(call_flags(options, scope_)) {
    if (o_ != nullptr || scope_ != nullptr || rollout_ != nullptr)
      overlay_key_ = OverlayKey::make(o_, scope_, false, rollout_ != nullptr);
    if (o_ != nullptr && o_->result != nullptr) start_ = begin_record(*o_->result);
  }

  Status run() {
    if (Status::Rep* const refused = check_depth(thread_, site_)) return Status::adopt(refused);
    if (scope_ != nullptr && !scope_->problem.ok()) return scope_->problem;
    for (;;) {
      Status status;
      if (try_hit(status)) return status;
      if (entry_ == nullptr) {
        if (Status s = find_op_or_make_overlay(); !s) return s;
        continue;
      }
      const Entry& entry = *entry_;
      if (core_.sites.first_need(entry.name(), &entry.candidates().op_record())) continue;
      const int64_t start = base::steady_ns();
      auto plan = select_plan(entry);
      select_ns_ += base::steady_ns() - start;
      if (!plan.ok() && rollout_ != nullptr) tally_unserved(*rollout_, entry, args_, plan.status());
      if (!plan.ok()) return std::move(plan).status();
      selected_ = true;
      if (*plan == nullptr) continue;  // the plan is stored
      base::Guard guard(thread_);
      guard.move_to(&entry);
      return execute(entry, **plan);
    }
  }

 private:
  // Returns true if the call has ended. Otherwise sets entry_, to null if op or overlay is missing.
  bool try_hit(Status& status) {
    base::Guard guard(thread_);
    const uint32_t index = site_.index.load(std::memory_order_relaxed);
    const Snapshot* const snapshot = guard.protect(core_.published.current);
    const Entry* e = snapshot->entry(index);
    if (e != nullptr) e = overlay_or_global(*snapshot, *e);
    if (e == nullptr) return entry_ = nullptr, false;
    guard.move_to_after_reading(e);
    if (e != entry_.get()) {  // otherwise the call has been checked and its key computed
      if (!check(e->program(), status)) return true;
      has_key_ = e->recipe().fold(args_, flags_, key_);
    }
    if (const exec::Plan* plan = has_key_ && uses_cache() ? e->find(key_) : nullptr) {
      if (!selected_) plan->note_use();
      status = execute(*e, *plan);
      return true;
    }
    entry_ = e->weak_from_this().lock();
    return false;
  }

  // Returns null if the plan is stored. Not inlined, to free its stack before the kernel runs.
  [[gnu::noinline]] Result<exec::Plan::Ptr> select_plan(const Entry& entry) {
    const op::Call call = op::Call::capture(entry.program(), args_, flags_, labels());
    return has_key_ && uses_cache() ? core_.planner.make_plan(entry, key_, call)
                                    : core_.planner.fresh_plan(entry, key_, call);
  }

  const Entry* overlay_or_global(const Snapshot& snapshot, const Entry& global) {
    const OverlayKey key = key_for(global);
    if (key.hash == 0) return &global;
    if (const Entry* e = snapshot.overlay(global.index(), key)) return e;
    // The table may have dropped the overlay, but the one made for this call is still valid.
    return overlay_ != nullptr && overlay_->generation() == snapshot.generation ? overlay_.get()
                                                                                : nullptr;
  }

  bool uses_cache() const noexcept { return o_ == nullptr || o_->cache; }

  // Computes facts and flags. Returns false if the call ends, with an error or nothing to write.
  bool check(const op::Program& program, Status& status) {
    // Check the count first, because arguments beyond the caller's array cannot be read.
    if (cells_.count != program.arg_count())
      return status = program.explain_mismatch(cells_.at, cells_.count), false;
    if (args_ == nullptr) args_ = facts_.emplace(cells_).args();
    int32_t aliased = program.tags_fit(args_, cells_.count) ? program.fits_live(args_) : -1;
    if (aliased < 0) [[unlikely]] {
      status = program.explain_mismatch(args_, cells_.count);
      if (status.ok() && !traced() && !program.writes_nothing(args_)) status = null_data(program);
      if (!status.ok() || !traced()) return false;
      aliased = program.fits(args_);
    }
    flags_ = (flags_ & ~YARD_CALL_ALIASED) | static_cast<uint32_t>(aliased);
    return true;
  }

  Status null_data(const op::Program& program) const {
    for (uint32_t i = 0; i < cells_.count; ++i) {
      const yard_value_t& v = args_[i];
      if (v.tag == YARD_TAG_TENSOR && v.u.tensor->data == nullptr &&
          (v.u.tensor->facts >> YARD_FACTS_SPAN_SHIFT) != 0)
        return Status(
            Code::kInvalidArgument,
            fmt::format("{}: invalid argument '{}': expected data for {}, got a null pointer",
                        program.name(), program.schema().params[i].name, op::brief(*v.u.tensor)));
    }
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: a tensor of a list has elements and no data", program.name()));
  }

  Status find_op_or_make_overlay() {
    const auto s = core_.snapshot();
    const Entry* global = s->entry(site_.index.load(std::memory_order_acquire));
    if (global == nullptr) return core_.sites.attach_again(site_);
    const OverlayKey key = key_for(*global);
    if (key.hash == 0) return {};
    YARD_ASSIGN_OR_RETURN(overlay_, core_.planner.overlay(s, *global, o_, scope_, key));
    return {};
  }

  Status execute(const Entry& e, const exec::Plan& plan) {
    int64_t found = 0;
    if (o_ != nullptr && o_->result != nullptr) {
      found = note_plan(*o_->result, e, plan, start_);
      o_->result->cached = !selected_;
    }
    const PlannedCall call{.thread = thread_,
                           .site = site_,
                           .entry = e,
                           .plan = plan,
                           .cells = cells_,
                           .flags = flags_,
                           .args = args_,
                           .options = o_,
                           .rollout = rollout_.get(),
                           .selected = selected_,
                           .select_ns = select_ns_,
                           .started = found};
    if (traced()) return trace(call);
    if (rollout_ == nullptr) thread_.count_down();  // the call that found the rollout has counted
    return dispatch::run(call);
  }

  // Includes the call's labels only if rules or a mode of the program read them.
  OverlayKey key_for(const Entry& global) const {
    if (o_ == nullptr || o_->labels.empty()) return overlay_key_;
    // Rules in rollout may read labels that the rules in force do not.
    if (rollout_ == nullptr && !by_program_mode() && !global.candidates().reads_labels())
      return overlay_key_;
    return OverlayKey::make(o_, scope_, true, rollout_ != nullptr);
  }
  bool by_program_mode() const noexcept {
    const std::string& name = !o_->mode_name.empty() || o_->mode || scope_ == nullptr
                                  ? o_->mode_name
                                  : scope_->content.mode;
    return !name.empty() && !parse_mode(name);
  }

  bool traced() const noexcept { return scope_ != nullptr && scope_->tracer != nullptr; }

  // Records the call instead of running it. The kernel may refuse the call, or leave a note.
  Status trace(const PlannedCall& c) {
    const registry::Kernel& kernel = *c.plan.attempts[0].kernel;
    exec::Request asked = request(c, args_);
    asked.trace = true;
    exec::CallFrame frame(core_.host, flags_, kernel.d.self);
    if (o_ != nullptr && o_->result != nullptr) exec::note_kernel(*o_->result, kernel.id);
    const int32_t code = exec::run_kernel(thread_, kernel, frame, asked);
    frame.error[sizeof frame.error - 1] = '\0';
    if (code != YARD_OK) return exec::kernel_failure(asked.op, kernel, code, frame.error);
    const op::Program& program = c.entry.program();
    const op::Call call = op::Call::capture(program, args_, flags_, labels());
    scope_->tracer->add(program, args_, call.to_spec(program), kernel.id, frame.error);
    return {};
  }

  op::Labels labels() const { return call_labels(o_, scope_); }

  Core& core_;
  Site& site_;
  const Cells cells_;
  // The arguments with facts. Made when the number of arguments is first found correct.
  std::optional<WithFacts> facts_;
  const yard_value_t* args_ = nullptr;
  const Options* const o_;
  base::ThreadRecord& thread_;
  const ScopeState* const scope_;
  const std::shared_ptr<const policy::Rollout> rollout_;  // the rollout whose rules apply, or null
  OverlayKey overlay_key_;
  std::shared_ptr<const Entry> entry_;  // the call was checked for this entry
  Key key_;                             // the key in that entry
  bool has_key_ = false;
  std::shared_ptr<const Entry> overlay_;
  uint32_t flags_;
  bool selected_ = false;
  int64_t select_ns_ = 0;  // time spent in selections
  int64_t start_ = 0;      // when the call started, if there is a record to fill in
};

}  // namespace

Status resolve_call(Site& site, const Cells& cells, const Options* options,
                    std::shared_ptr<const policy::Rollout> rollout) {
  return base::or_out_of_memory(
      [&] { return ResolvedCall(site, cells, options, std::move(rollout)).run(); });
}

}  // namespace yard::dispatch
