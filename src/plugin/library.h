// SPDX-License-Identifier: Apache-2.0
// A Library opens, describes, starts, stops and closes the library of a plugin. The plugin's
// records in the registry hold it through a KeepAlive. When the last record is released, the plugin
// is stopped and closed, and LibraryStatus says whether its code is gone.
#pragma once

#include "base/library.h"
#include "base/reclaimer.h"
#include "base/tasks.h"
#include "plugin/scan.h"
#include "registry/changes.h"

namespace yard::plugin {

class Library;

// Outlives the library and says what became of it.
class LibraryStatus {
 public:
  enum Stage { kOpen, kClosed, kPinned, kAbandoned };
  LibraryStatus(const FileId& file, std::weak_ptr<Library> of) : id(file), library(std::move(of)) {}

  const FileId id;
  const std::weak_ptr<Library> library;

  Stage stage() const noexcept { return stage_.load(std::memory_order_acquire); }
  // Returns whether a thread is stopping and closing the library.
  bool is_closing() const noexcept { return stage() == kOpen && library.expired(); }
  std::string why_pinned() const {
    return stage() == kAbandoned ? "it was being closed when this process was forked" : pinned_by_;
  }
  // An empty text means that the code is gone; else it says why the code stays in the process.
  void set_closed(std::string pinned_by) {
    pinned_by_ = std::move(pinned_by);
    stage_.store(pinned_by_.empty() ? kClosed : kPinned, std::memory_order_release);
  }
  // A forked child calls this, because it has no thread that closes the library.
  void abandon() noexcept { stage_.store(kAbandoned, std::memory_order_release); }

 private:
  std::atomic<Stage> stage_{kOpen};
  std::string pinned_by_;  // written before kPinned
};

class Library {
 public:
  // Runs the library's constructors.
  static Refusal open(const base::File& file, const FileId& id, const std::string& path,
                      const yard_host_t* host, std::shared_ptr<Library>& to);
  ~Library();

  // Queries the descriptor, compares it with the manifest, and converts it to steps.
  Refusal describe(const Manifest& manifest, const std::shared_ptr<void>& keep,
                   std::vector<registry::Step>& steps);
  // Calls the plugin's start, but only once.
  Refusal start();

  const std::shared_ptr<LibraryStatus>& status() const noexcept { return status_; }
  // Returns whether this thread is in a constructor, query, start or stop of a plugin.
  static bool inside_plugin() noexcept;

 private:
  Library() = default;
  Refusal compare(const Manifest& manifest, const std::vector<registry::Step>& steps) const;
  // Returns why the code stays in the process, or an empty text if the code is gone.
  std::string stop_and_close();
  // Waits until the backends have no work on devices. Returns an error, or an empty text.
  std::string quiesce() const;

  std::shared_ptr<LibraryStatus> status_;
  std::optional<base::DynamicLibrary> library_;
  yard_plugin_query_t query_ = nullptr;
  const yard_host_t* host_ = nullptr;
  yard_plugin_t plugin_{};
  std::vector<std::pair<std::string, yard_backend_t>> quiesced_;  // backends with `quiesce`
  bool started_ = false;
};

// The records of one load hold this. If a plugin is loaded again while calls use an earlier load,
// both share the library, which is neither opened nor started twice.
struct KeepAlive {
  // When the last record is released, the object ends on a separate thread (base/tasks.h).
  static std::shared_ptr<KeepAlive> make();
  // The first member is destroyed last. Holds base::forks() at the time of the load.
  std::shared_ptr<const void> life = std::make_shared<const uint64_t>(base::forks());
  std::shared_ptr<Library> library;
};

}  // namespace yard::plugin
