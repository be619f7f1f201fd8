// SPDX-License-Identifier: Apache-2.0
// A plugin's library while it is open. Every record that came from it holds it, by the lease of its load;
// when the last one has gone it is stopped and closed, and leaves word of whether its code is gone.
#pragma once

#include <yard/plugin.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/reclaimer.h"
#include "plugin/manifest.h"
#include "plugin/refusal.h"
#include "registry/changes.h"

namespace yard::plugin {

// What became of a library; outlives it.
struct Fate {
  enum Stage { kOpen, kGone, kPinned };
  std::atomic<Stage> stage{kOpen};
  std::string pinned_by;  // written before kPinned
};

class Library {
 public:
  // Runs its constructors.
  static Refusal open(base::File file, const std::string& path, const yard_host_t* host,
                      std::shared_ptr<Library>& to);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Asks what it brings, checks it against its manifest and makes steps of it.
  Refusal describe(const Manifest& manifest, const std::shared_ptr<void>& keep,
                   std::vector<registry::Step>& steps);
  // Calls the plugin's start, once.
  Refusal start();

  const std::shared_ptr<Fate>& fate() const noexcept { return fate_; }
  // Whether this thread is inside a plugin's constructor, query, start or stop.
  static bool inside_plugin() noexcept;

 private:
  Library() = default;
  Refusal compare(const Manifest& manifest, const std::vector<registry::Step>& steps) const;
  // Waits for work that its backends left on devices. What went wrong, empty when all is done.
  std::string quiesce() const;

  std::shared_ptr<Fate> fate_ = std::make_shared<Fate>();
  std::unique_ptr<base::DynamicLibrary> library_;
  yard_plugin_query_t query_ = nullptr;
  const yard_host_t* host_ = nullptr;
  yard_plugin_t plugin_{};
  struct Quiesce {
    std::string backend;
    int32_t (*wait)(void* self, yard_device_t device);
    void* self;
    int32_t device_type;
  };
  std::vector<Quiesce> quiesce_;
  bool started_ = false;
};

// What the records of one load hold. A plugin that is loaded again while calls still use what an earlier
// load brought shares its library with that: it is neither opened nor started twice.
struct Lease {
  // First, so that it goes last. How many forks lay behind the process that loaded it.
  std::shared_ptr<const void> life = std::make_shared<const uint64_t>(base::forks());
  std::shared_ptr<Library> library;
};

}  // namespace yard::plugin
