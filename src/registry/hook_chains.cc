// SPDX-License-Identifier: Apache-2.0
#include "registry/hook_chains.h"

#include <algorithm>

#include "registry/hook_declarations.h"

namespace yard::registry {
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

}  // namespace yard::registry

namespace yard::detail {

const HookLink* HookChains::chain(const registry::HookRecords& records) {
  const HookLink* next = nullptr;
  for (auto h = records.rbegin(); h != records.rend(); ++h)
    next = &links_.emplace_back(HookLink{(*h)->d.function, (*h)->d.self, next,
                                         registry::backend_number((*h)->backend),
                                         ((*h)->d.flags & YARD_HOOK_NEXT) != 0});
  return next;
}

std::unique_ptr<HookChains> HookChains::make(registry::HookRecords providers,
                                             const registry::Activations& activations) {
  if (providers.empty()) return nullptr;
  auto to = std::make_unique<HookChains>();
  to->providers = std::move(providers);
  const registry::HookRecords process = active_for(to->providers, activations, std::nullopt);
  to->process = to->chain(process);
  for (const registry::Activation& a : activations) {
    const auto known = [&](const OnDevice& d) { return d.device == *a.device; };
    if (!a.device || std::any_of(to->devices.begin(), to->devices.end(), known)) continue;
    registry::HookRecords records = active_for(to->providers, activations, a.device);
    if (records.empty()) continue;
    registry::append_others(records, process);
    to->devices.push_back({*a.device, to->chain(records)});
  }
  for (const auto& h : to->providers) to->alone.push_back(to->chain({h}));
  return to;
}

namespace {

// Whether one of the frames before `end` brings the backend.
bool brings(const HookFrame* frame, const HookFrame* end, uint32_t backend) noexcept {
  for (; frame != end; frame = frame->outer)
    if (frame->backend == backend) return true;
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

bool first_place(const HookChains& chains, const HookFrame* frames, HookPlace& to) noexcept {
  to.chains = &chains, to.frame = to.all = frames;
  to.rest = chains.process;
  for (const HookFrame* f = frames; f != nullptr; f = f->outer)
    if (f->backend == 0) {
      to.rest = first_on(chains, f->device);
      break;
    }
  return next_place(to);
}

bool next_place(HookPlace& p) noexcept {
  for (; p.frame != nullptr; p.frame = p.frame->outer) {
    if (p.frame->backend == 0 || brings(p.all, p.frame, p.frame->backend)) continue;
    for (const HookLink* link : p.chains->alone)
      if (link->backend == p.frame->backend) {
        p.link = link, p.frame = p.frame->outer;
        return true;
      }
  }
  for (; p.rest != nullptr; p.rest = p.rest->next)
    if (!brings(p.all, nullptr, p.rest->backend)) {
      p.link = p.rest, p.rest = p.rest->next;
      return true;
    }
  return false;
}

}  // namespace yard::detail
