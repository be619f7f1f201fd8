// SPDX-License-Identifier: Apache-2.0
// Bound and frozen handles.
//
// A bound handle remembers, for one generation of the runtime, the entry and the plan of its call. It
// owns neither: a call first holds the handle's node, then the entry, and uses it only if the runtime is
// still at that generation, which proves that the entry was not let go before it was held.
#include <fmt/format.h>
#include <yard/bound.h>

#include "dispatch/call.h"
#include "dispatch/hit.h"
#include "op/bind.h"

namespace yard::detail {

namespace {

struct BoundNode {
  uint64_t generation;
  const Entry* entry;
  const exec::Plan* plan;  // null: look it up each time
  uint32_t flags;
};

// Arguments as bind() and freeze() give them: scalars are absent and take their defaults.
std::vector<yard_value_t> with_defaults(const op::Program& program, const yard_value_t* args) {
  std::vector<yard_value_t> values(args, args + program.arg_count());
  for (size_t i = 0; i < values.size(); ++i) {
    const op::Param& p = program.schema().params[i];
    if (p.is_tensor() || values[i].tag != YARD_TAG_NONE) continue;
    values[i] = op::default_value(p);
    if (values[i].tag != YARD_TAG_NONE) continue;
    switch (p.kind) {
      case op::Kind::kFloat: values[i].tag = YARD_TAG_FLOAT; break;
      case op::Kind::kBool: values[i].tag = YARD_TAG_BOOL; break;
      case op::Kind::kString: values[i].tag = YARD_TAG_STRING, values[i].u.string = ""; break;
      default: values[i].tag = YARD_TAG_INT; break;
    }
  }
  return values;
}

// The call to plan for, checked.
Result<op::Call> representative(const Entry& e, const yard_value_t* args) {
  const auto values = with_defaults(e.program(), args);
  const WithFacts facts(values.data(), static_cast<uint32_t>(values.size()));
  YARD_RETURN_IF_ERROR(e.program().misfit(facts.args(), e.program().arg_count()));
  return op::Call::capture(e.program(), facts.args());
}

Result<std::shared_ptr<const Entry>> entry_of(Site& site) {
  for (;;) {
    const auto s = site.core->snapshot();
    const Entry* e = s->entry(site.index.load(std::memory_order_acquire));
    if (e != nullptr) return std::shared_ptr<const Entry>(e->shared_from_this());
    Status why;
    if (site.core->attach(site.name, site.letters, &why) == nullptr) return why;
    const registry::Family* family = site.core->snapshot()->state->find(site.name);
    if (family != nullptr) site.index.store(family->op->index, std::memory_order_release);
  }
}

}  // namespace

struct BoundState {
  BoundState(Site* s, op::Call c) : site(s), call(std::move(c)) {}
  ~BoundState() { put(nullptr); }

  void put(const BoundNode* next) {
    const BoundNode* old = node.exchange(next, std::memory_order_acq_rel);
    if (old != nullptr)
      base::reclaimer().retire(
          const_cast<BoundNode*>(old), [](void* p) { delete static_cast<BoundNode*>(p); }, old);
  }

