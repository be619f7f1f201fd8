// SPDX-License-Identifier: Apache-2.0
#include "plugin/catalogue.h"

#include <algorithm>

namespace yard::plugin {

PluginState Record::state() const noexcept {
  const bool was_in = said == PluginState::kLoaded || said == PluginState::kUnloading;
  if (!was_in || fate == nullptr) return said;
  switch (fate->stage.load(std::memory_order_acquire)) {
    case Fate::kOpen: return said;
    case Fate::kGone: return PluginState::kUnloaded;
    case Fate::kPinned: return PluginState::kPinned;
  }
  return said;
}

bool Record::serves(PluginOffer what, std::string_view name) const noexcept {
  const std::vector<std::string>& list = what == PluginOffer::kOp      ? manifest.ops
                                         : what == PluginOffer::kGroup ? manifest.groups
                                                                       : manifest.hooks;
  return std::find(list.begin(), list.end(), name) != list.end();
}

PluginInfo Record::info() const {
  PluginInfo to;
  to.path = path, to.state = state(), to.sha256 = sha256;
  if (to.state == PluginState::kRefused) to.reason = refusal.reason, to.detail = refusal.detail;
  if (to.state == PluginState::kPinned) to.detail = fate->pinned_by;
  to.name = manifest.name, to.version = manifest.version, to.build = manifest.build;
  to.arch = manifest.arch, to.sanitizer = manifest.sanitizer, to.abi = manifest.abi;
  to.devices = manifest.devices, to.features = manifest.features, to.ops = manifest.ops;
  to.groups = manifest.groups, to.hooks = manifest.hooks;
  return to;
}

Record* Catalogue::find_path(std::string_view path) noexcept {
  for (Record& r : records_)
    if (r.path == path) return &r;
  return nullptr;
}

Record* Catalogue::find_name(std::string_view name) noexcept {
  Record* best = nullptr;
  const auto rank = [](const Record& r) {
    if (r.in_process()) return 0;
    return r.state() == PluginState::kRefused ? 2 : 1;
  };
  for (Record& r : records_)
    if (r.manifest.name == name && (best == nullptr || rank(r) < rank(*best))) best = &r;
  return best;
}

Record* Catalogue::find(std::string_view name_or_path) noexcept {
  return name_or_path.find('/') != std::string_view::npos ? find_path(name_or_path)
                                                          : find_name(name_or_path);
}

const Record* Catalogue::holder(const Record& of, bool asked_for) const noexcept {
  bool before = true;
  for (const Record& r : records_) {
    if (r.path == of.path) {
      before = false;
      continue;
    }
    if (r.manifest.name != of.manifest.name) continue;
    const PluginState state = r.state();
    const bool out = state == PluginState::kUnloaded || state == PluginState::kPinned;
    if (asked_for && out) continue;
    if (r.in_process() || (before && state != PluginState::kRefused)) return &r;
  }
  return nullptr;
}

std::vector<std::string> Catalogue::names() const {
  std::vector<std::string> to;
  for (const Record& r : records_)
    if (!r.manifest.name.empty()) to.push_back(r.manifest.name);
  return to;
}

std::vector<std::string> Catalogue::paths_for(PluginOffer what, std::string_view name) const {
  std::vector<std::string> to;
  for (const Record& r : records_)
    if (r.state() == PluginState::kFound && r.serves(what, name)) to.push_back(r.path);
  return to;
}

size_t Catalogue::waiting() const noexcept {
  return static_cast<size_t>(std::count_if(records_.begin(), records_.end(), [](const Record& r) {
    return r.state() == PluginState::kFound;
  }));
}

}  // namespace yard::plugin
