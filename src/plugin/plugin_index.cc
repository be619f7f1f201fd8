// SPDX-License-Identifier: Apache-2.0
#include "plugin/plugin_index.h"

#include <algorithm>

namespace yard::plugin {

PluginState PluginRecord::state() const noexcept {
  const bool opened = last_state == PluginState::kLoaded || last_state == PluginState::kUnloading;
  if (!opened || library_status == nullptr) return last_state;
  switch (library_status->stage.load(std::memory_order_acquire)) {
    case LibraryStatus::kOpen: return last_state;
    case LibraryStatus::kClosed: return PluginState::kUnloaded;
    case LibraryStatus::kPinned: return PluginState::kPinned;
  }
  return last_state;
}

bool PluginRecord::serves(PluginOffer what, std::string_view name) const noexcept {
  const std::vector<std::string>& list = what == PluginOffer::kOp      ? manifest.ops
                                         : what == PluginOffer::kGroup ? manifest.groups
                                                                       : manifest.hooks;
  return std::find(list.begin(), list.end(), name) != list.end();
}

PluginInfo PluginRecord::info() const {
  PluginInfo to;
  to.path = path, to.state = state(), to.sha256 = sha256;
  if (to.state == PluginState::kRefused) to.reason = refusal.reason, to.detail = refusal.detail;
  if (to.state == PluginState::kPinned) to.detail = library_status->pinned_by;
  to.name = manifest.name, to.version = manifest.version, to.build = manifest.build;
  to.arch = manifest.arch, to.sanitizer = manifest.sanitizer, to.abi = manifest.abi;
  to.devices = manifest.devices, to.features = manifest.features, to.ops = manifest.ops;
  to.groups = manifest.groups, to.hooks = manifest.hooks;
  return to;
}

PluginRecord* PluginIndex::find_path(std::string_view path) noexcept {
  for (PluginRecord& r : records_)
    if (r.path == path) return &r;
  return nullptr;
}

PluginRecord* PluginIndex::find_name(std::string_view name) noexcept {
  PluginRecord* best = nullptr;
  const auto rank = [](const PluginRecord& r) {
    if (r.in_process()) return 0;
    return r.state() == PluginState::kRefused ? 2 : 1;
  };
  for (PluginRecord& r : records_)
    if (r.manifest.name == name && (best == nullptr || rank(r) < rank(*best))) best = &r;
  return best;
}

PluginRecord* PluginIndex::find(std::string_view name_or_path) noexcept {
  return name_or_path.find('/') != std::string_view::npos ? find_path(name_or_path)
                                                          : find_name(name_or_path);
}

const PluginRecord* PluginIndex::precedent(const PluginRecord& of, bool requested) const noexcept {
  bool before = true;
  for (const PluginRecord& r : records_) {
    if (r.path == of.path) {
      before = false;
      continue;
    }
    if (r.manifest.name != of.manifest.name) continue;
    const PluginState state = r.state();
    const bool out = state == PluginState::kUnloaded || state == PluginState::kPinned;
    if (requested && out) continue;
    if (r.in_process() || (before && state != PluginState::kRefused)) return &r;
  }
  return nullptr;
}

std::vector<std::string> PluginIndex::names() const {
  std::vector<std::string> to;
  for (const PluginRecord& r : records_)
    if (!r.manifest.name.empty()) to.push_back(r.manifest.name);
  return to;
}

std::vector<std::string> PluginIndex::paths_for(PluginOffer what, std::string_view name) const {
  std::vector<std::string> to;
  for (const PluginRecord& r : records_)
    if (r.state() == PluginState::kFound && r.serves(what, name)) to.push_back(r.path);
  return to;
}

size_t PluginIndex::waiting() const noexcept {
  return static_cast<size_t>(
      std::count_if(records_.begin(), records_.end(),
                    [](const PluginRecord& r) { return r.state() == PluginState::kFound; }));
}

}  // namespace yard::plugin
