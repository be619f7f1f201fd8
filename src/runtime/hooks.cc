// SPDX-License-Identifier: Apache-2.0
// Hooks of a runtime: see yard/hook.h.
#include "runtime/hooks.h"

#include <fmt/format.h>
#include <yard/runtime.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "registry/descriptors.h"
#include "select/select.h"

namespace yard::runtime {

namespace {

// Why a backend's hooks do not count, activated or not; nothing: they do.
std::string why_out(const detail::Snapshot& s, std::string_view name) {
  const auto it = s.state->backends.find(name);
  if (it == s.state->backends.end()) return {};
  const registry::Backend& b = *it->second;
  const auto said = s.policy->in_force.backends.find(name);
  if (said != s.policy->in_force.backends.end() ? !said->second : b.d.enable == YARD_ENABLE_OFF)
    return "it is switched off";
  if (s.forked && (b.d.flags & YARD_BACKEND_FORK_UNSAFE) != 0)
    return "it cannot be used in a forked child";
  return {};
}

void warn_of_orphans(std::string_view backend, const std::vector<std::string>& names) {
  base::log(LogLevel::kWarn, "runtime",
            std::string(registry::orphan_error(backend, names).message()));
}

}  // namespace

HookService::HookService(detail::Core& core, plugin::Loader& loader)
    : core_(core),
      loader_(loader),
      table_([&core] { return core.snapshot()->state; },
             [&core](const registry::Hook& h) { return why_out(*core.snapshot(), h.backend); }) {}

detail::HookSite* HookService::attach(const detail::HookDeclaration& declaration, bool& again) {
  registry::HookTable::Site& site = table_.site(declaration);
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
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is no name of a backend: letters, digits, '_', '.', '-' may "
                              "stand in one",
                              base::excerpt(name)));
  if (device && (device->type <= 0 || device->type > 31 || device->index < -1))
    return Status(Code::kInvalidArgument,
                  fmt::format("there is no device of type {}, index {}: types are 1 to 31, an "
                              "index of -1 means every device of its type",
                              device->type, device->index));
  expected = plugins_may_bring_hooks();
  const auto s = core_.snapshot();
  const auto it = s->state->backends.find(name);
  if (it == s->state->backends.end()) return {};
  const registry::Backend& b = *it->second;
  const auto unusable = [&](const std::string& why) {
    return Status(Code::kUnsupported,
                  fmt::format("backend '{}' cannot be activated: {}", name, why));
  };
  if (const std::string why = why_out(*s, name); !why.empty()) return unusable(why);
  const Device asked =
      device && device->index >= 0 ? *device : Device{device ? device->type : b.d.device_type, 0};
  const registry::Probe& probe = b.probe(asked, core_.host);
  if (!probe.available)
    return unusable(fmt::format("it is not available on {}{}{}", to_string(asked),
                                probe.text.empty() ? "" : ": ", probe.text));
  return {};
}

Status HookService::activate(const registry::Activation& a) {
  // A hook that was used before looks for plugins no more; they may have been found or let go since.
  for (const std::string& hook : table_.names_in_use()) loader_.need(PluginOffer::kHook, hook);
  bool expected = false;
  YARD_RETURN_IF_ERROR(usable(a.backend, a.device, expected));
  YARD_RETURN_IF_ERROR(table_.activate(a, expected, strict.load(std::memory_order_relaxed)));
  // Nothing goes unnoticed: what nobody declares is never called, and a name may be mistyped.
  if (const auto names = registry::orphans(*table_.state(), a.backend); !names.empty())
    warn_of_orphans(a.backend, names);
  if (!table_.known(a.backend).ok())
    base::log(LogLevel::kWarn, "runtime",
              fmt::format("Backend '{}' is activated and brings no hooks yet: it waits for plugins "
                          "that have been found and not been opened",
                          a.backend));
  return {};
}

std::set<std::string> HookService::active_backends() const {
  std::set<std::string> to;
  for (const registry::Activation& a : table_.activations()) to.insert(a.backend);
  return to;
}

// Logs nothing itself: a sink is the program's, and may change the registry in turn.
Status HookService::check(const registry::State& before, const registry::State& after) {
  for (const std::string& backend : active_backends()) {
    const auto known = registry::orphans(before, backend);
    auto names = registry::orphans(after, backend);
    std::erase_if(names, [&](const std::string& n) {
      return std::find(known.begin(), known.end(), n) != known.end();
    });
    if (names.empty()) continue;
    if (strict.load(std::memory_order_relaxed))
      return registry::orphan_error(backend, names).note("the backend is active");
    orphans_came_.store(true);
  }
  return {};
}

void HookService::follow() {
  table_.refresh();
  if (!orphans_came_.exchange(false)) return;
  for (const std::string& backend : active_backends())
    if (const auto names = registry::orphans(*table_.state(), backend); !names.empty())
      warn_of_orphans(backend, names);
}

void HookService::start_over() {
  strict.store(false, std::memory_order_relaxed);
  table_.deactivate_all();
}

}  // namespace yard::runtime

namespace yard::detail {

HookSite* attach_hook(const HookDeclaration* declaration, Runtime* runtime, bool& again) noexcept {
  try {
    Runtime& r = runtime != nullptr ? *runtime : Runtime::shared();
    return r.hooks().service().attach(*declaration, again);
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "runtime",
              fmt::format("hook '{}' means its default for now: {}", declaration->name, e.what()));
    return again = true, nullptr;
  }
}

}  // namespace yard::detail

namespace yard {

Status Hooks::add(const HookSet& set) {
  std::vector<registry::Step> steps;
  for (const HookSet::Item& item : set.items_) {
    yard_hook_t d = item.d;
    d.name = item.name.c_str(), d.backend = set.backend_.c_str();
    if (set.permission_ != HookPermission::kOverride) d.flags |= YARD_HOOK_ADDS;
    if (set.permission_ != HookPermission::kAdd) d.flags |= YARD_HOOK_OVERRIDES;
    auto hook = registry::read_hook(d, item.keep);
    if (!hook.ok()) return std::move(hook).status();
    steps.push_back(registry::AddHook{*std::move(hook)});
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
  if (const auto names = registry::orphans(*service_->table().state(), backend);
      service_->strict.load(std::memory_order_relaxed) && !names.empty())
    return registry::orphan_error(backend, names);
  return HookScope(registry::backend_number(backend), service_->table().id());
}

void Hooks::set_strict(bool on) { service_->strict.store(on, std::memory_order_relaxed); }

}  // namespace yard
