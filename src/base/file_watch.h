// SPDX-License-Identifier: Apache-2.0
// Polls files on a background thread. Reports a file that is replaced, written in place, removed or
// created, or reached through another link, after the debounce time without another change, but at
// the latest after ten times this time. The last write is always reported.
#pragma once

#include <yard/config.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/tasks.h"

namespace yard::base {

// Device, inode, size, times of modification and change, and errno of stat().
using FileState = std::array<int64_t, 6>;
std::vector<FileState> file_states(const std::vector<std::string>& files);

// Shorter times are raised to these, which exceed the resolution of file times.
inline constexpr std::chrono::milliseconds kLeastDebounce{20}, kLeastInterval{10};

// All functions are thread-safe. `changed` may call them, but must not destroy the FileWatch. A
// forked child watches the same files from its first call on.
class FileWatch {
 public:
  // The watching thread calls `changed` after start() and after each change, and again if it
  // returned false.
  explicit FileWatch(std::function<bool()> changed) : changed_(std::move(changed)) {}
  ~FileWatch() { stop(); }

  Status start(std::vector<std::string> files, const WatchSettings& how) {
    return watch(std::move(files), how, true);
  }
  // Watches other files. Does nothing if no files are watched.
  void set(std::vector<std::string> files, const WatchSettings& how) {
    watch(std::move(files), how, false).ignore();
  }
  // Waits until `changed` has returned, except on the thread that runs it.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  Status watch(std::vector<std::string> files, WatchSettings how, bool starts);
  // Reports a change that is due. The task that calls this repeats itself while `round` is current.
  // If `round` is 0, sets it to the current one.
  void look(uint64_t& round);

  const std::function<bool()> changed_;
  Mutex lock_{Rank::kTasks};
  Condition idle_;
  std::vector<std::string> files_;  // empty when stopped
  WatchSettings how_;
  uint64_t round_ = 0;              // counts starts and stops; tasks of earlier rounds do nothing
  std::thread::id looking_;         // the thread of a running task
  bool fresh_ = false;              // report even without a change
  bool pending_ = false;            // there are changes that have not been reported
  Clock::time_point first_, last_;  // times of the changes that have not been reported
  std::vector<FileState> seen_;

  TaskThread thread_{"yard-watch",
                     {.in_child = [this, round = uint64_t{0}]() mutable { look(round); }}};
  InChild in_child_{[this] { looking_ = {}, fresh_ = true; }};
};

}  // namespace yard::base
