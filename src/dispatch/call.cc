// SPDX-License-Identifier: Apache-2.0
// Calls without options. docs/life_of_a_call.md walks through this file.
#include "dispatch/call.h"

#include <fmt/format.h>
#include <yard/op.h>

#include "base/results.h"
#include "dispatch/call_steps.h"
#include "dispatch/memo.h"
#include "op/facts.h"

namespace yard::dispatch {

// The facts of a view, whose form holds most of them.
[[gnu::always_inline]] inline uint64_t view_facts(const yard_tensor_t& t) noexcept {
  const TensorView::Form& form = TensorView::of(t).form();
  const auto rank = static_cast<uint32_t>(t.ndim) - 1;
  if (!form.is_exact() || (form.head & YARD_FACTS_COMPACT) == 0 || rank > 1 || t.dtype.lanes != 1)
    return op::facts_of(&t);
  // The second number of a vector is its stride, which is 1.
  const uint64_t count = (form.head >> TensorView::Form::kFirst) * (form.dims & 0xfffff);
  if (count >= uint64_t{1} << 31) return op::facts_of(&t);
  const uint64_t bits = t.dtype.bits < 8 ? 8 : t.dtype.bits;
  const auto at = reinterpret_cast<uintptr_t>(t.data);
  return (form.head & ((uint64_t{1} << TensorView::Form::kFirst) - 1)) | YARD_FACTS_VALID |
         static_cast<uint64_t>(std::countr_zero(at | YARD_MAX_ALIGN)) << YARD_FACTS_ALIGN_SHIFT |
         ((count * bits / 8 + 63) / 64) << YARD_FACTS_SPAN_SHIFT;
}

[[gnu::always_inline]] inline const yard_tensor_t* WithFacts::add(const yard_tensor_t* t,
                                                                  bool view) {
  if (t == nullptr) return nullptr;
  yard_tensor_t& to = used_ < kRoom ? tensors_[used_++] : more_room();
  to = *t;
  to.facts = view ? view_facts(*t) : op::facts_of(t);
  return &to;
}

WithFacts::WithFacts(const yard_value_t* args, uint32_t count, bool views) : args_(args) {
  if (count > YARD_MAX_ARGS) return;  // no op takes so many: the call is refused
  args_ = values_;
  for (uint32_t i = 0; i < count; ++i) {
    values_[i] = args[i];
    if (args[i].tag == YARD_TAG_TENSOR) [[likely]]
      values_[i].u.tensor = add(args[i].u.tensor, views);
    else if (args[i].tag == YARD_TAG_LIST && args[i].u.list != nullptr)
      add_list(values_[i]);
  }
}

void WithFacts::add_list(yard_value_t& v) {
  if (v.count > kRoom - listed_ && more_ == nullptr) more_ = std::make_unique<More>();
  const bool fits = v.count <= kRoom - listed_;
  const yard_tensor_t** const items =
      fits ? items_ + listed_ : more_->lists.emplace_back(v.count).data();
  for (uint32_t k = 0; k < v.count; ++k) items[k] = add(v.u.list[k], false);
  if (fits) listed_ += v.count;
  v.u.list = items;
}

yard_tensor_t& WithFacts::more_room() {
  if (more_ == nullptr) more_ = std::make_unique<More>();
  return more_->tensors.emplace_back();
}

namespace {

[[gnu::noinline]] Status::Rep* slow(Site* site, const yard_value_t* args, uint32_t count) {
  return call_slow(*site, args, count, nullptr).release();
}

// A call without options whose form this thread does not remember. If a step finds nothing, call_slow() takes the same
// steps again and makes what is missing.
template <FormKind kKind>
[[gnu::always_inline]] inline Status::Rep* hit(Site* site, const yard_value_t* args, uint32_t count,
                                               uint64_t hash) {
  Core& core = *site->core;
  base::ThreadRecord* const registered = base::try_this_thread();
  if (registered == nullptr) [[unlikely]]
    return Status::out_of_memory().release();
  base::ThreadRecord& thread = *registered;
  constexpr bool kTyped = kKind == FormKind::kTyped;
  if (Status::Rep* const refused = check_depth(thread, core, site->name)) [[unlikely]]
    return refused;
  {
    base::Guard guard(thread);
    const uint32_t index = site->index.load(std::memory_order_relaxed);
    const bool scoped = thread.scope != 0;
    // Read before what it covers is found.
    const MemoVersion& version =
        scoped ? core.published.overlays_version : core.published.version(index);
    Route route;
    route.version = &version.value(), route.found = version.read();
    const Entry* const entry =
        find_entry(guard, core, index, [&](const Snapshot& snapshot, const Entry* global) {
          if (!scoped) [[likely]]
            return global;
          // Scopes that are traced have no overlay here: call_slow() records their calls.
          const Entry* const overlay =
              snapshot.overlay(index, {.scope = thread.scope, .hash = scope_hash(thread.scope)});
          if (overlay != nullptr) route.flags = thread.scope_state->flags;
          return overlay;
        });
    // Before anything is read: arguments beyond those of the schema may not be there.
    if (entry != nullptr && (kTyped || count == entry->program().arg_count())) [[likely]] {
      const WithFacts facts(args, count, site->typed || kKind == FormKind::kViews);
      const int32_t aliased = check_args(entry->program(), facts.args(), count, kTyped);
      if (aliased >= 0) [[likely]] {
        route.flags |= static_cast<uint32_t>(aliased);
        if (const exec::Plan* plan = find_plan(*entry, facts.args(), route.flags)) [[likely]] {
          if (seen_before(thread, hash)) {
            route.entry = entry;
            fill_route(route, core, *plan, !kTyped);
            remember(thread, *site, hash, kKind, route, args);
          }
          thread.count_down();
          return run_hit(thread, *entry, core, *plan, args, count, route.flags, kKind);
        }
      }
    }
  }
  return slow(site, args, count);
}

template <FormKind kKind>
[[gnu::noinline]] Status::Rep* packed_hit(Site* site, const yard_value_t* args, uint32_t count,
                                          uint64_t hash) {
  try {
    return hit<kKind>(site, args, count, hash);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory().release();
  }
}

// A packed call whose memo is found by its hash, if there is one: at home, or in another place of its set.
template <class T, uint32_t kTensors>
[[gnu::noinline]] Status::Rep* call_by_hash(Site* site, const yard_value_t* args, uint32_t count) {
  ThreadHead* const thread = t_thread;
  uint64_t hash = 0;
  if (thread != nullptr && thread->depth < ThreadHead::kInlineSlots) [[likely]] {
    CallMemos& memos = *thread->memos;
    const uint64_t key = site->id | T::kSite;
    const CallMemo* m = nullptr;
    if constexpr (kTensors > 0) {
      hash = leading_hash<T, kTensors>(*thread, *site, args, count);
      const CallMemo& home = memos.of[CallMemos::home(hash)];
      if (is_of<T, kTensors>(home, key, thread->scope, args, count)) m = &home;
    }
    if (m == nullptr) {
      // A count beyond the op's is refused by hit(); nothing is read of what may not be there.
      if (hash == 0 && count <= site->count.load(std::memory_order_relaxed))
        hash = packed_hash(*thread, *site, args, count);
      m = find_in_set(*thread, key, args, count, hash);
      if (m != nullptr) m = note_hit_away(memos, m);
    }
    Status::Rep* failed;
    if (m != nullptr) {
      if (kTensors > 0) expect(memos, site->id, T::kKind == FormKind::kViews, m);
      if (run_packed<false>(site, *thread, *m, args, count, failed)) return failed;
    }
  }
  return packed_hit<T::kKind>(site, args, count, hash);
}
template <class T>
Status::Rep* call_by_hash(Site* site, const yard_value_t* args, uint32_t count) {
  switch (site->leading.load(std::memory_order_relaxed)) {
    case 1: return call_by_hash<T, 1>(site, args, count);
    case 2: return call_by_hash<T, 2>(site, args, count);
    case 3: return call_by_hash<T, 3>(site, args, count);
    case 4: return call_by_hash<T, 4>(site, args, count);
    default: return call_by_hash<T, 0>(site, args, count);
  }
}

}  // namespace

Status::Rep* call_packed_other_way(Site* site, const yard_value_t* args, uint32_t count) {
  return call_by_hash<PackedTensor>(site, args, count);
}

Status::Rep* call_views_other_way(Site* site, yard_value_t* args, uint32_t count) {
  bool exact = site->leading.load(std::memory_order_relaxed) - 1 < 4;
  for (uint32_t i = 0; i < count; ++i) {
    if (args[i].tag != YARD_TAG_TENSOR) continue;
    exact = exact && args[i].count == 0 && TensorView::of(*args[i].u.tensor).form().is_exact();
    args[i].count = 0;
  }
  return exact ? call_by_hash<ViewTensor>(site, args, count) : call_packed(site, args, count);
}

Status::Rep* after_kernel(Kept& kept, const yard_value_t* args, const HazardSlot& entry,
                          ThreadHead::Value& calls, int32_t code) {
  if (kept.call.host_data != nullptr) free_call_scratch(&kept.call);
  if (code == YARD_OK) {
    count(calls);
    return nullptr;
  }
  base::ThreadRecord& thread = base::this_thread();
  return after_failure(thread, *static_cast<const Entry*>(entry.load(std::memory_order_relaxed)),
                       *kept.site->core, *static_cast<const exec::Plan*>(kept.plan), args,
                       kept.call.flags, code, thread.message());
}

Status::Rep* call_packed(Site* site, const yard_value_t* args, uint32_t count) {
  Status::Rep* failed;
  if (run_if_expected<PackedTensor>(site, args, count, failed)) [[likely]]
    return failed;
  return call_packed_other_way(site, args, count);
}

uint32_t call_flags(const Options& o) noexcept {
  return (o.deterministic ? YARD_CALL_DETERMINISTIC : 0) | (o.capturing ? YARD_CALL_CAPTURING : 0) |
         (o.inference ? YARD_CALL_INFERENCE : 0) |
         (o.instance != nullptr ? Core::flags_of(*o.instance) : 0);
}

op::Labels call_labels(const Options* o, const ScopeState* scope) {
  std::map<std::string, std::string, std::less<>> all;
  if (o != nullptr) all = o->labels;
  if (scope != nullptr) all.insert(scope->content.labels.begin(), scope->content.labels.end());
  return {all.begin(), all.end()};
}

op::Call scoped_call(const op::Program& program, const yard_value_t* args, const Options& o) {
  const ScopeState* scope = base::this_thread().scope_state;
  const uint32_t flags = call_flags(o) | (scope != nullptr ? scope->flags : 0);
  return op::Call::capture(program, args, flags, call_labels(&o, scope));
}

}  // namespace yard::dispatch

