// SPDX-License-Identifier: Apache-2.0
// Implements Plugins (yard/plugins.h).
#include <fmt/format.h>
#include <yard/plugins.h>
#include <yard/runtime.h>

#include "base/file.h"
#include "base/reclaimer.h"
#include "base/results.h"
#include "dispatch/published.h"
#include "plugin/loader.h"

namespace yard {

Status write_plugin_lock(const std::string& path, const std::vector<PluginInfo>& plugins) {
  plugin::LockLines lines;
  for (const PluginInfo& p : plugins) {
    if (p.name.empty() || p.version.empty() || p.sha256.empty())
      return base::invalid("plugin {} has no name, version or digest", p.path);
    lines.insert({p.name, p.version, p.sha256});
  }
  return base::write_file(path, plugin::to_text(lines));
}

Status Plugins::discover(const std::vector<std::string>& paths) {
  return base::or_out_of_memory([&] { return loader_->discover(paths); });
}
std::vector<PluginInfo> Plugins::list() const { return loader_->list(); }
Status Plugins::load(std::string_view name_or_path) {
  return base::or_out_of_memory([&] { return loader_->load(name_or_path); });
}
Status Plugins::forget(std::string_view name_or_path) {
  return base::or_out_of_memory([&] { return loader_->forget(name_or_path); });
}
PluginInfo Plugins::would_load(std::string_view path) const {
  return loader_->inspect(std::string(path), true);
}
PluginInfo Plugins::inspect(std::string_view path) const {
  return loader_->inspect(std::string(path), false);
}
Status Plugins::remember_verified(std::string_view sha256, bool passed) const {
  return loader_->results().save(sha256, passed);
}

namespace {

// The ticket is done when the plugin whose life end() returns has been closed.
template <class F>
Result<Ticket> ticket_of(const F& end) {
  auto ticket = std::make_shared<detail::TicketState>();
  ticket->removed.reserve(1);  // so that nothing is allocated after the change
  Result<std::weak_ptr<const void>> life = end();
  if (!life.ok()) return std::move(life).status();
  if (const auto born = life->lock();
      born != nullptr && *static_cast<const uint64_t*>(born.get()) != base::forks())
    ticket->calls_ended = base::when_calls_end();
  ticket->removed.push_back(*std::move(life));
  return Ticket(std::move(ticket));
}

}  // namespace

Result<Ticket> Plugins::unload(std::string_view name) {
  return base::or_out_of_memory([&] { return ticket_of([&] { return loader_->unload(name); }); });
}
Result<Ticket> Plugins::replace(std::string_view name, std::string_view path, KeptOps keep) {
  return base::or_out_of_memory(
      [&] { return ticket_of([&] { return loader_->replace(name, path, keep); }); });
}

}  // namespace yard
