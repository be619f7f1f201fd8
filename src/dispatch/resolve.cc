// SPDX-License-Identifier: Apache-2.0
// Every call that is not a plain hit: calls with options, traced calls, calls without a plan, and calls of an op that was
// removed or replaced.
#include <fmt/format.h>

#include "base/results.h"
#include "base/stopwatch.h"
#include "dispatch/call.h"
#include "dispatch/run.h"
#include "dispatch/trace.h"

namespace yard::dispatch {

namespace {

// One call. run() takes the steps of run.h; where one finds nothing, it makes what is missing and takes them again.
class ResolvedCall {
 public:
  ResolvedCall(Site& site, const Cells& cells, const Options* options,
               std::shared_ptr<const policy::Rollout> rollout = nullptr)
      : core_(*site.core),
        site_(site),
        cells_(cells),
        given_(cells.at),
        count_(cells.count),
        o_(options),
        thread_(base::this_thread()),
        scope_(thread_.scope_state),
        rollout_(std::move(rollout)),
        overlay_key_(OverlayKey::make(options, scope_, false, rollout_ != nullptr)) {
    if (scope_ != nullptr) flags_ = scope_->flags;
    if (o_ != nullptr) {
      flags_ |= call_flags(*o_);
      if (o_->result != nullptr) *o_->result = {}, selecting_ = base::Stopwatch::start();
    }
  }

  Status run() {
    if (Status::Rep* const refused = check_depth(thread_, core_, site_.name))
      return Status::adopt(refused);
    if (scope_ != nullptr && !scope_->problem.ok()) return scope_->problem;
    for (;;) {
      Status status;
      if (try_hit(status)) return status;
      if (entry_ == nullptr) {
        if (Status s = find_op_or_make_overlay(); !s) return s;
        continue;
      }
      const std::shared_ptr<const Entry> entry = entry_;
      if (core_.sites.first_need(entry->name(), &entry->candidates().op_record())) continue;
      auto time = base::Stopwatch::start();
      auto plan = select_plan(*entry);
      select_ns_ += time.lap();
      if (!plan.ok()) {
        if (rollout_ != nullptr) tally_unserved(*rollout_, *entry, args_, plan.status());
        return std::move(plan).status();
      }
      selected_ = true;
      if (*plan == nullptr) continue;  // it is stored
      base::Guard guard(thread_);
      guard.move_to(entry.get());
      return execute(*entry, **plan);
    }
  }