// ---- What public headers declare ----

namespace yard::detail {

using namespace dispatch;

Status::Rep* dispatch(Site* site, const yard_value_t* args, uint64_t hash) {
  if (hash != 0) {
    ThreadHead& thread = *t_thread;
    if (const CallMemo* m = find_typed(thread, *site, args, hash)) {
      m = note_hit_away(*thread.memos, m);
      Guard guard(thread);
      guard.announce(m->route.entry);
      if (m->route.is_current()) return run_route(site, m->route, args);
    }
  }
  try {
    return hit<FormKind::kTyped>(site, args, site->count.load(std::memory_order_relaxed), hash);
  } catch (const std::bad_alloc&) {  // for the facts of a long list
    return Status::out_of_memory().release();
  }
}

Status::Rep* run_route(Site* site, const Route& route, const yard_value_t* args) {
  const auto& entry = *static_cast<const Entry*>(route.entry);
  base::ThreadRecord& thread = base::this_thread();
  thread.count_down();  // one that is timed stays so
  return run_hit(thread, entry, *site->core, *static_cast<const exec::Plan*>(route.plan), args,
                 entry.program().arg_count(), route.flags,
                 site->typed ? FormKind::kTyped : FormKind::kPacked);
}

Status::Rep* after_kernel(Kept& kept, const uint64_t* args, const HazardSlot& entry,
                          ThreadHead::Value& calls, int32_t code) {
  yard_value_t cells[YARD_MAX_ARGS];
  for (size_t i = 0; i < kept.site->letters.size(); ++i) {
    const Letter letter(kept.site->letters[i]);
    cells[i] = {letter.tag(args[i] != 0), 0, {.i = static_cast<int64_t>(args[i])}};
  }
  return dispatch::after_kernel(kept, cells, entry, calls, code);
}

Status::Rep* dispatch_packed(Site* site, const yard_value_t* args) {
  return call_packed(site, args, site->count.load(std::memory_order_relaxed));
}

Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options) {
  return call_slow(*site, args, site->count.load(std::memory_order_relaxed), &options).release();
}

Result<Explanation> explain_site(Site* site, const yard_value_t* args, const Options* options) {
  const Options none;
  const Options& o = options != nullptr ? *options : none;
  const Core& core = *site->core;
  const auto found = core.sites.find(site->name);
  if (!found.ok()) return found.status();
  const WithFacts facts(args, site->count.load(std::memory_order_relaxed));
  const op::Program& program = *found->record->op->program;
  YARD_RETURN_IF_ERROR(
      program.explain_mismatch(facts.args(), site->count.load(std::memory_order_relaxed)));
  const op::Call call = scoped_call(program, facts.args(), o);
  return explain_call(core, *found->record, call, o, *found->snapshot);
}

}  // namespace yard::detail
