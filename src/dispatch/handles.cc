// SPDX-License-Identifier: Apache-2.0
// Bound and frozen handles.
//
// A bound handle has the route of its call, found in advance, and owns nothing. A call protects the
// route and uses it only if the op's version has not changed, because then the plan's entry was not
// retired before. The entry lists these routes and is not freed while one of them is protected.
#include <fmt/format.h>
#include <yard/bound.h>

#include "base/results.h"
#include "dispatch/call.h"
#include "dispatch/run.h"

namespace yard::detail {

using namespace dispatch;

namespace {

// Returns the checked call to plan for. bind() and freeze() give no scalars, so scalars have their
// defaults. Scalars without a default are 1, which most schemas accept.
Result<op::Call> call_for(const Entry& e, const yard_value_t* args, uint32_t flags) {
  const op::Program& program = e.program();
  std::vector<yard_value_t> values(args, args + program.arg_count());
  for (size_t i = 0; i < values.size(); ++i) {
    const op::Param& p = program.schema().params[i];
    if (p.is_tensor() || values[i].tag != YARD_TAG_NONE) continue;
    values[i] = op::default_value(p);
    if (values[i].tag != YARD_TAG_NONE) continue;
    values[i] = p.kind == op::Kind::kFloat    ? op::scalar(1.0)
                : p.kind == op::Kind::kBool   ? op::scalar(false)
                : p.kind == op::Kind::kString ? op::scalar(std::string_view(""))
                                              : op::scalar(int64_t{p.kind == op::Kind::kInt});
  }
  const WithFacts facts({values.data(), program.arg_count()});
  YARD_RETURN_IF_ERROR(program.explain_mismatch(facts.args(), program.arg_count()));
  return op::Call::capture(program, facts.args(), flags);
}

// Finds the op of a site. Updates the site if the op came back under another index.
Result<FoundOp> op_of(Site& site) {
  auto found = site.core->sites.find(site.name);
  if (found.ok() && found->record->op->index != site.index.load(std::memory_order_acquire))
    YARD_RETURN_IF_ERROR(site.core->sites.attach_again(site));
  return found;
}

Result<std::shared_ptr<const Entry>> entry_in_scope(Core& core, const FoundOp& found,
                                                    const ScopeState* scope) {
  if (scope == nullptr || scope->policy_id == 0) return std::shared_ptr<const Entry>(found.entry());
  YARD_RETURN_IF_ERROR(Status(scope->problem));
  return core.planner.overlay(found.snapshot, *found.entry(), nullptr, scope,
                              OverlayKey::make(nullptr, scope, false));
}

struct HandleRoute : Route {
  HandleRoute() { retired->held_by.reserve(1); }

  Core* core = nullptr;
  std::weak_ptr<const Entry> of;
  // Allocated in advance, because ending a handle must not need memory.
  std::unique_ptr<base::Retired> retired = std::make_unique<base::Retired>();

  ~HandleRoute() {
    if (const auto e = of.lock())
      core->planner.unpin_plan(*e, static_cast<const exec::Plan*>(plan), static_cast<Route*>(this));
  }
};

struct Bound final : BoundState {
  Bound(Site* s, op::Call c) : BoundState(s), call(std::move(c)) {}
  ~Bound() {
    put(nullptr);
    collect_if_due();
  }

  void put(HandleRoute* next) {
    const auto free = [](void* p) { delete static_cast<HandleRoute*>(p); };
    const Route* const old = route.exchange(next, std::memory_order_acq_rel);
    if (old == nullptr) return;
    auto* const made = const_cast<HandleRoute*>(static_cast<const HandleRoute*>(old));
    auto retired = std::move(made->retired);
    retired->object = made, retired->free = free, retired->held_by.push_back(old);
    base::reclaimer().retire(std::move(retired));
  }

