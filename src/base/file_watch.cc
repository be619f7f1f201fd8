// SPDX-License-Identifier: Apache-2.0
#include "base/file_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/results.h"

namespace yard::base {

std::vector<FileState> file_states(const std::vector<std::string>& files) {
  const auto nanos = [](const timespec& t) { return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec; };
  std::vector<FileState> states;
  for (const std::string& f : files) {
    struct stat s {};
    const int error = ::stat(f.c_str(), &s) != 0 ? errno : 0;
    states.push_back({static_cast<int64_t>(s.st_dev), static_cast<int64_t>(s.st_ino), s.st_size,
                      nanos(s.st_mtim), nanos(s.st_ctim), error});
  }
  return states;
}

Status FileWatch::watch(std::vector<std::string> files, WatchSettings how, bool starts) {
  using std::chrono::nanoseconds;
  constexpr std::chrono::hours kLongest(24);
  how.debounce = std::clamp<nanoseconds>(how.debounce, kLeastDebounce, kLongest);
  how.poll_interval = std::clamp<nanoseconds>(how.poll_interval, kLeastInterval, kLongest);
  for (std::string& f : files) {
    std::error_code none;
    if (const auto path = std::filesystem::absolute(f, none); !none) f = path.string();
  }
  std::unique_lock lock(lock_);
  const bool same =
      files == files_ && how.debounce == how_.debounce && how.poll_interval == how_.poll_interval;
  if (same || (files_.empty() && !starts)) return {};
  files_ = std::move(files), how_ = how, fresh_ = true;
  const uint64_t round = ++round_;
  lock.unlock();
  Status posted =
      thread_.post_at(Clock::now(), [this, task_round = round]() mutable { look(task_round); });
  lock.lock();
  if (!posted.ok() && round_ == round) files_.clear();
  return posted;
}

void FileWatch::stop() {
  std::unique_lock lock(lock_);
  files_.clear(), ++round_;
  const auto here = std::this_thread::get_id();
  idle_.wait(lock, [&] { return looking_ == std::thread::id() || looking_ == here; });
}

void FileWatch::look(uint64_t& round) {
  std::unique_lock lock(lock_);
  if (round == 0) round = round_;
  if (round != round_ || files_.empty()) return;
  thread_.repeat_at(Clock::now() + how_.poll_interval);  // even if memory runs out below
  const auto files = files_;
  lock.unlock();
  auto states = file_states(files);
  lock.lock();
  if (round != round_) return;
  looking_ = std::this_thread::get_id();
  auto next = Clock::now();
  if (std::exchange(fresh_, false) || states != seen_) {
    last_ = next;
    if (!std::exchange(pending_, true)) first_ = next;
    seen_ = std::move(states);
  }
  const bool settled = next >= last_ + how_.debounce;
  if (pending_ && (settled || next >= first_ + 10 * how_.debounce)) {
    // A file that is still changing may be incomplete, so report it again later.
    pending_ = !settled, first_ = next;
    lock.unlock();
    const uint64_t process = forks();
    bool again = true;
    const Status called = or_out_of_memory([&] { again = !changed_(); });
    if (forks() != process) return;  // this is a child, whose own thread watches
    lock.lock();
    if (round == round_) fresh_ = again;
    if (!called.ok()) next = Clock::now() + how_.poll_interval;
  }
  if (!fresh_) next = Clock::now() + how_.poll_interval;
  if (pending_) next = std::min({next, last_ + how_.debounce, first_ + 10 * how_.debounce});
  looking_ = {};
  idle_.notify_all();
  if (round == round_) thread_.repeat_at(next);
}

}  // namespace yard::base
