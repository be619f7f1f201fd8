// SPDX-License-Identifier: Apache-2.0
// Calls that are not a plain hit: with options, without a plan, of an op that is not there any more, inside a
// commit group, traced.
#include <fmt/format.h>
#include <yard/detail/commit.h>

#include "base/stopwatch.h"
#include "dispatch/call.h"
#include "dispatch/hit.h"
#include "dispatch/tracer.h"
#include "dispatch/watched.h"

namespace yard::detail {

namespace {

// How a commit group knows such calls again, in other processes too: by what its inputs are, without labels,
// outputs, scalars, and where in memory tensors happen to be.
std::string commit_point(const op::Program& program, const yard_value_t* args, uint32_t flags) {
  op::CallSpec spec =
      op::Call::capture(program, args, flags & ~YARD_CALL_ALIASED, {}).to_spec(program);
  std::erase_if(spec.args, [&](const op::SpecArg& a) {
    const int i = program.index_of(a.name);
    if (i < 0) return false;
    const op::Param& p = program.schema().params[static_cast<size_t>(i)];
    return p.is_output() || !p.is_tensor();
  });
  for (op::SpecArg& a : spec.args) {
    if (auto* t = std::get_if<op::TensorSpec>(&a.value.v)) t->align = YARD_MAX_ALIGN;
    if (auto* list = std::get_if<std::vector<op::TensorSpec>>(&a.value.v))
      for (op::TensorSpec& t : *list) t.align = YARD_MAX_ALIGN;
  }
  return op::to_string(spec);
}

// Writes down what a group's first call of a kind chose, before it runs.
class CommitChooser final : public exec::Chooser {
 public:
  CommitChooser(Commit& group, const std::string& point) : group_(group), point_(point) {}

  bool may_change() override { return group_.take_back(point_); }
  void takes(const registry::Kernel& kernel) override { group_.note(point_, kernel.id); }

 private:
  Commit& group_;
  const std::string& point_;
};

// One call on its way through the slow path.
class SlowCall {
 public:
  SlowCall(Core& core, Site& site, const yard_value_t* args, uint32_t count, const Options* options,
           std::shared_ptr<const policy::Rollout> rollout = nullptr)
      : core_(core),
        site_(site),
        given_(args),
        facts_(args, count, site.typed),
        args_(facts_.args()),
        count_(count),
        o_(options),
        thread_(base::this_thread()),
        scope_(thread_.scope_state),
        rollout_(std::move(rollout)),
        key_(overlay_key(options, scope_, false, rollout_ != nullptr)) {
    if (scope_ != nullptr) flags_ = scope_->flags;
    if (o_ != nullptr) {
      flags_ |= call_flags(*o_);
      if (o_->result != nullptr) *o_->result = {}, selecting_ = base::Stopwatch::start();
    }
  }

  Status run() {
    if (scope_ != nullptr && !scope_->problem.ok()) return scope_->problem;
    for (;;) {
      std::shared_ptr<const Entry> entry;
      Key key;
      {
        base::Guard guard(thread_);
        Status status;
        switch (try_hit(guard, key, status, entry)) {
          case Step::kDone: return status;
          case Step::kAgain: break;
          case Step::kMiss: break;
        }
      }
      if (entry == nullptr) {
        // The entry was replaced under us, or an overlay or an op must be found first.
        if (Status s = prepare(); !s) return s;
        continue;
      }
      if (core_.first_need(entry->name(), &entry->candidates().op_record())) continue;
      const op::Call call = op::Call::capture(entry->program(), args_, flags_, labels());
      const bool use_cache = keyed_ && (o_ == nullptr || o_->cache);
      auto plan =
          use_cache ? core_.make_plan(*entry, key, call) : core_.fresh_plan(*entry, key, call);
      if (!plan.ok()) {
        if (rollout_ != nullptr) tally_unserved(*rollout_, *entry, args_, plan.status());
        return std::move(plan).status();
      }
      selected_ = true;
      if (*plan == nullptr) continue;
      base::Guard guard(thread_);
      guard.move_to(entry.get());
      return execute(*entry, **plan);
    }
  }

 private:
  enum class Step { kDone, kAgain, kMiss };

