// SPDX-License-Identifier: Apache-2.0
// Cores, and what happens to them in a forked child.
#include "dispatch/core.h"

#include <fmt/format.h>
#include <yard/bound.h>

#include <algorithm>

#include "base/counters.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/reclaimer.h"
#include "dispatch/memo.h"

namespace yard::dispatch {
namespace {

class NoServices final : public CoreServices {};
constinit NoServices g_no_services;

}  // namespace
}  // namespace yard::dispatch

namespace yard::detail {
namespace {

uint64_t next_core_id() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

Core::Core(const yard_host_t* h, size_t plans_per_op, bool reads_environment)
    : services_(&dispatch::g_no_services),
      states_(this),
      id(next_core_id()),
      host(h),
      sites(*this),
      planner(*this, plans_per_op),
      published(*this, reads_environment) {
  base::watch_forks();
}

void Core::set_services(dispatch::CoreServices* services) noexcept {
  services_.store(services != nullptr ? services : &dispatch::g_no_services,
                  std::memory_order_release);
}

std::vector<health::Successes> Core::successes() const {
  std::vector<health::Successes> to;
  const auto s = snapshot();
  const auto totals = calls->totals();
  for (const auto& e : s->owners()) {
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
  const std::shared_ptr<exec::States>& states = o->instance->states_;
  if (states->first_in_process()) add_instance(states);  // in a forked child, too
  return states.get();
}

void Core::add_instance(const std::shared_ptr<exec::States>& states) const {
  Instances& instances = instances_.get();
  const std::lock_guard lock(instances.lock);
  std::erase_if(instances.all, [](const auto& i) { return i.expired(); });
  instances.all.push_back(states);
}

std::vector<std::shared_ptr<exec::States>> Core::instances() const {
  std::vector<std::shared_ptr<exec::States>> to;
  Instances& instances = instances_.get();
  const std::lock_guard lock(instances.lock);
  for (const auto& i : instances.all)
    if (auto states = i.lock()) to.push_back(std::move(states));
  return to;
}

uint32_t Core::flags_of(const Instance& instance) noexcept {
  return instance.states_->has_weights() ? YARD_CALL_LOADED : 0;
}

void Core::end_states_of_removed_kernels() {
  const auto of_instances = instances();
  states_.drop_removed();
  for (const auto& states : of_instances) states->drop_removed();
}

exec::States::Held Core::held_states() const {
  exec::States::Held to = states_.held();
  for (const auto& states : instances()) {
    const exec::States::Held held = states->held();
    to.states += held.states, to.bytes += held.bytes, to.oldest = std::min(to.oldest, held.oldest);
  }
  return to;
}

void Core::set_most_state_bytes(uint64_t bytes) {
  const uint64_t before = most_bytes_.exchange(bytes, std::memory_order_relaxed);
  if (bytes != before) instances_.get().full = false;
  if (bytes < before) drop_beyond_bound();
}

void Core::drop_beyond_bound() {
  const auto of_instances =
      instances();  // freed, if this was their last owner, after the lock is released
  std::vector<std::shared_ptr<exec::State>> dropped;
  const std::lock_guard lock(instances_.get().dropping);
  for (;;) {
    exec::States::Held all = states_.held();
    exec::States* oldest = &states_;
    for (const auto& states : of_instances) {
      const exec::States::Held held = states->held();
      all.bytes += held.bytes;
      if (held.oldest < all.oldest) all.oldest = held.oldest, oldest = states.get();
    }
    if (all.bytes <= most_bytes()) return;
    auto state = oldest->drop_oldest();
    if (state == nullptr) return;
    if (dropped.empty())
      base::log(LogLevel::kWarn, "dispatch",
                fmt::format("the states of kernels hold more than {} bytes (state_bytes): those "
                            "unused for longest are dropped",
                            most_bytes()));
    dropped.push_back(std::move(state));
  }
}

bool Core::has_room(uint64_t bytes, uint64_t since) {
  uint64_t used = states_.bytes_used_since(since);
  for (const auto& states : instances()) used += states->bytes_used_since(since);
  if (used + bytes <= most_bytes()) return true;
  if (!instances_.get().full.exchange(true))
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("the states that kernels use in turn hold more than {} bytes "
                          "(state_bytes): calls whose states do not fit go to other kernels",
                          most_bytes()));
  return false;
}

void Core::restart_in_child() {
  dispatch::forget_memos();
  calls->restart_in_child();
  planner.restart_in_child();
  instances_.replace();
  published.restart_in_child();
}

}  // namespace yard::detail
