// SPDX-License-Identifier: Apache-2.0
// The plugins that were found, with their states. The loader guards the index by its lock.
#pragma once

#include <yard/plugins.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/library.h"
#include "plugin/manifest.h"
#include "plugin/scan.h"
#include "registry/interfaces.h"

namespace yard::plugin {

// A file that was found, and what became of its plugin.
struct PluginRecord : FoundFile {
  State last_state = State::kFound;     // set by the loader; see state()
  bool by_path = false;                 // loaded by its path, from no place that is searched
  std::weak_ptr<KeepAlive> keep_alive;  // of its last load
  std::shared_ptr<const LibraryStatus> library;

  PluginRecord() = default;
  explicit PluginRecord(const FoundFile& file) : FoundFile(file) {
    if (refusal.refused()) last_state = State::kRefused;
  }
  // The current state. A library closes by itself when its last record in the registry is released.
  PluginState state() const noexcept;
  bool in_process() const noexcept {
    return state() == State::kLoaded || state() == State::kUnloading;
  }
  bool was_unloaded() const noexcept {
    return state() == State::kUnloaded || state() == State::kPinned;
  }
  bool serves(registry::PluginOffer what, std::string_view name) const noexcept {
    return contains(manifest.offers(what), name);
  }
  void refuse(Refusal r) { refusal = std::move(r), last_state = State::kRefused; }
  PluginInfo info() const;
};

// In search order.
struct PluginIndex : std::vector<PluginRecord> {
  PluginRecord* find_path(std::string_view path) noexcept;
  // By path if it has a '/', else by name. Of several with that name, returns one that is loaded, else one that could be,
  // else one that was refused.
  PluginRecord* find(std::string_view name_or_path) noexcept;
  // Another plugin of the same name that takes precedence: it is loaded, or it comes first and is not refused. If the
  // plugin is `requested` explicitly, one that has been unloaded does not take precedence.
  const PluginRecord* precedent(const PluginRecord& of, bool requested = false) const noexcept;
  // Replaces the record of that path, or adds one.
  void store(PluginRecord record);
  // Adds a record unless there is one of the same path or file.
  void add_new(PluginRecord record);
  // Messages about plugins that were refused and serve a name, or may.
  std::vector<std::string> refused_for(registry::PluginOffer what, std::string_view name) const;
};

}  // namespace yard::plugin