  op::Call call;  // has the form that the handle is bound to
};

// Whether calls check that tensors have the form that the handle is bound to.
#if defined(NDEBUG)
constexpr bool kCheckForm = false;
#else
constexpr bool kCheckForm = true;
#endif

Status rebind(Bound& state) {
  Core& core = *state.site->core;
  auto route = std::make_unique<HandleRoute>();
  route->core = &core, route->host = core.host;
  std::shared_ptr<const Entry> entry;
  for (bool same_index = false; !same_index;) {
    const uint32_t index = state.site->index.load(std::memory_order_acquire);
    const MemoVersion& version = core.published.version(index);
    route->version = &version.value(), route->found = version.read();
    YARD_ASSIGN_OR_RETURN(const auto found, op_of(*state.site));
    entry = found.entry();
    same_index = entry->index() == index;
  }
  const Entry& e = *entry;
  route->of = entry, route->entry = &e;
  YARD_RETURN_IF_ERROR(e.program().explain_mismatch(state.call.args(), state.call.count()));
  route->flags = state.call.flags() & YARD_CALL_ALIASED;
  Key key;
  // Without a plan, a call takes the usual path, which runs no kernel if nothing is written.
  if (!e.recipe().reads_scalars() && !e.program().writes_nothing(state.call.args()) &&
      e.recipe().fold(state.call.args(), route->flags, key)) {
    YARD_RETURN_IF_ERROR(core.planner.make_plan(e, key, state.call).status());
    if (const exec::Plan* plan = core.planner.pin_plan(e, key, static_cast<Route*>(route.get()))) {
      fill_route(*route, core, *plan);
      if (kCheckForm) route->typed = nullptr;  // so that the library sees and checks every call
    }
  }
  state.put(route.release());
  return {};
}

bool same_form(const Route& route, const Cells& cells) {
  const auto& e = *static_cast<const Entry*>(route.entry);
  if (!e.program().tags_fit(cells.at, cells.count)) return false;
  const WithFacts facts(cells);
  Key key;
  return e.program().fits(facts.args()) >= 0 && e.recipe().fold(facts.args(), route.flags, key) &&
         Entry::is_for(*static_cast<const exec::Plan*>(route.plan), key);
}

}  // namespace

Result<std::shared_ptr<BoundState>> make_bound(Site* site, const yard_value_t* args) {
  return base::or_out_of_memory([&]() -> Result<std::shared_ptr<BoundState>> {
    YARD_ASSIGN_OR_RETURN(const auto found, op_of(*site));
    YARD_ASSIGN_OR_RETURN(auto call, call_for(*found.entry(), args, 0));
    auto state = std::make_shared<Bound>(site, std::move(call));
    YARD_RETURN_IF_ERROR(rebind(*state));
    return std::shared_ptr<BoundState>(std::move(state));
  });
}

Status::Rep* call_bound(BoundState* handle, const yard_value_t* args) {
  auto& state = *static_cast<Bound*>(handle);
  const Cells cells = cells_of(*state.site, args);
  base::ThreadRecord* const thread = base::try_this_thread();
  if (thread == nullptr) [[unlikely]]
    return Status::out_of_memory().release();
  // A handle is bound under the policy of the process, so a call inside a scope is a plain call.
  if (thread->scope != 0) [[unlikely]]
    return call(state.site, cells);
  if (Status::Rep* const refused = check_depth(*thread, *state.site)) [[unlikely]]
    return refused;
  bool current;
  {
    base::Guard guard(*thread);
    const Route& route = *guard.protect(state.route);
    current = route.is_current();
    if (route.plan != nullptr && current) [[likely]] {
      if (kCheckForm && !same_form(route, cells))
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: a bound handle was called on tensors of another form",
                                  state.site->name))
            .release();
      return run_hit(*thread, *state.site, *static_cast<const Entry*>(route.entry),
                     *static_cast<const exec::Plan*>(route.plan), counter(*thread, route.counter),
                     cells, route.flags, true);
    }
  }
  if (!current)
    if (Status s = base::or_out_of_memory([&] { return rebind(state); }); !s) return s.release();
  return call(state.site, cells);
}

static std::string kernel_in_scope(const Bound& state, const ScopeState& scope) {
  const auto found = op_of(*state.site);
  if (!found.ok()) return {};
  const auto entry = entry_in_scope(*state.site->core, *found, &scope);
  const op::Call& call = state.call;
  if (!entry.ok() || (*entry)->recipe().reads_scalars() ||
      (*entry)->program().writes_nothing(call.args()) ||
      !(*entry)->program().explain_mismatch(call.args(), call.count()).ok())
    return {};
  const select::CandidateSet& candidates = (*entry)->candidates();
  const auto order =
      select::select(candidates, call.args(), call.count(), call.flags() | scope.flags);
  return order.empty() ? std::string() : candidates.all()[order[0]].kernel->id;
}

std::string bound_kernel(BoundState* handle) {
  auto& state = *static_cast<Bound*>(handle);
  if (const ScopeState* const scope = base::this_thread().scope_state; scope != nullptr)
    return kernel_in_scope(state, *scope);
  for (;;) {
    {
      base::Guard guard(base::this_thread());
      const Route& route = *guard.protect(state.route);
      if (route.is_current())
        return route.plan != nullptr
                   ? static_cast<const exec::Plan*>(route.plan)->attempts[0].kernel->id
                   : std::string();
    }
    if (!rebind(state).ok()) return {};
  }
}

