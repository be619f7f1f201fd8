// SPDX-License-Identifier: Apache-2.0
// Calls without options. docs/life_of_a_call.md walks through this file.
#include "dispatch/call.h"

#include <yard/op.h>

#include "base/results.h"
#include "dispatch/run.h"

namespace yard::dispatch {

[[gnu::always_inline]] inline uint64_t facts_by_form(const TensorView::Form& form, uint64_t address,
                                                     const yard_tensor_t& t) noexcept {
  using Form = TensorView::Form;
  const uint32_t rank = static_cast<uint32_t>(t.ndim), bits = t.dtype.bits;
  if ((form.head & (Form::kInexact | YARD_FACTS_COMPACT)) != YARD_FACTS_COMPACT || rank - 1 > 1 ||
      t.dtype.lanes != 1 || bits < 8) [[unlikely]]
    return op::facts_of(&t);
  // The second number of a vector's form is its stride, which is 1.
  const uint64_t count = (form.head >> Form::kFirst) * (form.dims & 0xfffff);
  if (count >> 31 != 0) [[unlikely]]
    return op::facts_of(&t);
  return (form.head & ((uint64_t{1} << Form::kFirst) - 1)) | YARD_FACTS_VALID |
         static_cast<uint64_t>(std::countr_zero(address | YARD_MAX_ALIGN))
             << YARD_FACTS_ALIGN_SHIFT |
         ((count * bits + 511) / 512) << YARD_FACTS_SPAN_SHIFT;
}

[[gnu::always_inline]] inline const yard_tensor_t* WithFacts::add(const yard_tensor_t* t,
                                                                  bool view) {
  if (t == nullptr) return nullptr;
  yard_tensor_t& to = used_ < YARD_MAX_ARGS ? tensors_[used_++] : more().tensors.emplace_back();
  to = *t;
  const auto address = reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
  to.facts = view ? facts_by_form(TensorView::of(*t).form(), address, *t) : op::facts_of(t);
  return &to;
}

WithFacts::WithFacts(const Cells& cells, const yard_value_t* known)
    : args_(known != nullptr ? known : cells.at) {
  if (known != nullptr) return;
  if (cells.count > YARD_MAX_ARGS) return;  // the call is refused, because no op takes this many
  args_ = values_;
  for (uint32_t i = 0; i < cells.count; ++i) {
    const yard_value_t& v = values_[i] = cells.at[i];
    if (v.tag == YARD_TAG_TENSOR) [[likely]]
      values_[i].u.tensor = add(v.u.tensor, (cells.views >> i & 1) != 0);
    else if (v.tag == YARD_TAG_LIST && v.u.list != nullptr)
      add_list(values_[i]);
  }
}

void WithFacts::add_list(yard_value_t& v) {
  const bool fits = v.count <= YARD_MAX_ARGS - listed_;
  const yard_tensor_t** const items =
      fits ? items_ + listed_ : more().lists.emplace_back(v.count).data();
  for (uint32_t k = 0; k < v.count; ++k) items[k] = add(v.u.list[k], false);
  if (fits) listed_ += v.count;
  v.u.list = items;
}

namespace {

struct FormFacts {
  yard_value_t args[YARD_MAX_ARGS];
  yard_tensor_t tensors[CallForm::kMostCells];

