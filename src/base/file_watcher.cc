// SPDX-License-Identifier: Apache-2.0
#include "base/file_watcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/lists.h"
#include "base/log.h"
#include "base/trusted_path.h"

namespace yard::base {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::hours kLongestPoll{24};
// Between reads of events in a directory that is busy with other files.
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

constexpr uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY |
                             IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF;

}  // namespace

// inotify on the directories of a set of files, and of every symbolic link on the way to them, so that a change of what
// a path refers to is noticed. Other directories on the way are not watched: that one of them is replaced is noticed by
// polling. Used by one thread.
class DirectoryWatch {
 public:
  // False, with errno, if inotify is not available.
  bool open();
  bool is_open() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.fd(); }
  void close();

  // Watches absolute paths, also where a component is missing. No event after a directory was read is lost.
  void follow(const std::vector<std::string>& files);
  // Whether every directory could be watched.
  bool complete() const noexcept { return complete_; }

  // Reads the events; true if some concern a watched path. Then call follow() again.
  bool drain();

 private:
  using Names = std::map<int, std::set<std::string>>;  // by watch: relevant names in the directory
  void walk(const std::string& path, Names& names);

  File fd_;
  Names names_;
  bool complete_ = true;
};

bool DirectoryWatch::open() {
  if (!fd_) fd_ = File(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  return is_open();
}

void DirectoryWatch::close() {
  fd_ = File();
  names_.clear();
  complete_ = true;
}

void DirectoryWatch::walk(const std::string& path, Names& names) {
  std::string real;
  bool appeared = false;
  base::follow(path, real, [&](const PathEntry& at) {
    if (S_ISDIR(at.info.st_mode) && !at.last) return true;  // a directory on the way
    // Watched before a link is read, so that a change in between is an event.
    const int watch = ::inotify_add_watch(fd(), at.directory.c_str(), kEvents | IN_ONLYDIR);
    if (watch >= 0)
      names[watch].insert(at.path.substr(at.path.rfind('/') + 1));
    else if (errno != ENOENT && errno != ENOTDIR)
      complete_ = false;
    struct stat now;
    appeared = at.info.st_mode == 0 && ::lstat(at.path.c_str(), &now) == 0;
    return true;
  });
  if (appeared) walk(path, names);  // before it was watched
}

void DirectoryWatch::follow(const std::vector<std::string>& files) {
  complete_ = true;
  Names names;
  for (const std::string& file : files) walk(file, names);
  for (const auto& [watch, old] : names_)
    if (names.count(watch) == 0) ::inotify_rm_watch(fd(), watch);
  names_ = std::move(names);
}

bool DirectoryWatch::drain() {
  bool relevant = false;
  alignas(inotify_event) char buffer[16384];
  for (;;) {
    const ssize_t size = ::read(fd(), buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return relevant;
    for (ssize_t i = 0; i < size;) {
      inotify_event e;
      std::memcpy(&e, buffer + i, sizeof e);
      const char* name = buffer + i + sizeof e;
      i += static_cast<ssize_t>(sizeof e + e.len);
      if ((e.mask & IN_Q_OVERFLOW) != 0) relevant = true;
      const auto it = names_.find(e.wd);
      if (it == names_.end()) continue;
      // Without a name it concerns the directory itself.
      if (e.len == 0 || it->second.count(name) != 0) relevant = true;
    }
  }
}

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
  // Takes over what set() has stored; false when halted.
  bool take(bool& fresh);
  void choose_way();
  // Waits for an event or a time; true if files may have changed.
  bool wait(std::optional<Clock::time_point> until);
  std::optional<Clock::duration> interval() const;

  const std::function<bool()> changed_;
  const File wake_;
  std::mutex lock_;
  std::vector<std::string> files_;
  WatchHow how_;
  bool fresh_ = false, halted_ = false;

  // Used by the thread only.
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
        fmt::format("inotify is not available ({}): files are checked every {} ms", why(),
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
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 3600 * 1000));  // then it checks again
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
  std::vector<FileState> seen;
  bool pending = false, touched = false;
  Clock::time_point first, last;  // change that has not been reported
  const uint64_t process = forks();
  for (bool fresh = false; take(fresh);) {
    if (fresh) choose_way();
    touched |= fresh;
    if (touched && directories_.is_open()) directories_.follow(watched_);
    auto states = file_states(watched_);
    if (!touched && states != seen && directories_.is_open()) {
      // Without an event: the path may lead elsewhere now.
      directories_.follow(watched_);
      states = file_states(watched_);
    }
    const auto now = Clock::now();
    if (touched || states != seen) {
      last = now;
      if (!pending) first = now;
      pending = true;
      seen = std::move(states);
    }
    touched = false;
    const bool settled = now >= last + way_.debounce;
    if (pending && (settled || now >= first + 10 * way_.debounce)) {
      // A file that is still changing may be incomplete: it is reported again later.
      pending = !settled;
      first = now;
      touched = !changed_();
      if (forks() != process) return;  // a forked child does not watch
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
  auto started = BackgroundThread::start(
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
  std::vector<std::shared_ptr<BackgroundThread>> threads;
  {
    const std::lock_guard lock(c.lock);
    if (c.worker != nullptr) c.worker->halt();
    c.worker.reset();
    threads = c.threads;
  }
  for (const auto& t : threads) t->wait();
  const std::lock_guard lock(c.lock);
  std::erase_if(c.threads, [&](const auto& t) { return !t->here() && contains(threads, t); });
}

bool FileWatcher::running() {
  Control& c = control_.get();
  const std::lock_guard lock(c.lock);
  return c.worker != nullptr;
}

FileWatcher::~FileWatcher() { stop(); }

}  // namespace yard::base
