// SPDX-License-Identifier: Apache-2.0
#include "provider/hook_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/lists.h"
#include "base/reclaimer.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/core.h"
#include "dispatch/nesting.h"
#include "dispatch/scope.h"
#include "provider/by_scope.h"

namespace yard::provider {
namespace {

bool names(const Activation& a, const std::optional<Device>& device) {
  if (!device || !a.device) return !device && !a.device;
  return a.device->type == device->type &&
         (a.device->index == device->index || a.device->index == -1);
}

void append_others(HookRecords& to, const HookRecords& more) {
  for (const auto& h : more)
    if (!base::contains(to, h)) to.push_back(h);
}

}  // namespace

HookRecords active_for(const HookRecords& providers, const Activations& activations,
                       const std::optional<Device>& device) {
  HookRecords to;
  for (auto a = activations.rbegin(); a != activations.rend(); ++a) {
    if (!names(*a, device)) continue;
    for (const auto& h : providers)
      if (h->backend == a->backend && !base::contains(to, h)) to.push_back(h);
  }
  std::stable_sort(to.begin(), to.end(),
                   [](const auto& a, const auto& b) { return a->d.priority > b->d.priority; });
  return to;
}

}  // namespace yard::provider

namespace yard::detail {

// Null chains: no provider. The chains are retired when this is freed.
struct HookScopes : provider::ByScope<HookChains> {};

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
  // A call that holds the change may use either.
  for (HookChains* c : {const_cast<HookChains*>(before), after})
    if (c != nullptr) c->reached_by_.insert(c->reached_by_.end(), {to.get(), to->process});
  return to;
}

const HookChains* HookChains::now() const noexcept {
  if (done_ == nullptr) return this;
  return done_->load(std::memory_order_acquire) ? after_ : before_;
}

// Without memory it is leaked.
void HookChains::retire(const HookChains* from) noexcept {
  base::if_memory_allows([&] { hand_over(const_cast<HookChains*>(from)); });
}

