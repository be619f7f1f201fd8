// SPDX-License-Identifier: Apache-2.0
// The life of a call. docs/life_of_a_call.md walks through this file.
#include "dispatch/call.h"

#include <fmt/format.h>
#include <yard/op.h>

#include "dispatch/hit.h"
#include "dispatch/recent.h"
#include "dispatch/tracer.h"

namespace yard::detail {

[[gnu::noinline]] Status::Rep* after_failure(base::ThreadRecord& thread, const Entry& e,
                                             const Core& core, const exec::Plan& plan,
                                             const yard_value_t* args, uint32_t flags, int32_t code,
                                             const char* message) {
  return exec::execute_after_failure(thread, plan, request(e, core, args, flags, nullptr), code,
                                     message)
      .release();
}

[[gnu::noinline]] Status::Rep* run_plan(base::ThreadRecord& thread, const Entry& e,
                                        const Core& core, const exec::Plan& plan,
                                        const yard_value_t* args, uint32_t flags) {
  return exec::execute(thread, plan, request(e, core, args, flags, nullptr)).release();
}

namespace {

[[gnu::noinline]] Status::Rep* slow(Site* site, const yard_value_t* args, uint32_t count) {
  return site->core->call_slow(*site, args, count, nullptr).release();
}

// Recipes of more than one word.
[[gnu::noinline]] const exec::Plan* find_long(const Entry& e, const yard_value_t* args,
                                              uint32_t flags) {
  Key key;
  return e.recipe().fold(args, flags, key) ? e.find(key) : nullptr;
}

[[gnu::always_inline]] inline const exec::Plan* find_plan(const Entry& e, const yard_value_t* args,
                                                          uint32_t flags) {
  if (!e.recipe().one_word()) [[unlikely]]
    return find_long(e, args, flags);
  return e.find_one(e.recipe().fold_first(args, flags));
}

// A call without options that is not like the thread's last one. Everything unusual leaves for call_slow,
// which does it all again.
template <bool kTyped>
[[gnu::always_inline]] inline Status::Rep* hit(Site* site, const yard_value_t* args,
                                               uint32_t count) {
  Core& core = *site->core;
  base::ThreadRecord& thread = base::this_thread();
  {
    base::Guard guard(thread);
    const uint64_t overlays = core.overlays_version.load(std::memory_order_acquire);
    const Snapshot* snapshot = guard.protect(core.current);
    const uint32_t index = site->index.load(std::memory_order_relaxed);
    const Entry* entry = snapshot->entry(index);
    uint32_t flags = 0;
    if (thread.scope != 0 && entry != nullptr) [[unlikely]] {
      // A traced call finds none, and so is traced by the slow way.
      entry = snapshot->overlay(index, scope_hash(thread.scope), {});
      flags = thread.scope_state->flags;
    }
    if (entry != nullptr) [[likely]] {
      guard.move_to_after_reading(entry);
      if (kTyped || entry->program().tags_fit(args, count)) [[likely]] {
        const int32_t aliased = entry->program().fits_live(args);
        if (aliased >= 0) [[likely]] {
          flags |= static_cast<uint32_t>(aliased);
          const uint64_t evictions = entry->evictions_before_finding();
          if (const exec::Plan* plan = find_plan(*entry, args, flags)) [[likely]] {
            if (aliased == 0)
              dispatch::remember(dispatch::recent_place(thread, site->id), *site, thread.scope,
                                 {*entry, *plan, flags, evictions, overlays}, args);
            return run_hit(thread, *entry, core, *plan, args, count, flags);
          }
        }
      }
    }
  }
  return slow(site, args, count);
}

[[gnu::noinline]] Status::Rep* packed_hit(Site* site, const yard_value_t* args, uint32_t count) {
  return hit<false>(site, args, count);
}

}  // namespace

Status::Rep* dispatch(Site* site, const yard_value_t* args) {
  return hit<true>(site, args, site->count);
}

Status::Rep* run_recent(Site* site, const Recent& last, const yard_value_t* args) {
  return run_hit(base::this_thread(), *static_cast<const Entry*>(last.entry), *site->core,
                 *static_cast<const exec::Plan*>(last.plan), args, site->count, last.flags);
}

Status::Rep* recent_failed(Site* site, const void* entry, const void* plan,
                           const yard_value_t* args, uint32_t flags, int32_t code) {
  base::ThreadRecord& thread = base::this_thread();
  return after_failure(thread, *static_cast<const Entry*>(entry), *site->core,
                       *static_cast<const exec::Plan*>(plan), args, flags, code, thread.error);
}

// The same short way that typed calls take inline.
Status::Rep* call_packed(Site* site, const yard_value_t* args, uint32_t count) {
  base::ThreadRecord& thread = base::this_thread();
  if (thread.recent != nullptr) [[likely]] {
    const Recent& last = recent(*thread.recent, site->id);
    if (last.is_of(site->id, thread.scope, args, count)) [[likely]] {
      base::Guard guard(thread);
      guard.announce(last.entry);
      if (last.is_current()) [[likely]]
        return run_hit(thread, *static_cast<const Entry*>(last.entry), *site->core,
                       *static_cast<const exec::Plan*>(last.plan), args, count, last.flags);
    }
  }
  return packed_hit(site, args, count);
}

Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options) {
  return site->core->call_slow(*site, args, site->count, &options).release();
}

