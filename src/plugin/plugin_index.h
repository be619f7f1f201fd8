// SPDX-License-Identifier: Apache-2.0
// All plugins that were found, in search order, with their states.
#pragma once

#include <yard/plugins.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/library.h"
#include "plugin/manifest.h"
#include "plugin/search.h"

namespace yard::plugin {

struct PluginRecord {
  std::string path;
  FileId id;
  Manifest manifest;
  std::string sha256;
  Refusal refusal;
  PluginState last_state = PluginState::kFound;  // set by the loader; see state()
  bool by_path = false;                          // requested by path, in no place that is searched
  std::weak_ptr<KeepAlive> keep_alive;           // of its last load
  std::weak_ptr<Library> library;
  std::shared_ptr<LibraryStatus> library_status;

  // The current state: libraries close by themselves when their last record is released.
  PluginState state() const noexcept;
  bool in_process() const noexcept {
    return state() == PluginState::kLoaded || state() == PluginState::kUnloading;
  }
  bool serves(PluginOffer what, std::string_view name) const noexcept;
  void refuse(Refusal r) { refusal = std::move(r), last_state = PluginState::kRefused; }
  PluginInfo info() const;
};

class PluginIndex {
 public:
  std::vector<PluginRecord>& records() noexcept { return records_; }
  const std::vector<PluginRecord>& records() const noexcept { return records_; }
  PluginRecord* find_path(std::string_view path) noexcept;
  // Of several with that name, one that is loaded, else one that could be, else one that was refused.
  PluginRecord* find_name(std::string_view name) noexcept;
  // By path if it has a '/', else by name.
  PluginRecord* find(std::string_view name_or_path) noexcept;
  // Another plugin of the same name that takes precedence: it is loaded, or comes first and is not refused. If the plugin
  // is `requested` explicitly, one that has been unloaded does not.
  const PluginRecord* precedent(const PluginRecord& of, bool requested = false) const noexcept;
  std::vector<std::string> names() const;
  // Plugins that would be loaded for it.
  std::vector<std::string> paths_for(PluginOffer what, std::string_view name) const;
  size_t waiting() const noexcept;  // number of plugins found and not loaded

 private:
  std::vector<PluginRecord> records_;
};

}  // namespace yard::plugin