 private:
  // Takes the steps. Returns true if the call has ended, with `status`. Otherwise entry_ is the one that lacks a plan, or
  // null if it has been replaced meanwhile, or if the op or the overlay is not there.
  bool try_hit(Status& status) {
    base::Guard guard(thread_);
    const uint32_t index = site_.index.load(std::memory_order_relaxed);
    gone_ = true;
    const Entry* const e =
        find_entry(guard, core_, index, [&](const Snapshot& snapshot, const Entry* global) {
          gone_ = false;
          return overlay_or_global(snapshot, index, *global);
        });
    if (e == nullptr) return entry_ = nullptr, false;
    if (e != entry_.get()) {  // else the call was checked and its key folded before
      status = check(e->program());
      if (!status.ok()) return true;
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

  // Null: it is stored. Not inlined: what it needs of the stack is not held while the kernel runs, whose calls may nest.
  [[gnu::noinline]] Result<exec::Plan::Ptr> select_plan(const Entry& entry) {
    const op::Call call = op::Call::capture(entry.program(), args_, flags_, labels());
    return has_key_ && uses_cache() ? core_.planner.make_plan(entry, key_, call)
                                    : core_.planner.fresh_plan(entry, key_, call);
  }

  const Entry* overlay_or_global(const Snapshot& snapshot, uint32_t index, const Entry& global) {
    const OverlayKey key = key_for(global);
    if (key.hash == 0) return &global;
    if (const Entry* e = snapshot.overlay(index, key)) return e;
    // The table is bounded and may have dropped it again; the one that was made for this call still holds.
    return overlay_ != nullptr && overlay_->generation() == snapshot.generation ? overlay_.get()
                                                                                : nullptr;
  }

  bool uses_cache() const noexcept { return o_ == nullptr || o_->cache; }

  Status check(const op::Program& program) {
    // Before anything is read: arguments beyond those of the schema may not be there.
    if (count_ != program.arg_count()) return program.explain_mismatch(given_, count_);
    if (args_ == nullptr) args_ = facts_.emplace(cells_).args();
    int32_t aliased = check_args(program, args_, count_);
    if (aliased < 0) {
      YARD_RETURN_IF_ERROR(program.explain_mismatch(args_, count_));
      if (!traced()) return null_data(program);
      aliased = program.fits(args_);
    }
    flags_ = (flags_ & ~YARD_CALL_ALIASED) | static_cast<uint32_t>(aliased);
    return {};
  }

  // The error of a call that fits, but has elements without data.
  Status null_data(const op::Program& program) const {
    for (uint32_t i = 0; i < count_; ++i) {
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

  // Outside the guard.
  Status find_op_or_make_overlay() {
    if (gone_) return core_.sites.attach_again(site_);
    const auto s = core_.snapshot();
    const uint32_t index = site_.index.load(std::memory_order_acquire);
    const Entry* global = s->entry(index);
    if (global == nullptr || key_for(*global).hash == 0) return {};
    if (o_ != nullptr) YARD_RETURN_IF_ERROR(check_options(global->candidates().op_record(), *o_));
    const PolicyOverride extra = make_override(o_, scope_, key_for(*global));
    YARD_RETURN_IF_ERROR(check_override(extra, *s->policy->modes));
    overlay_ = core_.planner.overlay(s, index, extra);
    return {};
  }

  Status execute(const Entry& e, const exec::Plan& plan) {
    if (o_ != nullptr && o_->result != nullptr) {
      o_->result->cached = !selected_;
      o_->result->mode = plan.modes[0];
      if (plan.modes[0] == Mode::kProgram)
        o_->result->mode_name = e.candidates().mode().program->name;
      o_->result->select_ns = selecting_.lap();
    }
    if (traced()) return trace(e, plan);
    if (rollout_ == nullptr) thread_.count_down();  // else that was done before
    if (plan.direct && rollout_ == nullptr && (o_ == nullptr || !o_->deadline)) [[likely]]
      return execute_direct(e, plan);
    exec::Request asked = request(e, core_, args_, given_, flags_, o_);
    asked.selected = selected_, asked.select_ns = select_ns_;
    if (rollout_ != nullptr) return run_tallied(thread_, core_, e, plan, asked, *rollout_, true);
    const auto& rollout = e.candidates().settings().watch.rollout;
    if (rollout == nullptr) return run_watched(thread_, core_, e, plan, asked);
    if (takes_rollout(*rollout, e, o_, scope_)) return call_in_rollout(site_, cells_, o_, rollout);
    return run_tallied(thread_, core_, e, plan, asked, *rollout, false);
  }

  Status execute_direct(const Entry& e, const exec::Plan& plan) {
    char* const error = thread_.message();
    std::optional<SampledTime> time;
    if (thread_.is_timed()) time.emplace(thread_);
    const int32_t code = run_direct(error, core_, plan, given_, count_, flags_);
    if (time && code == YARD_OK) time->add_to(plan.series);
    ResultRecord* const record = o_ != nullptr ? o_->result : nullptr;
    if (record != nullptr) {
      exec::note_kernel(*record, plan.attempts[0].kernel->id);
      record->run_ns = selecting_.lap();
      record->attempts = 1;
    }
    if (code == YARD_OK) [[likely]] {
      count(thread_, plan.counter);
      return {};
    }
    return fall_back(thread_, core_, e, plan, request(e, core_, args_, given_, flags_, o_), code,
                     error);
  }

  // Labels of the call count only where rules or a mode of the program read them.
  OverlayKey key_for(const Entry& global) const {
    if (o_ == nullptr || o_->labels.empty()) return overlay_key_;
    // Rules in rollout may read labels that those in force do not.
    if (rollout_ == nullptr && !by_program_mode() && !global.candidates().reads_labels())
      return overlay_key_;
    return OverlayKey::make(o_, scope_, true, rollout_ != nullptr);
  }
  bool by_program_mode() const noexcept {
    if (!o_->mode_name.empty()) return !parse_mode(o_->mode_name);
    return !o_->mode && scope_ != nullptr && !scope_->content.mode.empty() &&
           !parse_mode(scope_->content.mode);
  }

  bool traced() const noexcept { return scope_ != nullptr && scope_->tracer != nullptr; }

  // Records the call instead of running it. The kernel may refuse, or leave a note.
  Status trace(const Entry& e, const exec::Plan& plan) {
    const registry::Kernel& kernel = *plan.attempts[0].kernel;
    exec::Request asked = request(e, core_, args_, given_, flags_, o_);
    asked.trace = true;
    exec::CallFrame frame(core_.host, flags_, kernel.d.self);
    if (o_ != nullptr && o_->result != nullptr) exec::note_kernel(*o_->result, kernel.id);
    const int32_t code = exec::run_kernel(thread_, kernel, frame, asked);
    frame.error[sizeof frame.error - 1] = '\0';
    if (code != YARD_OK) return exec::kernel_failure(asked.op, kernel, code, frame.error);
    const op::Call call = op::Call::capture(e.program(), args_, flags_, labels());
    scope_->tracer->add(e.program(), args_, op::to_string(call.to_spec(e.program())), kernel.id,
                        frame.error);
    return {};
  }

  op::Labels labels() const { return call_labels(o_, scope_); }

  Core& core_;
  Site& site_;
  const Cells cells_;
  const yard_value_t* given_;  // the caller's own
  // With facts. Made when the call first has as many arguments as its op.
  std::optional<WithFacts> facts_;
  const yard_value_t* args_ = nullptr;
  uint32_t count_;
  const Options* o_;
  base::ThreadRecord& thread_;
  const ScopeState* scope_;
  const std::shared_ptr<const policy::Rollout>
      rollout_;  // whose rules apply to the call; null: none
  const OverlayKey overlay_key_;
  std::shared_ptr<const Entry> entry_;  // for which the call was checked
  Key key_;                             // in that entry
  bool has_key_ = false;
  std::shared_ptr<const Entry> overlay_;
  uint32_t flags_ = 0;
  bool gone_ = false, selected_ = false;
  int64_t select_ns_ = 0;      // of selections
  base::Stopwatch selecting_;  // runs where there is a record to fill in
};

}  // namespace

Status resolve_call(Site& site, const Cells& cells, const Options* options) {
  return base::or_out_of_memory([&] { return ResolvedCall(site, cells, options).run(); });
}

Status call_in_rollout(Site& site, const Cells& cells, const Options* options,
                       std::shared_ptr<const policy::Rollout> rollout) {
  return ResolvedCall(site, cells, options, std::move(rollout)).run();
}

}  // namespace yard::dispatch
