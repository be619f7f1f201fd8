// SPDX-License-Identifier: Apache-2.0
// Listing the hooks of a runtime: declared, provided, engaged, and what does not fit together.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "runtime/hooks.h"

namespace yard {
namespace {

using registry::Activation;
using registry::Activations;
using registry::HookRecords;

HookProvider describe(const registry::Hook& h, const Activations& activations) {
  HookProvider p;
  p.backend = h.backend, p.priority = h.d.priority;
  p.adds = (h.d.flags & YARD_HOOK_ADDS) != 0;
  p.overrides = (h.d.flags & YARD_HOOK_OVERRIDES) != 0 || !p.adds;
  p.takes_next = (h.d.flags & YARD_HOOK_NEXT) != 0;
  p.definition = (h.d.flags & YARD_HOOK_DEFINITION) != 0;
  for (const Activation& a : activations) {
    if (a.backend != h.backend) continue;
    if (a.device)
      p.devices.push_back(*a.device);
    else
      p.active = true;
  }
  return p;
}

// What is wrong with the hooks of one name.
std::string problem_of(const std::vector<HookInfo>& all, const HookInfo& of) {
  if (!base::is_bare_word(of.name) || of.name.size() > 128)
    return "nobody can provide a hook of that name: letters, digits, '_', '.', '-' may stand in "
           "one, 128 at most";
  for (const HookInfo& other : all) {
    if (other.name != of.name || other.signature == of.signature) continue;
    if (of.declared && other.declared)
      return fmt::format("it is also declared as {}", other.signature);
    if (!of.declared && other.declared)
      return fmt::format("it is declared as {}, and so never called", other.signature);
    if (!other.declared)
      return fmt::format("backend '{}' provides it as {}, which is never called",
                         other.providers[0].backend, other.signature);
  }
  return {};
}

}  // namespace

HookListing Hooks::list() const {
  const Activations activations = service_->table().activations();
  const auto state = service_->table().state();
  std::map<std::pair<std::string, std::string>, HookRecords> providers;
  std::map<std::pair<std::string, std::string>, bool> declared;
  for (const registry::HookDeclaration* d : registry::declared_hooks())
    providers[{d->name, d->signature}], declared[{d->name, d->signature}] = true;
  for (const auto& h : state->hooks) providers[{h->name, h->signature}].push_back(h);

  HookListing to;
  for (const auto& [key, records] : providers) {
    HookInfo info;
    info.name = key.first, info.signature = key.second, info.declared = declared[key];
    HookRecords able = records;
    std::erase_if(able, [&](const auto& h) { return !service_->table().why_left_out(*h).empty(); });
    HookRecords order = registry::active_for(able, activations, std::nullopt);
    info.engaged = !order.empty();
    for (const auto& h : records)
      if (std::find(order.begin(), order.end(), h) == order.end()) order.push_back(h);
    for (const auto& h : order) {
      info.providers.push_back(describe(*h, activations));
      info.providers.back().off = service_->table().why_left_out(*h);
    }
    to.hooks.push_back(std::move(info));
  }
  for (HookInfo& info : to.hooks) info.problem = problem_of(to.hooks, info);
  for (const Activation& a : activations)
    to.activations.push_back(
        {a.backend, a.device,
         std::none_of(state->hooks.begin(), state->hooks.end(),
                      [&](const auto& h) { return h->backend == a.backend; })});
  return to;
}

const HookInfo* HookListing::find(std::string_view name) const noexcept {
  // The one that is declared, if several signatures go by that name.
  const HookInfo* found = nullptr;
  for (const HookInfo& h : hooks)
    if (h.name == name && (found == nullptr || (h.declared && !found->declared))) found = &h;
  return found;
}

std::vector<std::string> HookListing::undeclared() const {
  std::vector<std::string> to;
  for (const HookInfo& h : hooks)
    if (!h.declared) to.push_back(h.name);
  return to;
}

std::vector<std::string> HookListing::unprovided() const {
  std::vector<std::string> to;
  for (const HookInfo& h : hooks)
    if (h.providers.empty()) to.push_back(h.name);
  return to;
}

}  // namespace yard
