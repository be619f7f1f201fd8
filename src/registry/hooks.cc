// SPDX-License-Identifier: Apache-2.0
#include "registry/hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/reclaimer.h"
#include "base/text.h"

namespace yard::registry {
namespace {

using detail::HookChains;
using detail::HookLink;

template <class T>
void retire(const T* object, std::vector<const void*> held_by) {
  base::reclaimer().retire(
      const_cast<T*>(object), [](void* p) { delete static_cast<T*>(p); }, std::move(held_by));
}

std::string shown(const Activation& a) {
  return a.device ? fmt::format("backend '{}' on {}", a.backend, to_string(*a.device))
                  : fmt::format("backend '{}'", a.backend);
}

Status nobody_brings(const State& state, std::string_view backend) {
  std::set<std::string> names;
  for (const auto& h : state.hooks) names.insert(h->backend);
  const std::vector<std::string> list(names.begin(), names.end());
  return Status(
      Code::kNotFound,
      fmt::format("no backend '{}' brings hooks{}{}", backend, base::did_you_mean(backend, list),
                  list.empty() ? "; none does" : "; those who do: " + base::one_of(list)));
}

bool brings_hooks(const State& state, std::string_view backend) {
  return std::any_of(state.hooks.begin(), state.hooks.end(),
                     [&](const auto& h) { return h->backend == backend; });
}

}  // namespace

std::vector<std::string> orphans(const State& state, std::string_view backend) {
  std::vector<std::string> names;
  for (const auto& h : state.hooks) {
    if (h->backend != backend || (h->d.flags & YARD_HOOK_ADDS) != 0) continue;
    const auto declared = declared_hooks(h->name);
    if (std::none_of(declared.begin(), declared.end(),
                     [&](const HookDeclaration* d) { return d->signature == h->signature; }))
      names.push_back(h->name);
  }
  return names;
}

Status orphan_error(std::string_view backend, const std::vector<std::string>& names) {
  std::vector<std::string> declared;
  for (const HookDeclaration* d : declared_hooks()) declared.push_back(d->name);
  std::string list;
  for (const std::string& n : names)
    list += (list.empty() ? "'" : ", '") + n + "'" + base::did_you_mean(n, declared);
  return Status(Code::kConflict,
                fmt::format("backend '{}' brings hooks that nobody declares: {}", backend, list));
}

HookTable::HookTable(std::function<std::shared_ptr<const State>()> state)
    : state_(std::move(state)) {}

HookTable::~HookTable() {
  for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr;) {
    delete s->all.load(std::memory_order_acquire);
    delete std::exchange(s, s->next);
  }
  delete activations_.load(std::memory_order_acquire);
}

HookTable::Site& HookTable::site(const HookDeclaration& declaration) {
  const auto find = [&]() -> Site* {
    for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next)
      if (s->declaration == &declaration) return s;
    return nullptr;
  };
  if (Site* s = find()) return *s;
  std::shared_ptr<const State> state;  // let go after the lock: records may be a plugin's last
  const std::lock_guard lock(lock_.get().lock);
  if (Site* s = find()) return *s;
  state = state_();
  auto* made = new Site;
  made->declaration = &declaration;
  update(*made, *state, *activations_.load(std::memory_order_acquire), true);
  made->next = sites_.load(std::memory_order_relaxed);
  sites_.store(made, std::memory_order_release);
  return *made;
}

bool HookTable::in_use(std::string_view name) const noexcept {
  for (const Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next)
    if (s->declaration->name == name) return true;
  return false;
}

std::vector<std::string> HookTable::names_in_use() const {
  std::vector<std::string> to;
  for (const Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next)
    to.push_back(s->declaration->name);
  return to;
}

void HookTable::update(Site& site, const State& state, const Activations& activations,
                       bool changed) {
  HookRecords providers;
  for (const auto& h : state.hooks)
    if (h->name == site.declaration->name && h->signature == site.declaration->signature)
      providers.push_back(h);
  const HookChains* old = site.all.load(std::memory_order_acquire);
  if (!changed && (old != nullptr ? old->providers == providers : providers.empty())) return;
  const HookChains* next = HookChains::make(std::move(providers), activations).release();
  site.all.store(next, std::memory_order_release);
  site.process.store(next != nullptr ? next->process : nullptr, std::memory_order_release);
  if (old != nullptr) retire(old, {old, old->process});
}

Status HookTable::edit(const Change& change) {
  {
    std::shared_ptr<const State> state;  // as above
    const std::lock_guard lock(lock_.get().lock);
    state = state_();
    const Activations* old = activations_.load(std::memory_order_acquire);
    Activations next = *old;
    YARD_RETURN_IF_ERROR(change(*state, next));
    const bool changed = next != *old;
    if (changed) {
      activations_.store(new Activations(next), std::memory_order_release);
      retire(old, {});
    }
    for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next)
      update(*s, *state, next, changed);
  }
  base::reclaimer().collect();
  return {};
}

void HookTable::refresh() {
  edit([](const State&, Activations&) { return Status(); }).ignore();
}

Status HookTable::activate(const Activation& a, bool expected, bool strict) {
  return edit([&](const State& state, Activations& list) -> Status {
    if (!expected && !brings_hooks(state, a.backend)) return nobody_brings(state, a.backend);
    if (const auto names = orphans(state, a.backend); strict && !names.empty())
      return orphan_error(a.backend, names);
    std::erase(list, a);
    list.push_back(a);
    return {};
  });
}

Status HookTable::deactivate(const Activation& a) {
  return edit([&](const State&, Activations& list) -> Status {
    if (std::erase(list, a) > 0) return {};
    std::vector<std::string> active;
    for (const Activation& other : list) active.push_back(shown(other));
    return Status(Code::kNotFound,
                  fmt::format("{} is not active; {}", shown(a),
                              active.empty() ? "nothing is"
                                             : fmt::format("active: {}", fmt::join(active, ", "))));
  });
}

void HookTable::deactivate_all() {
  edit([](const State&, Activations& list) {
    list.clear();
    return Status();
  }).ignore();
}

Activations HookTable::activations() const {
  const std::lock_guard lock(lock_.get().lock);
  return *activations_.load(std::memory_order_acquire);
}

Status HookTable::known(std::string_view backend) const {
  const auto state = state_();
  return brings_hooks(*state, backend) ? Status() : nobody_brings(*state, backend);
}

}  // namespace yard::registry
