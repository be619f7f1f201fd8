// SPDX-License-Identifier: Apache-2.0
#include "base/file_watcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/directory_watch.h"
#include "base/file.h"
#include "base/log.h"
#include "base/this_process.h"

namespace yard::base {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Longer than a tick of the clock that files are stamped by.
constexpr milliseconds kLeastDebounce{20}, kLeastInterval{10};
constexpr std::chrono::hours kLongestPoll{24};
// Between looks at events of a directory in which others are busy.
constexpr milliseconds kPause{10};

std::string why() { return std::generic_category().message(errno); }

std::vector<std::string> absolute(std::vector<std::string> files) {
  for (std::string& f : files) {
    std::error_code none;
    const auto path = std::filesystem::absolute(f, none);
    if (!none) f = path.string();
  }
  return files;
}

}  // namespace

std::vector<FileMark> look_at(const std::vector<std::string>& files) {
  const auto nanos = [](const timespec& t) { return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec; };
  std::vector<FileMark> marks;
  for (const std::string& f : files) {
    struct stat s {};
    if (::stat(f.c_str(), &s) != 0)
      marks.push_back({.error = errno});
    else
      marks.push_back({s.st_dev, s.st_ino, s.st_size, nanos(s.st_mtim), nanos(s.st_ctim), 0});
  }
  return marks;
}

class FileWatcher::Worker {
 public:
  Worker(std::function<bool()> changed, int wake) : changed_(std::move(changed)), wake_(wake) {}

  void set(std::vector<std::string> files, const WatchHow& how) {
    {
      const std::lock_guard lock(lock_);
      if (files == files_ && how == how_) return;
      files_ = std::move(files), how_ = how;
      fresh_ = true;
    }
    ring();
  }
  void halt() {
    {
      const std::lock_guard lock(lock_);
      halted_ = true;
    }
    ring();
  }
  void run();

 private:
  void ring() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_.fd(), &one, sizeof one);
  }
  // Takes over what set() has left; false when halted.
  bool take(bool& fresh);
  void choose_way();
  // Until something may have happened or the time has come; true if files may have changed.
  bool wait(std::optional<Clock::time_point> until);
  std::optional<Clock::duration> interval() const;

  const std::function<bool()> changed_;
  const File wake_;
  std::mutex lock_;
  std::vector<std::string> files_;
  WatchHow how_;
  bool fresh_ = false, halted_ = false;

  // Of the thread.
  std::vector<std::string> watched_;
  WatchHow way_;
  DirectoryWatch directories_;
};

bool FileWatcher::Worker::take(bool& fresh) {
  const std::lock_guard lock(lock_);
  if (halted_) return false;
  fresh = std::exchange(fresh_, false);
  if (fresh) watched_ = files_, way_ = how_;
  return true;
}

void FileWatcher::Worker::choose_way() {
  way_.debounce = std::clamp<std::chrono::nanoseconds>(way_.debounce, kLeastDebounce, kLongestPoll);
  way_.poll_interval =
      std::clamp<std::chrono::nanoseconds>(way_.poll_interval, kLeastInterval, kLongestPoll);
  if (way_.way == Watch::kPoll) return directories_.close();
  if (!directories_.open())
    log(LogLevel::kWarn, "base",
        fmt::format("there is no inotify ({}): files are looked at every {} ms", why(),
                    way_.poll_interval / milliseconds(1)));
}

std::optional<Clock::duration> FileWatcher::Worker::interval() const {
  if (!directories_.is_open() || !directories_.complete()) return way_.poll_interval;
  if (way_.way == Watch::kInotify) return std::nullopt;
  return 10 * way_.poll_interval;
}