  FormFacts(const Cells& cells, const CallForm& form) noexcept {
    for (uint32_t i = 0; i < cells.count; ++i) {
      args[i] = cells.at[i];
      asm("");  // keeps g++ from copying by `rep movs`, which takes longer
    }
    yard_tensor_t* to = tensors;
    for (const CallForm::Tensor *t = form.tensor, *end = t + form.count(); t != end; ++t) {
      if (t->cell == nullptr) continue;
      *to = *t->cell->u.tensor;
      to->facts = facts_by_form(t->form, t->address, *to);
      args[t->cell - cells.at].u.tensor = to++;
    }
  }
  // A tensor lacks facts if a packed site got other parameters while the form was read.
  bool are_complete(const Cells& cells) const noexcept {
    for (uint32_t i = 0; i < cells.count; ++i)
      if (args[i].tag == YARD_TAG_TENSOR && args[i].u.tensor == cells.at[i].u.tensor) return false;
    return true;
  }
};

// Returns the plan of a call, or null if the call does not fit its schema or its plan is not known.
// Adds YARD_CALL_ALIASED to `flags`. Not inlined, because the caller's frame lives while the kernel
// runs, and calls may nest. Flattening saves a tenth of the instructions.
[[gnu::noinline, gnu::flatten]] const exec::Plan* find_plan(const Entry& entry, const Site& site,
                                                            const Cells& cells,
                                                            const CallForm& form, uint32_t& flags) {
  const op::Program& program = entry.program();
  if (cells.count != program.arg_count()) return nullptr;
  const FormFacts facts(cells, form);
  if (!site.typed && !(facts.are_complete(cells) && program.tags_fit(facts.args, cells.count)))
    return nullptr;
  const int32_t aliased = program.fits_live(facts.args);
  if (aliased < 0) return nullptr;
  flags |= static_cast<uint32_t>(aliased);
  Key key;
  return entry.recipe().fold(facts.args, flags, key) ? entry.find(key) : nullptr;
}

// Serves a call without a memo, and makes a memo if its form was seen before. Returns false if the
// plan is not known, or if the scope traces or is invalid. Faster without kInScope.
template <bool kInScope, class F>
bool serve_by_key(base::ThreadRecord& thread, Site& site, const Cells& cells, const CallForm& form,
                  uint32_t flags, const F& serve, Status::Rep*& failed) {
  const Core& core = *site.core;
  const ScopeState* const scope = kInScope ? thread.scope_state : nullptr;
  if (scope != nullptr && (scope->tracer != nullptr || !scope->problem.ok())) return false;
  const bool is_overlay = scope != nullptr && scope->policy_id != 0;
  const uint32_t index = site.index.load(std::memory_order_relaxed);
  base::Guard guard(thread);
  const MemoVersion& version =
      is_overlay ? core.published.overlays_version : core.published.version(index);
  const uint64_t found = version.read();  // before reading the snapshot
  if (scope != nullptr) flags |= scope->flags;
  const Snapshot& snapshot = *guard.protect(core.published.current);
  const Entry* const entry = is_overlay
                                 ? snapshot.overlay(index, OverlayKey::make(nullptr, scope, false))
                                 : snapshot.entry(index);
  if (entry == nullptr) return false;
  guard.move_to_after_reading(entry);
  const exec::Plan* const plan = find_plan(*entry, site, cells, form, flags);
  if (plan == nullptr) return false;
  plan->note_use();
  if ((thread.memos != &kNoMemos || make_memos(thread)) && thread.memos->seen_before(form.hash)) {
    Route route{.version = &version.value(), .found = found, .entry = entry, .flags = flags};
    fill_route(route, core, *plan);
    remember(thread, site, form, route, cells);
  }
  failed = serve(thread, site, cells, *entry, *plan, counter(thread, plan->counter), flags);
  return true;
}

// Not inlined, because calls outside of scopes do not need its stack.
template <class F>
[[gnu::noinline]] bool serve_in_scope(base::ThreadRecord& thread, Site& site, const Cells& cells,
                                      const CallForm& form, uint32_t flags, const F& serve,
                                      Status::Rep*& failed) {
  return serve_by_key<true>(thread, site, cells, form, flags, serve, failed);
}

// Finds the plan of a call by its memo or its key, and sets `failed` to the result of serve(thread,
// site, cells, entry, plan, calls, flags). `added` are the flags of its options. Returns false
// without a known plan.
template <class F>
[[gnu::always_inline]] inline bool serve_known(Site& site, const Cells& cells, uint32_t added,
                                               const F& serve, Status::Rep*& failed) {
  // Deeper calls use no memos, because a form would take 700 bytes of stack at each level.
  ThreadHead* const head = t_thread;
  if (head == nullptr || head->depth >= ThreadHead::kInlineSlots) [[unlikely]]
    return false;
  auto& thread = static_cast<base::ThreadRecord&>(*head);
  CallForm form;
  if (!form.read(thread, site, cells, added)) [[unlikely]]
    return false;
  if (const CallMemo* const m = find(thread, site, form, cells)) [[likely]] {
    if (thread.depth >= ThreadHead::kInlineSlots) __builtin_unreachable();  // saves 3 instructions
    base::Guard guard(thread);
    guard.move_to(m->route.entry);
    if (m->route.is_current()) [[likely]] {
      failed = serve(thread, site, cells, *static_cast<const Entry*>(m->route.entry),
                     *static_cast<const exec::Plan*>(m->route.plan), *m->calls, m->route.flags);
      return true;
    }
  }
  return thread.scope_state == nullptr
             ? serve_by_key<false>(thread, site, cells, form, added, serve, failed)
             : serve_in_scope(thread, site, cells, form, added, serve, failed);
}

}  // namespace

Status::Rep* call(Site* site, const Cells& cells) {
  // The lambda captures nothing, because captures would be stored for every call.
  const auto serve =
      [](auto& thread, Site& of, const Cells& args, const Entry& entry, const exec::Plan& plan,
         ThreadHead::Value& calls, uint32_t flags) __attribute__((always_inline)) {
    if (thread.depth > ThreadHead::kInlineSlots) __builtin_unreachable();  // see serve_known()
    return run_hit(thread, of, entry, plan, calls, args, flags);
  };
  Status::Rep* failed;
  if (serve_known(*site, cells, 0, serve, failed)) [[likely]]
    return failed;
  return resolve_call(*site, cells, nullptr).release();
}

// Returns true if the options ask for no more than a result record, flags and an instance.
static bool are_simple(const Options& o) noexcept {
  return o.cache && !o.policy && !o.mode && !o.deadline && o.force.empty() && o.mode_name.empty() &&
         o.deny.empty() && o.labels.empty();
}

Status call_with_options(Site& site, const Cells& cells, const Options& options) {
  if (!are_simple(options)) return resolve_call(site, cells, &options);
  const uint32_t added = call_flags(&options, nullptr);
  if (options.result == nullptr && options.instance == nullptr && added == 0)
    return Status::adopt(call(&site, cells));
  const int64_t start = options.result != nullptr ? begin_record(*options.result) : 0;
  const auto serve = [&](auto& thread, Site&, const Cells&, const Entry& entry,
                         const exec::Plan& plan, ThreadHead::Value&, uint32_t flags) {
    PlannedCall planned{thread, site, entry, plan, cells, flags};
    planned.options = &options;
    if (options.result != nullptr) planned.started = note_plan(*options.result, entry, plan, start);
    thread.count_down();
    return run_plan(planned);
  };
  Status::Rep* failed;
  if (serve_known(site, cells, added, serve, failed)) [[likely]]
    return Status::adopt(failed);
  return resolve_call(site, cells, &options);
}

uint32_t call_flags(const Options* o, const ScopeState* scope) noexcept {
  const uint32_t flags = scope != nullptr ? scope->flags : 0;
  if (o == nullptr) return flags;
  return flags | (o->deterministic ? YARD_CALL_DETERMINISTIC : 0) |
         (o->capturing ? YARD_CALL_CAPTURING : 0) | (o->inference ? YARD_CALL_INFERENCE : 0) |
         (o->instance != nullptr ? Core::flags_of(*o->instance) : 0);
}

op::Labels call_labels(const Options* o, const ScopeState* scope) {
  const decltype(Options::labels) none;
  return labels_over(o != nullptr ? o->labels : none,
                     scope != nullptr ? scope->content.labels : none);
}

}  // namespace yard::dispatch

