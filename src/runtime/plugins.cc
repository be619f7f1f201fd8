// SPDX-License-Identifier: Apache-2.0
// Plugins of a runtime: see yard/plugins.h.
#include "runtime/plugins.h"

#include <fmt/format.h>
#include <yard/plugins.h>

#include "base/reclaimer.h"
#include "runtime/host.h"
#include "select/select.h"

namespace yard::runtime {

plugin::Services plugin_services(detail::Core& core,
                                 std::function<bool(const std::string&)> hook_in_use,
                                 std::function<bool(const std::string&)> group_in_use) {
  plugin::Services s;
  s.host = core.host;
  s.apply = [&core](const std::vector<registry::Step>& steps) {
    return core.apply(steps).status();
  };
  s.in_use = [&core](const std::string& op) { return core.in_use(op); };
  s.hook_in_use = std::move(hook_in_use);
  s.group_in_use = std::move(group_in_use);
  s.device_features = [&core] { return static_cast<Host*>(core.host->self)->stated(); };
  s.choosing = [] { return select::inside_select(); };
  return s;
}

plugin::FromEnvironment plugin_environment(const policy::Reading& reading) {
  return {reading.good.plugins, reading.good.plugin_path,
          parse_plugin_probe(reading.good.plugin_probe)};
}

}  // namespace yard::runtime

namespace yard {

Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins) {
  plugin::LockFile lock;
  for (const PluginInfo& p : plugins) {
    if (p.name.empty() || p.version.empty() || p.sha256.empty())
      return Status(Code::kInvalidArgument,
                    fmt::format("plugin {} has no name, version or digest", p.path));
    lock.add({p.name, p.version, p.sha256});
  }
  return lock.write(path);
}

Status Plugins::discover(const std::vector<std::string>& paths) { return loader_->discover(paths); }
std::vector<PluginInfo> Plugins::list() const { return loader_->list(); }
Status Plugins::load(std::string_view name_or_path) { return loader_->load(name_or_path); }
Status Plugins::need(PluginOffer what, std::string_view name) {
  if (loader_->need(what, name)) return {};
  return Status(Code::kWouldDeadlock,
                "plugins cannot be loaded by the code of a plugin that is being loaded");
}
Status Plugins::forget(std::string_view name_or_path) { return loader_->forget(name_or_path); }
PluginInfo Plugins::would_load(std::string_view path) const {
  return loader_->would_load(std::string(path));
}
PluginInfo Plugins::inspect(std::string_view path) const {
  return loader_->inspect(std::string(path));
}
ProbeReport Plugins::probe(std::string_view path) const {
  return loader_->probe(std::string(path));
}
Status Plugins::remember_verified(std::string_view sha256, bool passed) const {
  return loader_->save_verified(sha256, passed);
}

Result<Ticket> Plugins::unload(std::string_view name) {
  auto life = loader_->unload(name);
  if (!life.ok()) return std::move(life).status();
  auto ticket = std::make_shared<detail::TicketState>();
  if (const auto born = life->lock();
      born != nullptr && *static_cast<const uint64_t*>(born.get()) != base::forks())
    ticket->calls_ended = base::when_calls_end();
  ticket->removed.push_back(*std::move(life));
  return Ticket(std::move(ticket));
}

}  // namespace yard
