// SPDX-License-Identifier: Apache-2.0
#include "provider/hook_chains.h"

#include <algorithm>

#include "base/reclaimer.h"
#include "registry/declarations.h"

namespace yard::provider {
namespace {

bool names(const Activation& a, const std::optional<Device>& device) {
  if (!device || !a.device) return !device && !a.device;
  return a.device->type == device->type &&
         (a.device->index == device->index || a.device->index == -1);
}

void append_others(HookRecords& to, const HookRecords& more) {
  for (const auto& h : more)
    if (std::find(to.begin(), to.end(), h) == to.end()) to.push_back(h);
}

}  // namespace

HookRecords active_for(const HookRecords& providers, const Activations& activations,
                       const std::optional<Device>& device) {
  HookRecords to;
  for (auto a = activations.rbegin(); a != activations.rend(); ++a) {
    if (!names(*a, device)) continue;
    for (const auto& h : providers)
      if (h->backend == a->backend && std::find(to.begin(), to.end(), h) == to.end())
        to.push_back(h);
  }
  std::stable_sort(to.begin(), to.end(),
                   [](const auto& a, const auto& b) { return a->d.priority > b->d.priority; });
  return to;
}

}  // namespace yard::provider

namespace yard::detail {

const HookLink* HookChains::chain(const provider::HookRecords& records) {
  const HookLink* next = nullptr;
  for (auto h = records.rbegin(); h != records.rend(); ++h) {
    auto link = std::make_unique<Link>();
    link->function = (*h)->d.function, link->self = (*h)->d.self, link->next = next;
    link->backend = registry::backend_number((*h)->backend);
    link->takes_next = ((*h)->d.flags & YARD_HOOK_NEXT) != 0;
    link->record = *h;
    next = links_.emplace_back(std::move(link)).get();
  }
  return next;
}

std::unique_ptr<HookChains> HookChains::make(provider::HookRecords providers,
                                             const provider::Activations& activations,
                                             uint64_t table) {
  if (providers.empty()) return nullptr;
  auto to = std::make_unique<HookChains>();
  to->table = table;
  to->providers = std::move(providers);
  const provider::HookRecords process = active_for(to->providers, activations, std::nullopt);
  to->process = to->chain(process);
  for (const provider::Activation& a : activations) {
    const auto known = [&](const OnDevice& d) { return d.device == *a.device; };
    if (!a.device || std::any_of(to->devices.begin(), to->devices.end(), known)) continue;
    provider::HookRecords records = active_for(to->providers, activations, a.device);
    if (records.empty()) continue;
    provider::append_others(records, process);
    to->devices.push_back({*a.device, to->chain(records)});
  }
  for (const auto& h : to->providers) to->alone.push_back(to->chain({h}));
  return to;
}

std::unique_ptr<HookChains> HookChains::make_change(const HookChains* before, HookChains* after,
                                                    std::shared_ptr<const std::atomic<bool>> done) {
  auto to = std::make_unique<HookChains>();
  to->before_ = before, to->after_ = after, to->done_ = std::move(done);
  auto link = std::make_unique<Link>();
  link->self = to.get(), link->takes_next = true;
  to->process = to->links_.emplace_back(std::move(link)).get();
  // Whoever holds the change may use either.
  for (HookChains* c : {const_cast<HookChains*>(before), after})
    if (c != nullptr) c->reached_by_.insert(c->reached_by_.end(), {to.get(), to->process});
  return to;
}

const HookChains* HookChains::now() const noexcept {
  if (done_ == nullptr) return this;
  return done_->load(std::memory_order_acquire) ? after_ : before_;
}

void HookChains::retire(HookChains* chains) {
  const bool goes_on = chains->process != nullptr && chains->process->takes_next;
  for (std::unique_ptr<Link>& link : chains->links_) {
    std::vector<const void*> held_by = chains->reached_by_;
    held_by.insert(held_by.end(), {static_cast<const HookLink*>(link.get()), chains});
    if (goes_on) held_by.push_back(chains->process);
    base::reclaimer().retire(
        link.release(), [](void* p) { delete static_cast<Link*>(p); }, std::move(held_by));
  }
  std::vector<const void*> held_by = chains->reached_by_;
  held_by.push_back(chains);
  if (goes_on) held_by.push_back(chains->process);
  base::reclaimer().retire(
      chains, [](void* p) { delete static_cast<HookChains*>(p); }, std::move(held_by));
}

namespace {

// Whether a frame is one of the table's sets.
bool is_of(const HookFrame& frame, const HookChains& chains) noexcept {
  return frame.backend != 0 && frame.table == chains.table;
}

// Whether one of the frames before `end` brings the backend.
bool brings(const HookPlace& p, const HookFrame* end, uint32_t backend) noexcept {
  for (const HookFrame* f = p.all; f != end; f = f->outer)
    if (f->backend == backend && is_of(*f, *p.chains)) return true;
  return false;
}

const HookLink* first_on(const HookChains& chains, yard_device_t device) noexcept {
  const HookLink* of_type = chains.process;
  for (const HookChains::OnDevice& d : chains.devices) {
    if (d.device.type != device.type) continue;
    if (d.device.index == device.index) return d.first;
    if (d.device.index == -1) of_type = d.first;
  }
  return of_type;
}

}  // namespace

bool first_place(const HookChains& shown, const HookFrame* frames, HookPlace& to) noexcept {
  const HookChains* const now = shown.now();
  if (now == nullptr) return false;
  const HookChains& chains = *now;
  to.chains = &chains, to.frame = to.all = frames;
  to.rest = chains.process;
  for (const HookFrame* f = frames; f != nullptr; f = f->outer)
    if (f->backend == 0) {
      to.rest = first_on(chains, f->device);
      break;
    }
  return next_place(to);
}

bool place_in_change(const HookLink& link, HookPlace& to) noexcept {
  return first_place(*static_cast<const HookChains*>(link.self), nullptr, to);
}

bool next_place(HookPlace& p) noexcept {
  for (; p.frame != nullptr; p.frame = p.frame->outer) {
    if (!is_of(*p.frame, *p.chains) || brings(p, p.frame, p.frame->backend)) continue;
    for (const HookLink* link : p.chains->alone)
      if (link->backend == p.frame->backend) {
        p.link = link, p.frame = p.frame->outer;
        return true;
      }
  }
  for (; p.rest != nullptr; p.rest = p.rest->next)
    if (!brings(p, nullptr, p.rest->backend)) {
      p.link = p.rest, p.rest = p.rest->next;
      return true;
    }
  return false;
}

}  // namespace yard::detail
