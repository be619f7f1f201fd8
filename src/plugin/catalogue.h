// SPDX-License-Identifier: Apache-2.0
// All plugins that were found, whatever became of them, in the order of the search.
#pragma once

#include <yard/plugins.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/candidate.h"
#include "plugin/library.h"
#include "plugin/manifest.h"

namespace yard::plugin {

struct Record {
  std::string path;
  FileId id;
  Manifest manifest;
  std::string sha256;
  Refusal refusal;
  PluginState said = PluginState::kFound;  // what the loader last did: see state()
  bool by_path = false;                    // asked for by itself, in no place that is searched
  std::weak_ptr<Lease> lease;              // of its last load
  std::weak_ptr<Library> library;
  std::shared_ptr<Fate> fate;

  // What it is now: a library closes by itself when its last record goes.
  PluginState state() const noexcept;
  bool in_process() const noexcept {
    return state() == PluginState::kLoaded || state() == PluginState::kUnloading;
  }
  bool serves(PluginOffer what, std::string_view name) const noexcept;
  void refuse(Refusal r) { refusal = std::move(r), said = PluginState::kRefused; }
  PluginInfo info() const;
};

class Catalogue {
 public:
  std::vector<Record>& records() noexcept { return records_; }
  const std::vector<Record>& records() const noexcept { return records_; }
  Record* find_path(std::string_view path) noexcept;
  // The one of that name that is loaded, or could be, or was refused, in this order.
  Record* find_name(std::string_view name) noexcept;
  // By path if it has a '/', else by name.
  Record* find(std::string_view name_or_path) noexcept;
  // Another one of the same name that is loaded or comes first; where `of` is asked for by itself, one that has
  // been taken out does not stand in its way.
  const Record* holder(const Record& of, bool asked_for = false) const noexcept;
  std::vector<std::string> names() const;
  // Those that would be loaded for it.
  std::vector<std::string> paths_for(PluginOffer what, std::string_view name) const;
  size_t waiting() const noexcept;  // how many are found and not loaded

 private:
  std::vector<Record> records_;
};

}  // namespace yard::plugin
