// SPDX-License-Identifier: Apache-2.0
#include "base/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

namespace yard::base {
namespace {

constexpr std::chrono::hours kLongestPoll{24};

std::vector<std::string> absolute(std::vector<std::string> files) {
  for (std::string& f : files) {
    std::error_code none;
    const auto path = std::filesystem::absolute(f, none);
    if (!none) f = path.string();
  }
  return files;
}

}  // namespace

std::vector<FileState> file_states(const std::vector<std::string>& files) {
  const auto nanos = [](const timespec& t) { return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec; };
  std::vector<FileState> states;
  for (const std::string& f : files) {
    struct stat s {};
    if (::stat(f.c_str(), &s) != 0)
      states.push_back({.error = errno});
    else
      states.push_back({s.st_dev, s.st_ino, s.st_size, nanos(s.st_mtim), nanos(s.st_ctim), 0});
  }
  return states;
}

Status FileWatch::set_if(bool start, std::vector<std::string> files, WatchHow how) {
  files = absolute(std::move(files));
  how.debounce = std::clamp<std::chrono::nanoseconds>(how.debounce, kLeastDebounce, kLongestPoll);
  how.poll_interval =
      std::clamp<std::chrono::nanoseconds>(how.poll_interval, kLeastInterval, kLongestPoll);
  uint64_t round = 0;
  {
    const std::lock_guard lock(lock_);
    if (!running_ && !start) return {};
    if (std::exchange(running_, true) && files == files_ && how == how_) return {};
    files_ = std::move(files), how_ = how;
    fresh_ = true;
    round = ++round_;
  }
  Status posted = thread_.post([this, round] { look(round); });
  if (posted.ok()) return posted;
  const std::lock_guard lock(lock_);
  if (round_ == round) running_ = false;
  return posted;
}

Status FileWatch::start(std::vector<std::string> files, const WatchHow& how) {
  return set_if(true, std::move(files), how);
}
void FileWatch::set(std::vector<std::string> files, const WatchHow& how) {
  set_if(false, std::move(files), how).ignore();
}

void FileWatch::stop() {
  const bool here = thread_.here();
  std::unique_lock lock(lock_);
  running_ = false, ++round_;
  if (!here) idle_.wait(lock, [this] { return !looking_; });
}

bool FileWatch::running() const {
  const std::lock_guard lock(lock_);
  return running_;
}

void FileWatch::look(uint64_t round) {
  std::vector<std::string> files;
  WatchHow how;
  bool touched = false;
  {
    const std::lock_guard lock(lock_);
    if (round != round_) return;
    files = files_, how = how_;
    touched = std::exchange(fresh_, false);
    looking_ = true;
  }
  auto states = file_states(files);
  const auto now = Clock::now();
  if (touched || states != seen_) {
    last_ = now;
    if (!std::exchange(pending_, true)) first_ = now;
    seen_ = std::move(states);
  }
  const bool settled = now >= last_ + how.debounce;
  bool again = false;
  if (pending_ && (settled || now >= first_ + 10 * how.debounce)) {
    // A file that is still changing may be incomplete, so it is reported again later.
    pending_ = !settled, first_ = now;
    const uint64_t process = forks();
    again = !changed_();
    if (forks() != process) return;  // this is a child, which does not watch
  }
  auto next = Clock::now() + how.poll_interval;
  if (pending_) next = std::min({next, last_ + how.debounce, first_ + 10 * how.debounce});
  {
    const std::lock_guard lock(lock_);
    looking_ = false;
    fresh_ |= again;
    idle_.notify_all();
    if (round != round_) return;
  }
  if (again) next = Clock::now();
  thread_.post_at(next, [this, round] { look(round); }).ignore();
}

}  // namespace yard::base