Site* attach(Core& core, const char* name, const char* letters, Status* why) {
  return core.attach(name, letters, why);
}

op::Labels call_labels(const Options* o, const ScopeState* scope) {
  std::map<std::string, std::string, std::less<>> all;
  if (o != nullptr) all = o->labels;
  if (scope != nullptr) all.insert(scope->content.labels.begin(), scope->content.labels.end());
  return {all.begin(), all.end()};
}

// ---- Whatever is not a plain hit --------------------------------------------------------------

WithFacts::WithFacts(const yard_value_t* args, uint32_t count) : args_(args) {
  const auto lacks = [](const yard_tensor_t* t) { return t != nullptr && t->facts == 0; };
  bool any = false;
  for (uint32_t i = 0; i < count; ++i) {
    if (args[i].tag == YARD_TAG_TENSOR) any |= lacks(args[i].u.tensor);
    if (args[i].tag == YARD_TAG_LIST && args[i].u.list != nullptr)
      for (uint32_t k = 0; k < args[i].count; ++k) any |= lacks(args[i].u.list[k]);
  }
  if (!any) return;
  values_.assign(args, args + count);
  for (yard_value_t& v : values_) {
    if (v.tag == YARD_TAG_TENSOR) v.u.tensor = mend(v.u.tensor);
    if (v.tag == YARD_TAG_LIST && v.u.list != nullptr) {
      auto& list = lists_.emplace_back();
      for (uint32_t k = 0; k < v.count; ++k) list.push_back(mend(v.u.list[k]));
      v.u.list = list.data();
    }
  }
  args_ = values_.data();
}

const yard_tensor_t* WithFacts::mend(const yard_tensor_t* t) {
  if (t == nullptr || t->facts != 0) return t;
  auto& copy = tensors_.emplace_back(std::make_unique<yard_tensor_t>(*t));
  copy->facts = yard_facts(copy.get());
  return copy.get();
}