void HookChains::hand_over(HookChains* chains) {
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

// Whether a frame is a scope of the table.
bool is_of(const HookFrame& frame, const HookChains& chains) noexcept {
  return frame.backend != 0 && frame.table == chains.table;
}

// Whether one of the frames before `end` is of the backend.
bool is_in_frames(const HookPlace& p, const HookFrame* end, uint32_t backend) noexcept {
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

HazardSlot& deep_slot(ThreadHead& thread, const HookSite& hook) {
  const auto& site = static_cast<const provider::HookTable::Site&>(hook);
  return dispatch::nested_slot(thread, site.table.max_call_depth(), {}, site.declaration->name);
}

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

namespace {
// The entry of the scope that the thread is in; null: not made yet.
const HookScopes::Entry* find_scoped(const HookSite& site, const ThreadHead& thread,
                                     Guard& guard) noexcept {
  const HookScopes* const scopes = guard.protect(site.scoped);
  // A thread that has seen the chains of one hook after a change sees none of another from before it.
  (void)site.scoped.load(std::memory_order_acquire);
  return scopes != nullptr ? scopes->find(thread.scope_state->providers) : nullptr;
}
}  // namespace

bool place_in_scope(const HookSite& site, ThreadHead& thread, Guard& guard,
                    HookPlace& to) noexcept {
  const ScopeState* const scope = provider_scope_of(thread);
  const HookChains* chains = nullptr;
  if (scope == nullptr) {
    chains = guard.protect(site.all);
  } else {
    const HookScopes::Entry* found;
    while ((found = find_scoped(site, thread, guard)) == nullptr) {
      guard.move_to_after_reading(nullptr);
      try {
        auto& own = static_cast<provider::HookTable::Site&>(const_cast<HookSite&>(site));
        own.table.make_scoped(own, *scope);
      } catch (...) {
        return false;  // out of memory: the default runs
      }
    }
    chains = found->value.get();
    guard.move_to_after_reading(chains);
  }
  return chains != nullptr && first_place(*chains, thread.hooks, to);
}

bool next_place(HookPlace& p) noexcept {
  for (; p.frame != nullptr; p.frame = p.frame->outer) {
    if (!is_of(*p.frame, *p.chains) || is_in_frames(p, p.frame, p.frame->backend)) continue;
    for (const HookLink* link : p.chains->alone)
      if (link->backend == p.frame->backend) {
        p.link = link, p.frame = p.frame->outer;
        return true;
      }
  }
  for (; p.rest != nullptr; p.rest = p.rest->next)
    if (!is_in_frames(p, nullptr, p.rest->backend)) {
      p.link = p.rest, p.rest = p.rest->next;
      return true;
    }
  return false;
}

}  // namespace yard::detail

namespace yard::provider {
namespace {

using detail::HookChains;
using detail::HookScopes;
using registry::declared_hooks;
using registry::State;

std::atomic<uint64_t> g_tables{0};

void show(HookTable::Site& site, const HookChains* chains) {
  site.all.store(chains, std::memory_order_release);
  site.process.store(chains != nullptr ? chains->process : nullptr, std::memory_order_release);
}

std::string shown(const Activation& a) {
  return a.device ? fmt::format("backend '{}' on {}", a.backend, to_string(*a.device))
                  : fmt::format("backend '{}'", a.backend);
}

Status no_hooks(const State& state, std::string_view backend) {
  std::set<std::string> names;
  for (const auto& h : state.hooks) names.insert(h->backend);
  const std::vector<std::string> list(names.begin(), names.end());
  return Status(
      Code::kNotFound,
      fmt::format("no backend '{}' provides hooks{}{}", backend, base::did_you_mean(backend, list),
                  list.empty() ? "; none does" : "; expected " + base::one_of(list)));
}

// The eligible providers of the site's hook.
HookRecords records_for(const HookTable::Site& site, const Situation& situation) {
  HookRecords to;
  const HookDeclaration& d = *site.declaration;
  for (Provider& p : hook_providers(situation, d.name, d.signature))
    if (p.eligibility.eligible()) to.push_back(std::move(p.hook));
  return to;
}

bool provides_hooks(const State& state, std::string_view backend) {
  return std::any_of(state.hooks.begin(), state.hooks.end(),
                     [&](const auto& h) { return h->backend == backend; });
}

}  // namespace

std::vector<std::string> orphans(const State& state, std::string_view backend) {
  std::vector<std::string> names;
  for (const auto& h : state.hooks) {
    if (h->backend != backend) continue;
    const auto declared = declared_hooks(h->name);
    if (std::none_of(declared.begin(), declared.end(),
                     [&](const HookDeclaration* d) { return d->signature == h->signature; }))
      names.push_back(h->name);
  }
  return names;
}

std::string orphan_text(std::string_view backend, const std::vector<std::string>& names) {
  std::vector<std::string> declared;
  for (const HookDeclaration* d : declared_hooks()) declared.push_back(d->name);
  std::string list;
  for (const std::string& n : names)
    list += (list.empty() ? "'" : ", '") + n + "'" + base::did_you_mean(n, declared);
  return fmt::format("backend '{}' provides hooks that are not declared: {}", backend, list);
}

HookTable::HookTable(CurrentSnapshot snapshot, const std::atomic<uint32_t>* max_call_depth)
    : snapshot_(std::move(snapshot)),
      max_call_depth_(max_call_depth),
      id_(g_tables.fetch_add(1, std::memory_order_relaxed) + 1) {}

uint32_t HookTable::max_call_depth() const noexcept {
  return max_call_depth_ != nullptr ? max_call_depth_->load(std::memory_order_relaxed)
                                    : detail::Core::kMaxCallDepth;
}

HookTable::~HookTable() {
  for (Site& s : sites_) {
    delete s.all.load(std::memory_order_acquire);
    HookScopes::withdraw(s.scoped);
  }
  delete activations_.load(std::memory_order_acquire);
  base::reclaimer().collect();
}

HookTable::Site& HookTable::site(const HookDeclaration& declaration) {
  const auto find = [&]() -> Site* {
    for (Site& s : sites_)
      if (s.declaration == &declaration) return &s;
    return nullptr;
  };
  if (Site* s = find()) return *s;
  // Released after the lock: it may hold the last record of a plugin.
  std::shared_ptr<const dispatch::Snapshot> snapshot;
  const std::lock_guard lock(lock_.get().lock);
  if (Site* s = find()) return *s;
  snapshot = snapshot_();
  auto made = std::make_unique<Site>(*this, declaration);
  show(*made, HookChains::make(records_for(*made, Situation(*snapshot)),
                               *activations_.load(std::memory_order_acquire), id_)
                  .release());
  return sites_.append(std::move(made));
}

void HookTable::make_scoped(Site& site, const detail::ScopeState& scope) {
  std::shared_ptr<const dispatch::Snapshot> snapshot;  // as in site()
  const std::lock_guard lock(lock_.get().lock);
  const HookScopes* const now = site.scoped.load(std::memory_order_acquire);
  if (now != nullptr && now->find(scope.providers) != nullptr) return;
  snapshot = snapshot_();
  const Situation situation(*snapshot, nullptr, &scope.content.policy);
  auto chains = HookChains::make(records_for(site, situation),
                                 *activations_.load(std::memory_order_acquire), id_);
  std::shared_ptr<const HookChains> shared;
  if (chains != nullptr) shared = {chains.release(), &HookChains::retire};
  HookScopes::add(site.scoped, scope.providers, std::move(shared));
}

bool HookTable::in_use(std::string_view name) const noexcept {
  for (const Site& s : sites_)
    if (s.declaration->name == name) return true;
  return false;
}

std::vector<std::string> HookTable::names_in_use() const {
  std::vector<std::string> to;
  for (const Site& s : sites_) to.push_back(s.declaration->name);
  return to;
}

// A change of several sites is made in three steps, each of which all threads have observed before the next: a call
// that sees the new chain of one hook then sees no old chain of another.
void HookTable::put_in_force(std::vector<Pending> pending) {
  std::vector<HookChains*> gone;
  for (const Pending& p : pending)
    gone.push_back(const_cast<HookChains*>(p.site->all.load(std::memory_order_acquire)));
  if (pending.size() > 1) {
    const auto done = std::make_shared<std::atomic<bool>>(false);
    // All are made before one is seen: there may be no memory.
    std::vector<std::unique_ptr<HookChains>> changes;
    for (size_t i = 0; i < pending.size(); ++i) {
      changes.push_back(HookChains::make_change(gone[i], pending[i].next.get(), done));
      gone.push_back(changes.back().get());
    }
    for (size_t i = 0; i < pending.size(); ++i) show(*pending[i].site, changes[i].release());
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
    std::shared_ptr<const dispatch::Snapshot> snapshot;  // as in site()
    const std::lock_guard lock(lock_.get().lock);
    snapshot = snapshot_();
    const Activations* old = activations_.load(std::memory_order_acquire);
    Activations next = *old;
    YARD_RETURN_IF_ERROR(change(*snapshot->state, next));
    const bool changed = next != *old;
    std::vector<Pending> pending;
    const Situation situation(*snapshot);
    for (Site& s : sites_) {
      HookRecords providers = records_for(s, situation);
      const HookChains* now = s.all.load(std::memory_order_acquire);
      if (now != nullptr ? !changed && now->providers == providers : providers.empty()) continue;
      pending.push_back({&s, HookChains::make(std::move(providers), next, id_)});
    }
    if (changed) {
      activations_.store(new Activations(std::move(next)), std::memory_order_release);
      delete old;  // readers hold the lock, or are alone in a forked child
    }
    // First: calls in scopes then wait for the lock and make new chains, so that they see none from before a change of
    // which another call has seen a part.
    for (Site& s : sites_) HookScopes::withdraw(s.scoped);
    put_in_force(std::move(pending));
  }
  base::reclaimer().collect();
  return {};
}

void HookTable::repair_in_child() {
  const auto snapshot = snapshot_();
  const Activations& activations = *activations_.load(std::memory_order_acquire);
  const Situation situation(*snapshot);
  for (Site& s : sites_) {
    const HookChains* inherited = s.all.load(std::memory_order_acquire);
    if (inherited != nullptr) s.left_behind.push_back(inherited);
    if (const auto* scopes = s.scoped.exchange(nullptr)) s.scopes_left_behind.push_back(scopes);
    show(s, HookChains::make(records_for(s, situation), activations, id_).release());
  }
}

void HookTable::refresh() {
  edit([](const State&, Activations&) { return Status(); }).ignore();
}

Status HookTable::activate(const Activation& a, bool expected) {
  return edit([&](const State& state, Activations& list) -> Status {
    if (!expected && !provides_hooks(state, a.backend)) return no_hooks(state, a.backend);
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
  const auto s = snapshot_();
  return provides_hooks(*s->state, backend) ? Status() : no_hooks(*s->state, backend);
}

}  // namespace yard::provider
