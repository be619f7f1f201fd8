// SPDX-License-Identifier: Apache-2.0
// Polls a set of files on a background thread and reports changes: replaced, written in place,
// reached through another link, removed, or created. The last write is always reported.
#pragma once

#include <yard/status.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/tasks.h"

namespace yard::base {

// The results of stat() for a file: device, inode, size, two times, and errno.
using FileState = std::array<int64_t, 6>;
std::vector<FileState> file_states(const std::vector<std::string>& files);

struct WatchHow {
  // A change is reported after this time without another one, or after ten times as long.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(200);
  bool operator==(const WatchHow&) const = default;
};
// Shorter times count as these, which are longer than the resolution of file times.
inline constexpr std::chrono::milliseconds kLeastDebounce{20}, kLeastInterval{10};

// Any thread may call all functions, also from `changed`, which must not end this. A forked child
// watches the same files from its first call on.
class FileWatch {
 public:
  // `changed` is called on the watching thread, first after start(). It returns false to be called
  // again without a change.
  explicit FileWatch(std::function<bool()> changed) : changed_(std::move(changed)) {}
  ~FileWatch() { stop(); }

  // Resolves relative paths. Fails if no thread can be started.
  Status start(std::vector<std::string> files, const WatchHow& how) {
    return watch(std::move(files), how, true);
  }
  // Watches other files, but does nothing if none are watched.
  void set(std::vector<std::string> files, const WatchHow& how) {
    watch(std::move(files), how, false).ignore();
  }
  // Waits until `changed` is not running, except on the calling thread.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  Status watch(std::vector<std::string> files, WatchHow how, bool starts);
  Status post(Clock::time_point when, uint64_t round) {
    return thread_.post_at(when, [this, round]() mutable { look(round); });
  }
  // A task: reports a change that is due, and repeats itself. Round 0 becomes the current one.
  void look(uint64_t& round);

  const std::function<bool()> changed_;
  Mutex lock_{Rank::kTasks};  // of the following
  Condition idle_;
  std::vector<std::string> files_;  // empty if it is stopped
  WatchHow how_;
  uint64_t round_ = 0;              // counts starts and stops; tasks of earlier rounds do nothing
  std::thread::id looking_;         // the thread of a running task
  bool fresh_ = false;              // to be reported without a change
  bool pending_ = false;            // a change has not been reported
  Clock::time_point first_, last_;  // such changes
  std::vector<FileState> seen_;

  TaskThread thread_{"yard-watch",
                     {.in_child = [this, round = uint64_t{0}]() mutable { look(round); }}};
  InChild in_child_{[this] { looking_ = {}, fresh_ = true; }};
};

}  // namespace yard::base
