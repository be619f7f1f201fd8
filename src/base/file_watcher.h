// SPDX-License-Identifier: Apache-2.0
// Reports changes of a set of files: replaced, written in place, reached through another link, removed, or created. Runs
// on one background thread.
//
// The last write is always reported: the state of the files is read before each report, so that anything after that,
// also during the report, is another change.
#pragma once

#include <yard/config.h>
#include <yard/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/background.h"
#include "base/fork.h"

namespace yard::base {

// What stat() tells of a file. Two writes of the same size within the resolution of file times look the same; waiting
// for longer than that avoids it.
struct FileState {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, written = 0, changed = 0;  // times in nanoseconds
  int error = 0;                               // errno if stat() failed
  bool operator==(const FileState&) const = default;
};
std::vector<FileState> file_states(const std::vector<std::string>& files);

// Longer than the resolution of file times.
inline constexpr std::chrono::milliseconds kLeastDebounce{20}, kLeastInterval{10};

struct WatchHow {
  // auto: inotify, with a slow poll for changes that it does not report (network file systems, writes through another
  // hard link); poll where inotify is not available.
  Watch way = Watch::kAuto;
  // How long files must be unchanged before a change is reported; at least kLeastDebounce. Files that keep changing are reported
  // every ten of these, and once more at the end.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // The interval of poll; at least kLeastInterval. auto polls ten times less often.
  std::chrono::nanoseconds poll_interval = std::chrono::seconds(1);
  bool operator==(const WatchHow&) const = default;
};

class FileWatcher {
 public:
  // `changed` is called on the watcher's thread, never concurrently; once after start() in any case. It returns false to
  // be called again without a change. It may call all functions here.
  explicit FileWatcher(std::function<bool()> changed) : changed_(std::move(changed)) {}
  // Stops. Not to be called from `changed`.
  ~FileWatcher();
  FileWatcher(const FileWatcher&) = delete;
  FileWatcher& operator=(const FileWatcher&) = delete;

  // Relative paths are resolved now. If it is running, the same as set(). Fails if no thread can be started, or if
  // inotify is required and not available. A forked child does not watch until it calls this.
  Status start(std::vector<std::string> files, const WatchHow& how);
  // Changes files or settings, if it is running.
  void set(std::vector<std::string> files, const WatchHow& how);
  // When this returns `changed` is not running, except on the calling thread, and is not called again.
  void stop();
  bool running();

 private:
  class Worker;
  struct Control {
    std::mutex lock;
    std::shared_ptr<Worker> worker;                          // null: not running
    std::vector<std::shared_ptr<BackgroundThread>> threads;  // may still be running
    void inherit(Control&) {}                                // a forked child has no thread
  };
  const std::function<bool()> changed_;
  OwnedPerProcess<Control> control_;
};

}  // namespace yard::base