bool FileWatcher::Worker::wait(std::optional<Clock::time_point> until) {
  const auto now = Clock::now();
  const auto next = interval();
  if (!until || (next && now + *next < *until))
    until = next ? std::optional(now + *next) : std::nullopt;
  int timeout = -1;
  if (until) {
    const auto left = std::chrono::ceil<milliseconds>(*until - now).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 3600 * 1000));  // then it looks again
  }
  pollfd fds[] = {{wake_.fd(), POLLIN, 0}, {directories_.fd(), POLLIN, 0}};
  const nfds_t count = directories_.is_open() ? 2 : 1;
  ::poll(fds, count, timeout);
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_.fd(), &rung, sizeof rung);
  if (count < 2 || (fds[1].revents & POLLIN) == 0) return false;
  if (directories_.drain()) return true;
  if (rung == 0) ::poll(fds, 1, static_cast<int>(kPause.count()));
  return false;
}

void FileWatcher::Worker::run() {
  std::vector<FileMark> seen;
  bool pending = false, touched = false;
  Clock::time_point first, last;  // change that has not been reported
  const uint64_t process = forks();
  for (bool fresh = false; take(fresh);) {
    if (fresh) choose_way();
    touched |= fresh;
    if (touched && directories_.is_open()) directories_.follow(watched_);
    auto marks = look_at(watched_);
    if (!touched && marks != seen && directories_.is_open()) {
      // Without an event: the way to the files may be another one.
      directories_.follow(watched_);
      marks = look_at(watched_);
    }
    const auto now = Clock::now();
    if (touched || marks != seen) {
      last = now;
      if (!pending) first = now;
      pending = true;
      seen = std::move(marks);
    }
    touched = false;
    const bool rested = now >= last + way_.debounce;
    if (pending && (rested || now >= first + 10 * way_.debounce)) {
      // One that has not rested may be half of something: it is reported again when it has.
      pending = !rested;
      first = now;
      touched = !changed_();
      if (forks() != process) return;  // a child that was born in there: the files are its parent's
      continue;
    }
    if (pending)
      touched = wait(std::min(last + way_.debounce, first + 10 * way_.debounce));
    else
      touched = wait(std::nullopt);
  }
}

Status FileWatcher::start(std::vector<std::string> files, const WatchHow& how) {
  files = absolute(std::move(files));
  Control& c = control_.get();
  const std::lock_guard lock(c.lock);
  if (c.worker != nullptr) {
    c.worker->set(std::move(files), how);
    return {};
  }
  if (how.way == Watch::kInotify && !DirectoryWatch().open())
    return Status(Code::kUnsupported,
                  fmt::format("inotify is not available: {}; expected watch: auto or poll", why()));
  const int wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake < 0)
    return Status(Code::kUnsupported, fmt::format("files cannot be watched: {}", why()));
  const auto worker = std::make_shared<Worker>(changed_, wake);
  worker->set(std::move(files), how);
  auto started = Background::start(
      "yard-watch", [worker] { worker->run(); }, [worker] { worker->halt(); });
  if (!started.ok()) return std::move(started).status();
  c.threads.push_back(*std::move(started));
  c.worker = worker;
  return {};
}

void FileWatcher::set(std::vector<std::string> files, const WatchHow& how) {
  files = absolute(std::move(files));
  Control& c = control_.get();
  const std::lock_guard lock(c.lock);
  if (c.worker != nullptr) c.worker->set(std::move(files), how);
}

void FileWatcher::stop() {
  Control& c = control_.get();
  std::vector<std::shared_ptr<Background>> threads;
  {
    const std::lock_guard lock(c.lock);
    if (c.worker != nullptr) c.worker->halt();
    c.worker.reset();
    threads = c.threads;
  }
  for (const auto& t : threads) t->wait();
  const std::lock_guard lock(c.lock);
  std::erase_if(c.threads, [&](const auto& t) {
    return !t->here() && std::find(threads.begin(), threads.end(), t) != threads.end();
  });
}

bool FileWatcher::running() {
  Control& c = control_.get();
  const std::lock_guard lock(c.lock);
  return c.worker != nullptr;
}

FileWatcher::~FileWatcher() { stop(); }

}  // namespace yard::base
