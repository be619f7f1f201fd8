// SPDX-License-Identifier: Apache-2.0
#include "functions/functions.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"

namespace yard::functions {
namespace {

std::atomic<Service*> g_serving{nullptr};

// True while this thread makes a table. Functions that probes call then run the default.
thread_local bool t_making_table = false;
struct MakingTable : base::ForeignCode {
  MakingTable() noexcept { t_making_table = true; }
  ~MakingTable() { t_making_table = false; }
};

std::string shown(const FunctionActivation& a) {
  return fmt::format("backend '{}'{}", a.backend, a.device ? " on " + to_string(*a.device) : "");
}

std::vector<std::string> providing_backends(const registry::State& state) {
  std::set<std::string> names;
  for (const auto& f : state.functions) names.insert(f->backend);
  return {names.begin(), names.end()};
}

bool is_orphan(const registry::Function& f) {
  return std::ranges::none_of(declared_sites(f.group, f.name),
                              [&](const auto* site) { return site->signature == f.signature; });
}

// Callers need not remember what they warned of: the log writes each message once.
void warn_of_orphans(const registry::State& state, std::string_view backend) {
  std::vector<std::string> declared, orphans;
  for (const FunctionSite* site : declared_sites())
    declared.push_back(site->group + "/" + site->name);
  for (const auto& f : state.functions) {
    const std::string name = f->group + "/" + f->name;
    if (f->backend == backend && is_orphan(*f))
      orphans.push_back(fmt::format("'{}'{}", name, base::did_you_mean(name, declared)));
  }
  if (!orphans.empty())
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("Backend '{}' provides functions that are not declared: {}", backend,
                          fmt::join(orphans, ", ")));
}

}  // namespace

constinit base::AppendList<FunctionSite> g_sites;

std::vector<FunctionSite*> declared_sites(std::string_view group, std::string_view name) {
  std::vector<FunctionSite*> to;
  for (FunctionSite& site : g_sites)
    if (site.declared.load(std::memory_order_acquire) > 0 &&
        (name.empty() || (site.group == group && site.name == name)))
      to.push_back(&site);
  return to;
}

void Service::serve() {
  g_serving.store(this, std::memory_order_release);
  g_snapshot.store(&core_.published.current, std::memory_order_release);
}

Service* Service::serving() noexcept { return g_serving.load(std::memory_order_acquire); }

bool Service::attach(FunctionSite& site) {
  if (t_making_table) return false;
  base::ThreadRecord& thread = base::this_thread();
  const ScopeState* const scope = provider_scope_of(thread);
  if (scope != nullptr && !scope->problem.ok()) throw Error(scope->problem);
  if (!Situation{*core_.snapshot(), core_.host, {}, scope}.off()) {
    // A selection must not publish, so this call runs the default.
    if (select::inside_select()) return false;
    load_group(site.group, false).ignore();
    // Plugins cannot be opened now. This call runs the default, and the next one tries again.
    if (!in_use(site.group)) return false;
  }
  const auto is_there = [&] {
    base::Guard guard(thread);
    return find_table(site, thread, guard) != nullptr;
  };
  if (is_there()) return true;
  if (scope == nullptr || SnapshotTables::of(*core_.snapshot()) == nullptr) republish().ignore();
  const auto s = core_.snapshot();
  const SnapshotTables* const tables = SnapshotTables::of(*s);
  if (scope == nullptr || tables == nullptr) return is_there();
  const MakingTable making;
  using Scoped = SnapshotTables::Scoped;
  std::unique_ptr<Scoped> made(
      new Scoped{site.index, scope->providers,
                 Table::make({*s, core_.host, activations(), scope}, site, tables->find(site))});
  uint32_t count = 1;
  tables->scoped.find_or_append(std::move(made), [&](const Scoped& a, const Scoped& b) {
    return ++count, a.site == b.site && a.scope == b.scope;
  });
  // Publish a new snapshot, which starts without tables for scopes.
  if (count > SnapshotTables::kMostScoped) republish().ignore();
  return true;
}

void Service::make_tables(const dispatch::Snapshot& old, dispatch::Snapshot& next) {
  if (serving() != this) return;
  auto to = std::make_shared<SnapshotTables>();
  const SnapshotTables* const before = SnapshotTables::of(old);
  const Situation now{next, core_.host, activations()};
  const MakingTable making;
  for (const FunctionSite& site : g_sites) {
    auto& table = to->tables.emplace_back();
    // Skip functions that cannot be called any more, so that they do not keep plugins loaded.
    if (site.declared.load(std::memory_order_acquire) > 0 && (now.off() || in_use(site.group)))
      table = Table::make(now, site, before != nullptr ? before->find(site) : nullptr);
    to->list.push_back(table.get());
  }
  next.tables = to->list.data(), next.count = static_cast<uint32_t>(to->list.size());
  next.functions = std::move(to);
}

// A thread that has seen the new table of one function must not find an outdated quiet flag of
// another, and vice versa. The barrier makes all threads observe the first store before the other.
void Service::set_quiet(const dispatch::Snapshot& next, bool quiet) noexcept {
  const SnapshotTables* const tables = SnapshotTables::of(next);
  if (tables == nullptr) return;
  const auto differs = [&](const FunctionSite& site) {
    const Table* const table = tables->find(site);
    return (table != nullptr && table->count == 0) == quiet &&
           site.quiet.load(std::memory_order_relaxed) != quiet;
  };
  bool any = false;
  for (const FunctionSite& site : g_sites) any |= differs(site);
  if (!any) return;
  if (quiet) base::barrier_in_all_threads();
  for (FunctionSite& site : g_sites)
    if (differs(site)) site.quiet.store(quiet, std::memory_order_relaxed);
  if (!quiet) base::barrier_in_all_threads();
}