  // Everything up to the plan, and the kernel if there is one. On a miss `entry` is held.
  Step try_hit(base::Guard& guard, Key& key, Status& status, std::shared_ptr<const Entry>& entry) {
    const Snapshot* snapshot = guard.protect(core_.current);
    const uint32_t index = site_.index.load(std::memory_order_relaxed);
    const Entry* e = snapshot->entry(index);
    if (e == nullptr) {
      gone_ = true;
      return Step::kAgain;
    }
    if (const dispatch::OverlayKey key_of_call = key_for(*e); key_of_call.hash != 0) {
      e = snapshot->overlay(index, key_of_call);
      if (e == nullptr) {
        // The table is bounded and may have forgotten it again; what prepare() made still holds.
        if (overlay_ == nullptr || overlay_->generation() != snapshot->generation)
          return Step::kAgain;
        e = overlay_.get();
      }
    }
    guard.move_to_after_reading(e);
    const op::Program& program = e->program();
    status = check(program);
    if (!status.ok()) return Step::kDone;
    keyed_ = e->recipe().fold(args_, flags_, key);
    const bool use_cache = keyed_ && (o_ == nullptr || o_->cache);
    if (const exec::Plan* plan = use_cache ? e->find(key) : nullptr) {
      status = execute(*e, *plan);
      return Step::kDone;
    }
    entry = e->weak_from_this().lock();
    return Step::kMiss;
  }

  Status check(const op::Program& program) {
    const int32_t aliased = program.tags_fit(args_, count_) ? program.fits(args_) : -1;
    if (aliased < 0) return program.explain_mismatch(args_, count_);
    flags_ = (flags_ & ~YARD_CALL_ALIASED) | static_cast<uint32_t>(aliased);
    if (traced() || !program.has_null_data(args_)) return {};
    for (uint32_t i = 0; i < count_; ++i) {
      const yard_value_t& v = args_[i];
      if (v.tag == YARD_TAG_TENSOR && v.u.tensor->data == nullptr &&
          (v.u.tensor->facts >> YARD_FACTS_SPAN_SHIFT) != 0)
        return Status(
            Code::kInvalidArgument,
            fmt::format("{}: argument '{}': expected data for {}, found a null pointer",
                        program.name(), program.schema().params[i].name, op::brief(*v.u.tensor)));
    }
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: a tensor of a list has elements and no data", program.name()));
  }

  // Outside the guard: finds the op again, or makes the overlay.
  Status prepare() {
    if (gone_) {
      gone_ = false;
      return core_.attach_again(site_);
    }
    const auto s = core_.snapshot();
    const uint32_t index = site_.index.load(std::memory_order_acquire);
    const Entry* global = s->entry(index);
    if (global == nullptr || key_for(*global).hash == 0) return {};
    if (o_ != nullptr) YARD_RETURN_IF_ERROR(check_options(global->candidates().op_record(), *o_));
    const PolicyOverride extra = make_override(o_, scope_, key_for(*global));
    YARD_RETURN_IF_ERROR(check_override(extra, *s->policy->modes));
    overlay_ = core_.overlay(s, index, extra);
    return {};
  }

  Status execute(const Entry& e, const exec::Plan& plan) {
    if (o_ != nullptr && o_->result != nullptr) {
      o_->result->cached = !selected_;
      o_->result->mode = plan.mode;
      if (plan.mode == Mode::kProgram)
        o_->result->mode_name = e.candidates().settings().program->name;
      o_->result->select_ns = selecting_.lap();
    }
    if (traced()) return trace(e, plan);
    // Health hears of calls that go well while it suspects the kernel, and a plan may be newer than that.
    if (plan.direct.load(std::memory_order_relaxed) && rollout_ == nullptr &&
        thread_.commit == nullptr && (o_ == nullptr || !o_->deadline) &&
        plan.attempts[0].stats->suspects.load(std::memory_order_relaxed) == 0) [[likely]]
      return run_direct(e, plan);
    // A call in rollout has been seen before it was sent there.
    if (e.candidates().settings().observer != nullptr && rollout_ == nullptr)
      observe(e, args_, flags_, o_);
    exec::Request asked = request(e, core_, args_, given_, flags_, o_);
    if (thread_.commit != nullptr) [[unlikely]]
      return run_committed(*thread_.commit, e, plan, asked);
    if (rollout_ != nullptr) return run_tallied(thread_, core_, e, plan, asked, *rollout_, true);
    const auto& rollout = e.candidates().settings().rollout;
    if (rollout == nullptr) return run_watched(thread_, core_, e, plan, asked);
    if (takes_rollout(*rollout, e, o_, scope_))
      return core_.call_in_rollout(site_, given_, count_, o_, rollout);
    return run_tallied(thread_, core_, e, plan, asked, *rollout, false);
  }

