// SPDX-License-Identifier: Apache-2.0
// Cores, what happens to them in a forked child, and the refusal of calls that nest too deep.
#include "dispatch/core.h"

#include <fmt/format.h>
#include <yard/bound.h>

#include <algorithm>

#include "dispatch/memo.h"

namespace yard::detail {
namespace {

class NoServices final : public dispatch::CoreServices {};
constinit NoServices g_no_services;
std::atomic<uint64_t> g_last_core{0};

}  // namespace

Core::Core(const yard_host_t* h, size_t plans_per_op, bool reads_environment)
    : services_(&g_no_services),
      id(++g_last_core),
      host(h),
      sites(*this),
      planner(*this, plans_per_op),
      published(*this, reads_environment) {
  state_budget->registry = [this] { return snapshot()->state; };
}

void Core::set_services(dispatch::CoreServices* services) noexcept {
  services_.store(services != nullptr ? services : &g_no_services, std::memory_order_release);
}

std::vector<health::Successes> Core::successes() const {
  std::vector<health::Successes> to;
  const auto s = snapshot();
  const auto totals = calls->totals();
  for (const auto& e : s->entries) {
    if (e == nullptr) continue;
    const auto& candidates = e->candidates().all();
    for (size_t i = 0; i < candidates.size(); ++i) {
      const registry::Kernel& k = *candidates[i].kernel;
      const auto now = totals.find({e->name(), k.id});
      to.push_back({e->name(), k.id, k.backend_name,
                    now != totals.end() ? e->stats(i).own(now->second).calls : 0});
    }
  }
  services().add_successes(to);
  return to;
}

exec::States* Core::states_for(const Options* o) const {
  if (o == nullptr || o->instance == nullptr) return &states_;
  return o->instance->states_.get();
}

void Core::add_instance(const std::shared_ptr<exec::States>& states) {
  const std::lock_guard lock(instances_lock_);
  std::erase_if(instances_, [](const auto& i) { return i.expired(); });
  instances_.push_back(states);
}

uint32_t Core::flags_of(const Instance& instance) noexcept {
  return instance.states_->has_weights() ? YARD_CALL_LOADED : 0;
}

void Core::end_states_of_removed_kernels() {
  std::vector<std::shared_ptr<exec::States>> of_instances;
  {
    const std::lock_guard lock(instances_lock_);
    for (const auto& i : instances_)
      if (auto states = i.lock()) of_instances.push_back(std::move(states));
  }
  states_.drop_removed();
  for (const auto& states : of_instances) states->drop_removed();
}

void Core::restart_in_child() {
  dispatch::forget_memos();
  calls->restart_in_child();
  planner.restart_in_child();
  published.restart_in_child();
}

}  // namespace yard::detail

namespace yard::dispatch {
namespace {

bool is_too_deep(base::ThreadRecord& thread, uint32_t most) {
  if (thread.depth <= ThreadHead::kInlineSlots) thread.nesting.refusing = false;
  return thread.nesting.refusing || thread.depth >= most || base::stack_is_low();
}

// Returns the error of a call that is too deep. `kind` is "op" or "function".
Status refuse(base::ThreadRecord& thread, uint32_t most, const char* kind, std::string_view name) {
  auto& nesting = thread.nesting;
  if (!nesting.refusing) {
    const std::string why =
        base::stack_is_low()
            ? fmt::format("{} '{}': calls nest too deep: the stack of the thread is full after {}",
                          kind, name, thread.depth)
            : fmt::format("{} '{}': calls nest too deep: expected at most {} on a thread", kind,
                          name, most);
    const size_t n = std::min(why.size(), sizeof nesting.why - 1);
    std::memcpy(nesting.why, why.data(), n);
    nesting.why[n] = '\0';
    nesting.refusing = thread.depth > ThreadHead::kInlineSlots;
  }
  nesting.refused_at = thread.depth + 1;
  nesting.refused_from = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return Status(Code::kWouldDeadlock, nesting.why);
}

}  // namespace

Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op) {
  if (is_too_deep(thread, most)) return refuse(thread, most, "op", op).release();
  return thread.reserve_slot() ? nullptr : Status::out_of_memory().release();
}

HazardSlot& nested_slot(ThreadHead& head, uint32_t most, std::string_view group,
                        std::string_view name) {
  auto& thread = static_cast<base::ThreadRecord&>(head);
  if (is_too_deep(thread, most))
    refuse(thread, most, "function", fmt::format("{}/{}", group, name)).or_throw();
  if (!thread.reserve_slot()) throw std::bad_alloc();
  return thread.deep_slot(thread.depth);
}

}  // namespace yard::dispatch
