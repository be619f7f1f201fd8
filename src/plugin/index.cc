// SPDX-License-Identifier: Apache-2.0
// The plugins that a loader has found, and questions about them.
#include "plugin/loader.h"

namespace yard::plugin {

PluginState PluginRecord::state() const noexcept {
  const bool opened = last_state == PluginState::kLoaded || last_state == PluginState::kUnloading;
  if (!opened || library == nullptr || library->stage() == LibraryStatus::kOpen) return last_state;
  return library->stage() == LibraryStatus::kClosed ? PluginState::kUnloaded : PluginState::kPinned;
}

PluginInfo PluginRecord::info() const {
  PluginInfo to;
  to.path = path, to.state = state(), to.sha256 = sha256;
  if (to.state == PluginState::kRefused) to.reason = refusal.reason, to.detail = refusal.detail;
  if (to.state == PluginState::kUnloading && library != nullptr && library->is_closing())
    to.detail = "it is being stopped and closed: its stop() or a destructor has not returned";
  if (to.state == PluginState::kPinned) to.detail = library->why_pinned();
  to.name = manifest.name, to.version = manifest.version, to.build = manifest.build;
  to.arch = manifest.arch, to.sanitizer = manifest.sanitizer, to.abi = manifest.abi;
  to.devices = manifest.devices, to.features = manifest.features, to.ops = manifest.ops;
  to.groups = manifest.groups;
  return to;
}

PluginRecord* PluginIndex::find_path(std::string_view path) noexcept {
  const auto found = std::ranges::find(*this, path, &PluginRecord::path);
  return found != end() ? &*found : nullptr;
}

PluginRecord* PluginIndex::find(std::string_view name_or_path) noexcept {
  if (name_or_path.find('/') != std::string_view::npos) return find_path(name_or_path);
  const auto rank = [](const PluginRecord& r) {
    if (r.state() == PluginState::kLoaded) return 0;
    return r.in_process() ? 1 : r.state() == PluginState::kRefused ? 3 : 2;
  };
  PluginRecord* best = nullptr;
  // If several were loaded by path, the last one counts, because the other files may be gone.
  for (PluginRecord& r : *this)
    if (r.manifest.name == name_or_path &&
        (best == nullptr || rank(r) < rank(*best) || (r.by_path && rank(r) == rank(*best))))
      best = &r;
  return best;
}

const PluginRecord* PluginIndex::precedent(const PluginRecord& of, bool requested) const noexcept {
  bool before = true;
  for (const PluginRecord& r : *this) {
    before &= r.path != of.path;
    if (r.path == of.path || r.manifest.name != of.manifest.name) continue;
    if (requested && r.was_unloaded()) continue;
    if (r.in_process() || (before && r.state() != PluginState::kRefused)) return &r;
  }
  return nullptr;
}

void PluginIndex::store(PluginRecord record) {
  if (PluginRecord* old = find_path(record.path))
    *old = std::move(record);
  else
    push_back(std::move(record));
}

void PluginIndex::add_new(PluginRecord record) {
  const auto is_same = [&](const PluginRecord& r) {
    return r.path == record.path ||
           (r.id.inode != 0 && r.id.inode == record.id.inode && r.id.device == record.id.device);
  };
  if (std::ranges::none_of(*this, is_same)) push_back(std::move(record));
}

std::vector<PluginInfo> Loader::list() {
  const Lock lock(mutex_);
  std::vector<PluginInfo> to;
  for (const PluginRecord& r : index_) to.push_back(r.info());
  return to;
}

const void* Loader::keep_of(std::string_view name) {
  Lock lock(mutex_);
  const PluginRecord* const r = index_.find(name);
  if (r == nullptr || r->state() != PluginState::kLoaded) return nullptr;
  const std::weak_ptr<KeepAlive> keep = r->keep_alive;
  lock.unlock();  // this may be the last reference
  return keep.lock().get();
}

std::vector<std::string> Loader::refused_for(registry::PluginOffer what, std::string_view name) {
  const Lock lock(mutex_);
  std::vector<std::string> to;
  size_t unread = 0;
  for (const PluginRecord& r : index_) {
    if (r.state() != PluginState::kRefused) continue;
    unread += r.manifest.name.empty();
    if (r.serves(what, name))
      to.push_back(fmt::format("plugin '{}', which serves it, is refused: {}: {}: {}",
                               r.manifest.name, r.path, to_string(r.refusal.reason),
                               r.refusal.detail));
  }
  if (unread > 0)
    to.push_back(
        fmt::format("{} of the plugins found {} refused before it was known what they serve; see "
                    "`yard plugin list`",
                    unread, unread == 1 ? "was" : "were"));
  return to;
}

}  // namespace yard::plugin