Status::Rep* after_bound(BoundState* handle, const Route& route, yard_call_t& call,
                         const yard_value_t* args, int32_t code) {
  if (call.host_data != nullptr) free_call_scratch(&call);
  base::ThreadRecord& thread = base::this_thread();
  if (code == YARD_OK) {
    count(thread, route.counter);
    return nullptr;
  }
  const auto& state = *static_cast<const Bound*>(handle);
  return after_failure(
      {thread, *state.site, *static_cast<const Entry*>(route.entry),
       *static_cast<const exec::Plan*>(route.plan), cells_of(*state.site, args), route.flags, true},
      code, thread.message());
}

static Result<FrozenKernel> find_frozen(Site* site, const yard_value_t* args) {
  Core& core = *site->core;
  YARD_ASSIGN_OR_RETURN(const auto found, op_of(*site));
  // Select in the thread's scope, as a call would.
  const ScopeState* const scope = base::this_thread().scope_state;
  YARD_ASSIGN_OR_RETURN(const auto entry, entry_in_scope(core, found, scope));
  YARD_ASSIGN_OR_RETURN(const auto call, call_for(*entry, args, call_flags(nullptr, scope)));
  if (entry->program().writes_nothing(call.args())) return FrozenKernel();
  const auto& candidates = entry->candidates();
  const auto order = select::select(candidates, call.args(), call.count(), call.flags());
  if (order.empty()) return core.planner.fresh_plan(*entry, Key{}, call).status();  // explains why
  const std::shared_ptr<const registry::Kernel>& kernel = candidates.all()[order[0]].kernel;
  const bool mapped = kernel->map != nullptr && (!kernel->map->in_order || order.transforms);
  const bool direct = kernel->d.workspace == nullptr && kernel->d.create == nullptr && !mapped;
  return FrozenKernel{.typed = direct ? kernel->d.typed : nullptr,
                      .host = core.host,
                      .self = kernel->d.self,
                      .flags = call.flags(),
                      .pin = std::const_pointer_cast<registry::Kernel>(kernel),
                      .site = site,
                      .id = kernel->id};
}

Result<FrozenKernel> make_frozen(Site* site, const yard_value_t* args) {
  return base::or_out_of_memory([&] { return find_frozen(site, args); });
}

// If a nested call was refused and that made the kernel fail, returns the refusal.
static Status::Rep* failure_of(const FrozenKernel& frozen, int32_t code, const char* message,
                               bool guarded) {
  const auto& kernel = *static_cast<const registry::Kernel*>(frozen.pin.get());
  const auto status = [&] {
    base::ThreadRecord& thread = base::this_thread();
    return thread.failed_by_refusal(guarded)
               ? Status(Code::kWouldDeadlock, thread.nesting.why)
               : exec::kernel_failure(kernel.op.c_str(), kernel, code, message);
  };
  return base::or_out_of_memory(status).release();
}

Status::Rep* call_frozen(const FrozenKernel& frozen, const yard_value_t* args, uint32_t n) {
  if (frozen.pin == nullptr) return nullptr;  // the call writes nothing
  const auto& kernel = *static_cast<const registry::Kernel*>(frozen.pin.get());
  const Core& core = *frozen.site->core;
  base::ThreadRecord* const thread = base::try_this_thread();
  if (thread == nullptr) return Status::out_of_memory().release();
  if (thread->depth >= ThreadHead::kInlineSlots || base::stack_is_low())
    if (Status::Rep* const refused =
            refuse_if_too_deep(*thread, core.max_call_depth, frozen.site->name))
      return refused;
  // Inside a kernel, this is a nested call with its own workspace.
  base::Guard guard(*thread);
  exec::CallFrame frame(frozen.host, frozen.flags, frozen.self);
  exec::Request request{};
  request.args = args, request.count = n;
  std::shared_ptr<const op::Program> program;
  if (kernel.d.create != nullptr)
    if (const auto s = core.snapshot(); const auto* record = s->state->find(kernel.op)) {
      program = record->op->program;
      request.program = program.get(), request.states = core.states_for(nullptr);
    }
  const int32_t code = exec::run_kernel(*thread, kernel, frame, request);
  return code == YARD_OK ? nullptr : failure_of(frozen, code, frame.error, true);
}

Status::Rep* frozen_failed(const FrozenKernel& frozen, int32_t code, const char* message) {
  return failure_of(frozen, code, message, false);
}

}  // namespace yard::detail
