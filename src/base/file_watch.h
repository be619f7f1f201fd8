// SPDX-License-Identifier: Apache-2.0
// Reports changes of a set of files: replaced, written in place, reached through another link, removed, or created. Polls
// the files on one background thread.
//
// The last write is always reported: the state of the files is read before each report, so that anything after that,
// also during the report, is another change.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/tasks.h"

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
  // How long files must be unchanged before a change is reported; at least kLeastDebounce. Files that keep changing are
  // reported every ten of these, and once more at the end.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // How often files are looked at; at least kLeastInterval.
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(200);
  bool operator==(const WatchHow&) const = default;
};

// All functions may be called from any thread and from `changed`, except the destructor, which `changed` must not call.
class FileWatch {
 public:
  // `changed` is called on the watching thread, once after start() in any case. It returns false to be called again without
  // a change.
  explicit FileWatch(std::function<bool()> changed) : changed_(std::move(changed)) {}
  ~FileWatch() { stop(); }

  // Relative paths are resolved now. If it is running, the same as set(). Fails if no thread can be started. A forked child
  // does not watch until it calls this.
  Status start(std::vector<std::string> files, const WatchHow& how);
  // Changes files or settings, if it is running.
  void set(std::vector<std::string> files, const WatchHow& how);
  // When this returns `changed` is not running, except on the calling thread, and is not called again.
  void stop();
  bool running() const;

 private:
  using Clock = std::chrono::steady_clock;
  Status set_if(bool start, std::vector<std::string> files, WatchHow how);
  // A task. Looks at the files, reports a change that is due, and posts the next look, unless another round has begun.
  void look(uint64_t round);

  const std::function<bool()> changed_;
  mutable Mutex lock_{Rank::kTasks};
  Condition idle_;
  std::vector<std::string> files_;
  WatchHow how_;
  bool running_ = false, looking_ = false;
  bool fresh_ = false;  // files or settings have changed
  uint64_t round_ = 0;

  // Used by the task alone.
  std::vector<FileState> seen_;
  bool pending_ = false;            // a change has not been reported
  Clock::time_point first_, last_;  // such changes

  TaskThread thread_{"yard-watch"};
  InChild in_child_{[this] { running_ = looking_ = false, ++round_; }};
};

}  // namespace yard::base
