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

std::atomic<uint64_t> g_tables{0};

void show(HookTable::Site& site, const HookChains* chains) {
  site.all.store(chains, std::memory_order_release);
  site.process.store(chains != nullptr ? chains->process : nullptr, std::memory_order_release);
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

HookTable::HookTable(std::function<std::shared_ptr<const State>()> state, LeftOut left_out)
    : state_(std::move(state)),
      left_out_(std::move(left_out)),
      id_(g_tables.fetch_add(1, std::memory_order_relaxed) + 1) {}

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
  show(*made, HookChains::make(providers_of(*made, *state),
                               *activations_.load(std::memory_order_acquire), id_)
                  .release());
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

HookRecords HookTable::providers_of(const Site& site, const State& state) const {
  HookRecords to;
  for (const auto& h : state.hooks)
    if (h->name == site.declaration->name && h->signature == site.declaration->signature &&
        why_left_out(*h).empty())
      to.push_back(h);
  return to;
}

// One by one where there is one. Else in three steps, each of which every thread has noticed before the next: a call
// that sees the new chain of one hook then sees no old one of another.
void HookTable::put_in_force(std::vector<Pending> pending) {
  std::vector<HookChains*> gone;
  for (const Pending& p : pending)
    gone.push_back(const_cast<HookChains*>(p.site->all.load(std::memory_order_acquire)));
  if (pending.size() > 1) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    for (size_t i = 0; i < pending.size(); ++i) {
      auto change = HookChains::make_change(gone[i], pending[i].next.get(), done);
      gone.push_back(change.get());
      show(*pending[i].site, change.release());
    }
    base::barrier_in_all_threads();
    done->store(true, std::memory_order_release);
    base::barrier_in_all_threads();
  }
  for (Pending& p : pending) show(*p.site, p.next.release());
  for (HookChains* chains : gone)
    if (chains != nullptr) HookChains::retire(chains);
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
    std::vector<Pending> pending;
    for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next) {
      HookRecords providers = providers_of(*s, *state);
      const HookChains* now = s->all.load(std::memory_order_acquire);
      if (now != nullptr ? !changed && now->providers == providers : providers.empty()) continue;
      pending.push_back({s, HookChains::make(std::move(providers), next, id_)});
    }
    if (changed) {
      activations_.store(new Activations(std::move(next)), std::memory_order_release);
      delete old;  // read under the lock, and in a child before anything else
    }
    put_in_force(std::move(pending));
  }
  base::reclaimer().collect();
  return {};
}

void HookTable::mend_in_child() {
  const auto state = state_();
  const Activations& activations = *activations_.load(std::memory_order_acquire);
  for (Site* s = sites_.load(std::memory_order_acquire); s != nullptr; s = s->next) {
    const HookChains* inherited = s->all.load(std::memory_order_acquire);
    if (inherited != nullptr) s->left_behind.push_back(inherited);
    show(*s, HookChains::make(providers_of(*s, *state), activations, id_).release());
  }
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