namespace {

// One call on its way through the slow path.
class SlowCall {
 public:
  SlowCall(Core& core, Site& site, const yard_value_t* args, uint32_t count, const Options* options)
      : core_(core),
        site_(site),
        facts_(args, count),
        args_(facts_.args()),
        count_(count),
        o_(options),
        thread_(base::this_thread()),
        scope_(thread_.scope_state),
        patch_(make_patch(options, scope_)) {
    if (scope_ != nullptr) flags_ = scope_->flags;
    if (o_ != nullptr) {
      flags_ |= call_flags(*o_);
      if (o_->result != nullptr) *o_->result = {}, start_ = std::chrono::steady_clock::now();
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
      if (core_.first_need(entry->name(), &entry->contest().family())) continue;
      const op::Call call = op::Call::capture(entry->program(), args_, flags_, labels());
      const bool use_cache = keyed_ && (o_ == nullptr || o_->cache);
      auto plan =
          use_cache ? core_.make_plan(*entry, key, call) : core_.fresh_plan(*entry, key, call);
      if (!plan.ok()) return std::move(plan).status();
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
    const uint32_t index = site_.index.load(std::memory_order_acquire);
    const Entry* e = snapshot->entry(index);
    if (e == nullptr) {
      gone_ = true;
      return Step::kAgain;
    }
    if (const Patch& patch = patch_for(*e); patch.hash != 0) {
      e = snapshot->overlay(index, patch.hash, patch.key);
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
    if (o_ != nullptr) {
      status = check_options(e->contest().family(), *o_);
      if (!status.ok()) return Step::kDone;
    }
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
    if (Status s = program.misfit(args_, count_); !s) return s;
    const int32_t aliased = program.fits(args_);
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
      Status why;
      const Site* again = core_.attach(site_.name, site_.letters, &why);
      if (again == nullptr) return why;
      // Only an index that attach() has checked the signature for.
      site_.index.store(again->index.load(std::memory_order_acquire), std::memory_order_release);
      return {};
    }
    const auto s = core_.snapshot();
    const uint32_t index = site_.index.load(std::memory_order_acquire);
    const Entry* global = s->entry(index);
    if (global == nullptr || patch_for(*global).hash == 0) return {};
    if (o_ != nullptr) YARD_RETURN_IF_ERROR(check_options(global->contest().family(), *o_));
    overlay_ = core_.overlay(s, index, patch_for(*global));
    return {};
  }

  Status execute(const Entry& e, const exec::Plan& plan) {
    if (o_ != nullptr && o_->result != nullptr) {
      o_->result->cached = !selected_;
      o_->result->mode = plan.mode;
      o_->result->select_ns = (std::chrono::steady_clock::now() - start_).count();
    }
    if (traced()) return trace(e, plan);
    return exec::execute(thread_, plan, request(e, core_, args_, flags_, o_));
  }

  // What the call says to this op: its labels count only where rules read them.
  const Patch& patch_for(const Entry& global) {
    const select::Directions& d = global.contest().directions();
    if (o_ == nullptr || o_->labels.empty() || d.rules == nullptr || !d.rules->reads_labels())
      return patch_;
    if (!labelled_) labelled_ = make_patch(o_, scope_, true);
    return *labelled_;
  }

  bool traced() const noexcept { return scope_ != nullptr && scope_->tracer != nullptr; }

  // Writes the call down instead of running it. The kernel may refuse, or leave a note.
  Status trace(const Entry& e, const exec::Plan& plan) {
    const registry::Kernel& kernel = *plan.attempts[0].kernel;
    exec::Request asked = request(e, core_, args_, flags_, o_);
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
  WithFacts facts_;
  const yard_value_t* args_;
  uint32_t count_;
  const Options* o_;
  base::ThreadRecord& thread_;
  const ScopeState* scope_;
  Patch patch_;
  std::optional<Patch> labelled_;
  std::shared_ptr<const Entry> overlay_;
  uint32_t flags_ = 0;
  bool gone_ = false, keyed_ = false, selected_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Status Core::call_slow(Site& site, const yard_value_t* args, uint32_t count,
                       const Options* options) {
  return SlowCall(*this, site, args, count, options).run();
}

op::Call scoped_call(const op::Program& program, const yard_value_t* args, const Options& o) {
  const ScopeState* scope = base::this_thread().scope_state;
  const uint32_t flags = call_flags(o) | (scope != nullptr ? scope->flags : 0);
  return op::Call::capture(program, args, flags, call_labels(&o, scope));
}

Result<Explanation> explain_site(Site* site, const yard_value_t* args, const Options& o) {
  auto s = site->core->snapshot();
  const registry::Family* family = s->state->find(site->name);
  if (site->core->first_need(site->name, family)) {
    s = site->core->snapshot();
    family = s->state->find(site->name);
  }
  if (family == nullptr)
    return Status(Code::kUnknownOp, fmt::format("op '{}' is not known any more", site->name));
  const WithFacts facts(args, site->count);
  const op::Program& program = *family->op->program;
  YARD_RETURN_IF_ERROR(program.misfit(facts.args(), site->count));
  const op::Call call = scoped_call(program, facts.args(), o);
  return site->core->explain(*family, call, o, *s);
}

}  // namespace yard::detail