namespace yard::detail {

using namespace dispatch;

// Returns the tag of a cell by the letter of its parameter (yard/detail/params.h).
static uint32_t tag_of(char letter, bool given) noexcept {
  constexpr std::string_view kTensors = "rwmRWM";
  if (kTensors.find(letter) != kTensors.npos) return given ? YARD_TAG_TENSOR : YARD_TAG_NONE;
  return letter == 'b' ? YARD_TAG_BOOL : letter == 'f' ? YARD_TAG_FLOAT : YARD_TAG_INT;
}

Status::Rep* dispatch(Site* site, const yard_value_t* args) {
  return call(site, cells_of(*site, args));
}

Status::Rep* run_route(Site* site, const Route& route, const yard_value_t* args) {
  base::ThreadRecord& thread = base::this_thread();
  return run_hit(thread, *site, *static_cast<const Entry*>(route.entry),
                 *static_cast<const exec::Plan*>(route.plan), counter(thread, route.counter),
                 cells_of(*site, args), route.flags);
}

Status::Rep* after_kernel(Kept& kept, const uint64_t* args, const HazardSlot& entry,
                          ThreadHead::Value& calls, int32_t code) {
  if (kept.call.host_data != nullptr) free_call_scratch(&kept.call);
  if (code == YARD_OK) {
    count(calls);
    return nullptr;
  }
  yard_value_t cells[YARD_MAX_ARGS];
  for (size_t i = 0; i < kept.site->letters.size(); ++i)
    cells[i] = {
        tag_of(kept.site->letters[i], args[i] != 0), 0, {.i = static_cast<int64_t>(args[i])}};
  base::ThreadRecord& thread = base::this_thread();
  return after_failure(
      {thread, *kept.site, *static_cast<const Entry*>(entry.load(std::memory_order_relaxed)),
       *static_cast<const exec::Plan*>(kept.plan), cells_of(*kept.site, cells), kept.call.flags},
      code, thread.message());
}

Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options) {
  return call_with_options(*site, cells_of(*site, args), options).release();
}

Result<Explanation> explain_site(Site* site, const yard_value_t* args, const Options* options) {
  YARD_ASSIGN_OR_RETURN(const auto found, site->core->sites.find(site->name));
  return explain_call(*site->core, found, cells_of(*site, args),
                      options != nullptr ? *options : Options());
}

}  // namespace yard::detail
