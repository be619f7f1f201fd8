// SPDX-License-Identifier: Apache-2.0
// Tells when any of a set of files is not what it was: replaced, written in place, reached through another
// link, gone, or there at last. One thread; nobody waits for it but who stops it.
//
// The last write always counts. What the files look like is noted before each report; whatever happens after
// that, also during the report, is another change.
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
#include "base/owned_per_process.h"

namespace yard::base {

// What can be known of files without reading them. Two writes of one size within a tick of the system's clock
// look the same: a file that has rested for longer does not have this problem.
struct FileMark {
  uint64_t device = 0, inode = 0;
  int64_t size = 0, written = 0, changed = 0;  // times in nanoseconds
  int error = 0;                               // errno where there is no such file
  bool operator==(const FileMark&) const = default;
};
std::vector<FileMark> look_at(const std::vector<std::string>& files);

struct WatchHow {
  // auto: inotify with a slow poll beside it, for file systems whose changes it does not tell (network,
  // writes through another hard link); poll where there is no inotify.
  Watch way = Watch::kAuto;
  // How long files must rest before a change is reported; at least 20 ms. Files that never rest are reported
  // every ten of these, and once more when they do.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // How often poll looks; at least 10 ms. auto looks ten times less often.
  std::chrono::nanoseconds poll_interval = std::chrono::seconds(1);
  bool operator==(const WatchHow&) const = default;
};

class FileWatcher {
 public:
  // `changed` is called on the watcher's thread, never twice at once; once after start() whatever the files are.
  // It returns false to be called again although nothing has changed. It may call everything here.
  explicit FileWatcher(std::function<bool()> changed) : changed_(std::move(changed)) {}
  // Stops. Not from `changed`.
  ~FileWatcher();
  FileWatcher(const FileWatcher&) = delete;
  FileWatcher& operator=(const FileWatcher&) = delete;

  // Relative paths are seen from the current directory of now. Where it watches already, as set(). Fails if there
  // can be no thread, or no inotify where that is asked for. A forked child does not watch until it calls this.
  Status start(std::vector<std::string> files, const WatchHow& how);
  // Other files, or another way. Does nothing if all is as before or nothing is watched.
  void set(std::vector<std::string> files, const WatchHow& how);
  // `changed` is not running and will not be called when this returns; from inside it, not called again.
  void stop();
  bool running();

 private:
  class Worker;
  struct Control {
    std::mutex lock;
    std::shared_ptr<Worker> worker;                    // null: nothing is watched
    std::vector<std::shared_ptr<Background>> threads;  // that may not have ended
    void inherit(Control&) {}                          // the child has no thread
  };
  const std::function<bool()> changed_;
  OwnedPerProcess<Control> control_;
};

}  // namespace yard::base
