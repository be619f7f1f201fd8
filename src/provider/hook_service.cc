// SPDX-License-Identifier: Apache-2.0
#include "provider/hook_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/lists.h"
#include "base/log.h"
#include "base/results.h"
#include "base/text.h"
#include "registry/changes.h"
#include "select/select.h"

namespace yard::provider {
namespace {

void warn_of_orphans(const registry::State& state, std::string_view backend) {
  if (const auto names = orphans(state, backend); !names.empty())
    base::log(LogLevel::kWarn, "runtime", orphan_text(backend, names));
}

HookProvider describe(const Provider& p, const Activations& activations) {
  const registry::Hook& h = *p.hook;
  HookProvider to;
  to.backend = h.backend, to.priority = h.d.priority;
  to.takes_next = (h.d.flags & YARD_HOOK_NEXT) != 0;
  to.definition = (h.d.flags & YARD_HOOK_DEFINITION) != 0;
  to.off = p.eligibility.why();
  for (const Activation& a : activations) {
    if (a.backend != h.backend) continue;
    if (a.device)
      to.devices.push_back(*a.device);
    else
      to.active = true;
  }
  return to;
}

// What keeps the hooks of one name from being called.
std::string problem_of(const std::vector<HookInfo>& all, const HookInfo& of) {
  if (!base::is_bare_word(of.name) || of.name.size() > 128)
    return "invalid name: expected at most 128 letters, digits, '_', '.' or '-'; no hook of that "
           "name can be provided";
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

// Providers as the process calls them, then those that are not active.
HookInfo describe(const Situation& now, const Activations& activations, std::string name,
                  std::string signature) {
  HookInfo info;
  const std::vector<Provider> all = hook_providers(now, name, signature);
  HookRecords order;
  for (const Provider& p : all)
    if (p.eligibility.eligible()) order.push_back(p.hook);
  order = active_for(order, activations, std::nullopt);
  info.engaged = !order.empty();
  for (const Provider& p : all)
    if (!base::contains(order, p.hook)) order.push_back(p.hook);
  for (const auto& h : order)
    info.providers.push_back(
        describe(*std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.hook == h; }),
                 activations));
  info.name = std::move(name), info.signature = std::move(signature);
  return info;
}

}  // namespace

HookService::HookService(detail::Core& core, plugin::Loader& loader)
    : core_(core),
      loader_(loader),
      table_([&core] { return core.snapshot(); }, &core.max_call_depth) {}

detail::HookSite* HookService::attach(const detail::HookDeclaration& declaration, bool& again) {
  HookTable::Site& site = table_.site(declaration);
  if (!site.needed.load(std::memory_order_acquire)) {
    again = select::inside_select() || !loader_.need(PluginOffer::kHook, declaration.name);
    if (!again) site.needed.store(true, std::memory_order_release);
  }
  return &site;
}

bool HookService::plugins_may_bring_hooks() {
  const auto plugins = loader_.list();
  return std::any_of(plugins.begin(), plugins.end(), [](const PluginInfo& p) {
    return !p.hooks.empty() &&
           (p.state == PluginState::kFound || p.state == PluginState::kUnloaded ||
            p.state == PluginState::kUnloading);
  });
}

Status HookService::usable(std::string_view name, const std::optional<Device>& device,
                           bool& expected) {
  if (!base::is_bare_word(name))
    return Status(
        Code::kInvalidArgument,
        fmt::format("invalid name of a backend: expected letters, digits, '_', '.' or '-', got {}",
                    base::excerpt(name)));
  if (device && (device->type <= 0 || device->type > 31 || device->index < -1))
    return Status(
        Code::kInvalidArgument,
        fmt::format("invalid device: expected a type from 1 to 31 and an index from 0, or "
                    "-1 for every device of the type; got type {}, index {}",
                    device->type, device->index));
  expected = plugins_may_bring_hooks();
  const auto s = core_.snapshot();
  const auto backend = backend_of(*s->state, name);
  const Situation now(*s, core_.host);
  Eligibility e = by_policy(now, *backend);
  // The master switch leaves out what is active, and keeps nothing from being activated.
  if (e.reason == YARD_REASON_REFERENCE_ONLY) e = {};
  if (e.eligible()) {
    // Without an index it is for every device of the type, of which the first is probed.
    const bool any = !device || device->index < 0;
    const int32_t type = device ? device->type : backend->d.device_type;
    e = on_device(now, *backend, any ? Device{type, 0} : *device, nullptr, any);
  }
  if (e.eligible()) return {};
  return Status(Code::kUnsupported,
                fmt::format("backend '{}' cannot be activated: {}", name, e.why()));
}