Status Service::check_change(const registry::State& before, const registry::State& after) {
  for (const auto& f : after.functions) {
    if (base::contains(before.functions, f) || !is_orphan(*f)) continue;
    const auto declared = declared_sites(f->group, f->name);
    if (declared.empty()) continue;
    return Status(Code::kConflict,
                  fmt::format("function '{}/{}' of backend '{}' has another signature than its "
                              "declaration\n  declared: {}\n  provided: {}",
                              f->group, f->name, f->backend, declared[0]->signature, f->signature));
  }
  for (const FunctionActivation& a : activations()) warn_of_orphans(after, a.backend);
  return {};
}

Activations Service::activations() const {
  const std::lock_guard lock(lock_);
  return activations_;
}

Status Service::check_activation(const FunctionActivation& a) const {
  const std::optional<Device>& device = a.device;
  if (device && (device->type <= 0 || device->type > 31 || device->index < -1))
    return Status(Code::kInvalidArgument,
                  fmt::format("invalid device of type {}, index {}: expected a type from 1 to 31, "
                              "and an index from 0, or -1 for every device of the type",
                              device->type, device->index));
  const auto s = core_.snapshot();
  constexpr PluginState kClosed[] = {PluginState::kFound, PluginState::kUnloaded,
                                     PluginState::kUnloading};
  const auto may_bring_functions = [&](const PluginInfo& p) {
    return !p.groups.empty() && base::contains(kClosed, p.state);
  };
  const std::vector<std::string> all = providing_backends(*s->state);
  if (!base::contains(all, a.backend) && std::ranges::none_of(loader_.list(), may_bring_functions))
    return Status(Code::kNotFound,
                  fmt::format("no backend '{}' provides functions{}{}", a.backend,
                              base::did_you_mean(a.backend, all),
                              all.empty() ? "; none does" : "; expected " + base::one_of(all)));
  const auto backend = backend_of(*s->state, a.backend);
  const Situation now{*s, core_.host, {}};
  Eligibility e = by_policy(now, *backend);
  if (e.eligible())
    e = on_device(now, *backend, device.value_or(Device{backend->d.device_type, -1}));
  if (e.eligible()) return {};
  return Status(Code::kUnsupported,
                fmt::format("backend '{}' cannot be activated: {}", a.backend, e.why()));
}

Status Service::activate(const FunctionActivation& a) {
  // Loaded groups have looked for plugins only once. Plugins may have been found or unloaded since.
  for (const std::string& g : known_groups())
    if (in_use(g)) loader_.need(registry::PluginOffer::kGroup, g);
  YARD_RETURN_IF_ERROR(check_activation(a));
  {
    const std::lock_guard lock(lock_);
    std::erase(activations_, a);
    activations_.push_back(a);
  }
  // If publishing is not allowed now, the activation takes effect with the next snapshot.
  republish().ignore();
  const auto state = core_.snapshot()->state;
  warn_of_orphans(*state, a.backend);
  if (!base::contains(providing_backends(*state), a.backend))
    base::log(LogLevel::kWarn, "dispatch",
              fmt::format("Backend '{}' is activated and provides no functions yet: it waits for "
                          "plugins that have been found and not been opened",
                          a.backend));
  return {};
}

Status Service::deactivate(const FunctionActivation& a) {
  std::unique_lock lock(lock_);
  const bool was_active = std::erase(activations_, a) > 0;
  lock.unlock();
  if (was_active) return republish().ignore(), Status();
  std::vector<std::string> active;
  for (const FunctionActivation& other : activations()) active.push_back(shown(other));
  return Status(Code::kNotFound,
                fmt::format("{} is not active; {}{}", shown(a),
                            active.empty() ? "nothing is" : "active: ", fmt::join(active, ", ")));
}

}  // namespace yard::functions

namespace yard::detail {

constinit std::atomic<const std::atomic<const dispatch::Snapshot*>*> g_snapshot{nullptr};

FunctionSite* declare_function(const char* group, const char* name, const char* signature,
                               Selection selection, bool repeatable,
                               const FunctionSamples* samples) noexcept {
  auto made = std::make_unique<FunctionSite>();
  made->group = group != nullptr ? group : "", made->name = name != nullptr ? name : "";
  made->signature = signature, made->selection = selection, made->repeatable = repeatable;
  FunctionSite* site =
      &functions::g_sites.find_or_append(std::move(made), [](const auto& a, auto& b) {
        b.index = a.index + 1;
        return a.group == b.group && a.name == b.name && a.signature == b.signature &&
               a.selection == b.selection && a.repeatable == b.repeatable;
      });
  if (samples != nullptr) site->samples.store(samples, std::memory_order_release);
  // The function may have had no table while it was not declared.
  if (site->declared.fetch_add(1, std::memory_order_acq_rel) == 0)
    site->quiet.store(false, std::memory_order_relaxed);
  return site;
}

void undeclare_function(FunctionSite* site) noexcept {
  // The samples may be code of a library that is about to be unloaded.
  site->samples.store(nullptr, std::memory_order_release);
  site->declared.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace yard::detail

namespace yard {

Status Functions::set_active(std::string_view backend, std::optional<Device> device, bool active) {
  const FunctionActivation a{std::string(backend), device, false};
  return active ? service_->activate(a) : service_->deactivate(a);
}

std::vector<FunctionActivation> Functions::activations() const {
  const auto providing = functions::providing_backends(*service_->core_.snapshot()->state);
  std::vector<FunctionActivation> to = service_->activations();
  for (FunctionActivation& a : to) a.waiting = !base::contains(providing, a.backend);
  return to;
}

}  // namespace yard
