// SPDX-License-Identifier: Apache-2.0
// Plugins of a runtime: see yard/plugins.h.
#include "runtime/plugins.h"

#include <yard/plugins.h>

#include "select/select.h"

namespace yard::runtime {

plugin::Services plugin_services(detail::Core& core) {
  plugin::Services s;
  s.host = core.host;
  s.apply = [&core](const std::vector<registry::Step>& steps) {
    return core.apply(steps).status();
  };
  s.in_use = [&core](const std::string& op) { return core.in_use(op); };
  s.choosing = [] { return select::inside_select(); };
  return s;
}

plugin::FromEnvironment plugin_environment(const policy::Reading& reading) {
  if (plugin::privileged()) return {};
  return {reading.good.plugins, reading.good.plugin_path};
}

}  // namespace yard::runtime

namespace yard {

Status Plugins::discover(const std::vector<std::string>& paths) { return loader_->discover(paths); }
std::vector<PluginInfo> Plugins::list() const { return loader_->list(); }
Status Plugins::load(std::string_view name_or_path) { return loader_->load(name_or_path); }
Status Plugins::forget(std::string_view name_or_path) { return loader_->forget(name_or_path); }
PluginInfo Plugins::inspect(std::string_view path) const {
  return loader_->inspect(std::string(path));
}

Result<Ticket> Plugins::unload(std::string_view name) {
  auto life = loader_->unload(name);
  if (!life.ok()) return std::move(life).status();
  auto ticket = std::make_shared<detail::TicketState>();
  ticket->removed.push_back(*std::move(life));
  return Ticket(std::move(ticket));
}

}  // namespace yard