  // Nothing to do before and after but to run the kernel.
  Status run_direct(const Entry& e, const exec::Plan& plan) {
    char* const error = thread_.message();
    yard_call_t call;
    start_call(call, error, flags_, core_.host, plan.self);
    const int32_t code = call_kernel(call, [&] { return plan.run(&call, given_, count_); });
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
    const exec::Request asked = request(e, core_, args_, given_, flags_, o_);
    exec::Outcome outcome;
    Status s = exec::execute_after_failure(thread_, plan, asked, code, error, outcome);
    note_outcome(core_, e, plan, asked, outcome);
    return s;
  }

  // Inside a commit group: what was chosen for such a call runs, or nothing; the first one chooses.
  Status run_committed(Commit& group, const Entry& e, const exec::Plan& plan,
                       exec::Request& asked) {
    const std::string point = commit_point(e.program(), args_, flags_);
    const std::string* const chosen = group.chosen(point);
    if (chosen == nullptr) {
      CommitChooser chooser(group, point);
      asked.chooser = &chooser;
      Status s = run_watched(thread_, core_, e, plan, asked);
      if (!s.ok()) group.take_back(point);  // nobody was chosen
      return s;
    }
    asked.strict = asked.committed = true;
    if (*chosen == plan.attempts[0].kernel->id) return run_watched(thread_, core_, e, plan, asked);
    if (o_ != nullptr && !o_->force.empty())
      return Status(Code::kNoKernel,
                    fmt::format("op '{}': the call forces '{}', and its commit group has chosen "
                                "'{}' for such calls",
                                e.name(), o_->force, *chosen));
    Options forced = o_ != nullptr ? *o_ : Options();
    forced.force = *chosen;
    Status s = core_.call_slow(site_, given_, count_, &forced);
    if (!s.ok() && s.code() != Code::kKernelFailed)
      s.note(fmt::format("'{}' was chosen for such calls by the commit group", *chosen));
    return s;
  }

  // What the call says to this op: its labels count only where rules or a mode of the program read them.
  dispatch::OverlayKey key_for(const Entry& global) const {
    if (o_ == nullptr || o_->labels.empty()) return key_;
    if (!by_program_mode() && !global.candidates().settings().reads_labels()) return key_;
    return overlay_key(o_, scope_, true, rollout_ != nullptr);
  }
  bool by_program_mode() const noexcept {
    if (!o_->mode_name.empty()) return !parse_mode(o_->mode_name);
    return !o_->mode && scope_ != nullptr && !scope_->content.mode.empty() &&
           !parse_mode(scope_->content.mode);
  }

  bool traced() const noexcept { return scope_ != nullptr && scope_->tracer != nullptr; }

  // Writes the call down instead of running it. The kernel may refuse, or leave a note.
  Status trace(const Entry& e, const exec::Plan& plan) {
    const registry::Kernel& kernel = *plan.attempts[0].kernel;
    exec::Request asked = request(e, core_, args_, given_, flags_, o_);
    asked.trace = true;
    exec::Frame frame(core_.host, flags_, kernel.d.self);
    if (o_ != nullptr && o_->result != nullptr)
      std::snprintf(o_->result->kernel, sizeof o_->result->kernel, "%s", kernel.id.c_str());
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
  const yard_value_t* given_;  // the caller's own
  WithFacts facts_;
  const yard_value_t* args_;
  uint32_t count_;
  const Options* o_;
  base::ThreadRecord& thread_;
  const ScopeState* scope_;
  const std::shared_ptr<const policy::Rollout> rollout_;  // the call goes by its rules
  const dispatch::OverlayKey key_;
  std::shared_ptr<const Entry> overlay_;
  uint32_t flags_ = 0;
  bool gone_ = false, keyed_ = false, selected_ = false;
  base::Stopwatch selecting_;  // runs where there is a record to fill in
};

}  // namespace

Status Core::call_slow(Site& site, const yard_value_t* args, uint32_t count,
                       const Options* options) {
  return SlowCall(*this, site, args, count, options).run();
}

Status Core::call_in_rollout(Site& site, const yard_value_t* args, uint32_t count,
                             const Options* options,
                             std::shared_ptr<const policy::Rollout> rollout) {
  return SlowCall(*this, site, args, count, options, std::move(rollout)).run();
}

}  // namespace yard::detail