  Site* site;
  op::Call call;  // of the form the handle is bound to
  std::atomic<const BoundNode*> node{nullptr};
};

namespace {

// Finds entry and plan for the runtime as it is now.
Status rebind(BoundState& state) {
  Core& core = *state.site->core;
  for (;;) {
    const auto s = core.snapshot();
    auto entry = entry_of(*state.site);
    if (!entry.ok()) return std::move(entry).status();
    const Entry& e = **entry;
    if (s->entry(state.site->index.load(std::memory_order_acquire)) != &e) continue;
    YARD_RETURN_IF_ERROR(e.program().misfit(state.call.args(), state.call.count()));
    auto node = std::make_unique<BoundNode>(
        BoundNode{s->generation, &e, nullptr, state.call.flags() & YARD_CALL_ALIASED});
    Key key;
    if (!e.recipe().reads_scalars() && e.recipe().fold(state.call.args(), node->flags, key)) {
      YARD_RETURN_IF_ERROR(core.make_plan(e, key, state.call));
      node->plan = core.pin_plan(e, key);
    }
    state.put(node.release());
    return {};
  }
}

[[gnu::noinline]] Status::Rep* bound_slow(BoundState& state, const yard_value_t* args) {
  Core& core = *state.site->core;
  bool look_up;
  {
    base::Guard guard(base::this_thread());
    const BoundNode* node = guard.protect(state.node);
    look_up = node->plan == nullptr &&
              node->generation == core.generation.load(std::memory_order_acquire);
  }
  if (look_up) return dispatch(state.site, args);
  if (Status s = rebind(state); !s) return s.release();
  return dispatch(state.site, args);
}

#if !defined(NDEBUG)
// Whether the arguments have the form the handle is bound to.
bool same_form(const Entry& e, const exec::Plan& plan, const yard_value_t* args, uint32_t flags) {
  Key key;
  return e.program().tags_fit(args, e.program().arg_count()) && e.program().fits(args) >= 0 &&
         e.recipe().fold(args, flags, key) && e.find(key) == &plan;
}
#endif

}  // namespace

Result<std::shared_ptr<BoundState>> make_bound(Site* site, const yard_value_t* args) {
  auto entry = entry_of(*site);
  if (!entry.ok()) return std::move(entry).status();
  auto call = representative(**entry, args);
  if (!call.ok()) return std::move(call).status();
  auto state = std::make_shared<BoundState>(site, *std::move(call));
  YARD_RETURN_IF_ERROR(rebind(*state));
  return state;
}

Status::Rep* call_bound(BoundState* state, const yard_value_t* args) {
  Core& core = *state->site->core;
  base::ThreadRecord& thread = base::this_thread();
  {
    base::Guard guard(thread);
    const BoundNode* node = guard.protect(state->node);
    const uint64_t generation = node->generation;
    const Entry* entry = node->entry;
    const exec::Plan* plan = node->plan;
    const uint32_t flags = node->flags;
    if (plan != nullptr) [[likely]] {
      guard.move_to_after_reading(entry);
      if (core.generation.load(base::kReread) == generation) [[likely]] {
#if !defined(NDEBUG)
        if (!same_form(*entry, *plan, args, flags))
          return Status(Code::kInvalidArgument,
                        fmt::format("{}: a bound handle was called on tensors of another form",
                                    entry->name()))
              .release();
#endif
        return run_hit(thread, *entry, core, *plan, args, state->site->count, flags);
      }
    }
  }
  return bound_slow(*state, args);
}

Result<FrozenKernel> make_frozen(Site* site, const yard_value_t* args) {
  Core& core = *site->core;
  auto entry = entry_of(*site);
  if (!entry.ok()) return std::move(entry).status();
  const Entry& e = **entry;
  auto call = representative(e, args);
  if (!call.ok()) return std::move(call).status();
  const auto order = select::select(e.contest(), call->args(), call->count(), call->flags());
  if (order.empty()) {
    Key key{};
    return core.fresh_plan(e, key, *call).status();  // says why
  }
  const std::shared_ptr<const registry::Kernel>& kernel = e.contest().contenders()[order[0]].kernel;
  FrozenKernel frozen;
  frozen.typed = kernel->d.workspace == nullptr ? kernel->d.typed : nullptr;
  frozen.call.size = sizeof frozen.call;
  frozen.call.flags = call->flags();
  frozen.call.host = core.host;
  frozen.call.self = kernel->d.self;
  frozen.pin = std::const_pointer_cast<registry::Kernel>(kernel);
  frozen.id = kernel->id;
  return frozen;
}

Status::Rep* call_frozen(const FrozenKernel& frozen, const yard_value_t* args, uint32_t n) {
  const auto& kernel = *static_cast<const registry::Kernel*>(frozen.pin.get());
  exec::Frame frame(frozen.call.host, frozen.call.flags, frozen.call.self);
  const int32_t code = exec::run_kernel(base::this_thread(), kernel, frame, args, n);
  return code == YARD_OK ? nullptr : frozen_failed(frozen, code, frame.error);
}

Status::Rep* frozen_failed(const FrozenKernel& frozen, int32_t code, const char* message) {
  const auto& kernel = *static_cast<const registry::Kernel*>(frozen.pin.get());
  return exec::kernel_failure(kernel.op.c_str(), kernel, code, message).release();
}

}  // namespace yard::detail
