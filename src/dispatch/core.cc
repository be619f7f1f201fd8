// SPDX-License-Identifier: Apache-2.0
// Cores, and what happens to them in a forked child.
#include "dispatch/core.h"

#include <yard/bound.h>

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