Status HookService::activate(const Activation& a) {
  // Hooks that are in use look for plugins only once; others may have been found or unloaded since.
  for (const std::string& hook : table_.names_in_use()) loader_.need(PluginOffer::kHook, hook);
  bool expected = false;
  YARD_RETURN_IF_ERROR(usable(a.backend, a.device, expected));
  YARD_RETURN_IF_ERROR(table_.activate(a, expected));
  warn_of_orphans(*core_.snapshot()->state, a.backend);
  if (!table_.known(a.backend).ok())
    base::log(LogLevel::kWarn, "runtime",
              fmt::format("Backend '{}' is activated and provides no hooks yet: it waits for "
                          "plugins that have been found and not been opened",
                          a.backend));
  return {};
}

std::set<std::string> HookService::active_backends() const {
  std::set<std::string> to;
  for (const Activation& a : table_.activations()) to.insert(a.backend);
  return to;
}

// Does not log: a log sink is the program's code, and may change the registry in turn.
void HookService::note_orphans(const registry::State& before, const registry::State& after) {
  for (const std::string& backend : active_backends()) {
    const auto known = orphans(before, backend);
    auto names = orphans(after, backend);
    std::erase_if(names, [&](const std::string& n) { return base::contains(known, n); });
    if (!names.empty()) orphans_came_.store(true);
  }
}

void HookService::follow() {
  table_.refresh();
  if (!orphans_came_.exchange(false)) return;
  for (const std::string& backend : active_backends())
    warn_of_orphans(*core_.snapshot()->state, backend);
}

void HookService::reset() { table_.deactivate_all(); }

HookListing HookService::list() {
  const Activations activations = table_.activations();
  const auto s = core_.snapshot();
  const Situation now(*s);
  std::map<std::pair<std::string, std::string>, bool> hooks;  // and whether declared
  for (const auto& h : s->state->hooks) hooks[{h->name, h->signature}] = false;
  for (const HookDeclaration* d : registry::declared_hooks()) hooks[{d->name, d->signature}] = true;

  HookListing to;
  for (const auto& [key, declared] : hooks) {
    to.hooks.push_back(describe(now, activations, key.first, key.second));
    to.hooks.back().declared = declared;
  }
  for (HookInfo& info : to.hooks) info.problem = problem_of(to.hooks, info);
  for (const Activation& a : activations)
    to.activations.push_back(
        {a.backend, a.device,
         std::none_of(s->state->hooks.begin(), s->state->hooks.end(),
                      [&](const auto& h) { return h->backend == a.backend; })});
  return to;
}

}  // namespace yard::provider

namespace yard {

Status Hooks::add(const HookSet& set) {
  std::vector<registry::Step> steps;
  for (const HookSet::Item& item : set.items_) {
    yard_hook_t d = item.d;
    d.name = item.name.c_str(), d.backend = set.backend_.c_str();
    YARD_ASSIGN_OR_RETURN(auto hook, registry::read_hook(d, item.keep));
    steps.emplace_back(registry::AddHook{std::move(hook)});
  }
  return service_->core().published.apply(steps).status();
}

Result<Ticket> Hooks::remove(std::string_view backend) {
  YARD_RETURN_IF_ERROR(service_->table().known(backend));
  return service_->core().published.apply({registry::RemoveHooks{std::string(backend)}});
}

Status Hooks::activate(std::string_view backend) {
  return service_->activate({std::string(backend), {}});
}
Status Hooks::activate(std::string_view backend, Device device) {
  return service_->activate({std::string(backend), device});
}
Status Hooks::deactivate(std::string_view backend) {
  return service_->table().deactivate({std::string(backend), {}});
}
Status Hooks::deactivate(std::string_view backend, Device device) {
  return service_->table().deactivate({std::string(backend), device});
}

Result<HookScope> Hooks::scope(std::string_view backend) const {
  bool expected = false;
  YARD_RETURN_IF_ERROR(service_->usable(backend, {}, expected));
  if (!expected) YARD_RETURN_IF_ERROR(service_->table().known(backend));
  return HookScope(registry::backend_number(backend), service_->table().id());
}

HookListing Hooks::list() const { return service_->list(); }

const HookInfo* HookListing::find(std::string_view name) const& noexcept {
  // The declared one, if there are several signatures of that name.
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
