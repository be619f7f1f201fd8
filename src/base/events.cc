// SPDX-License-Identifier: Apache-2.0
#include "base/events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/results.h"
#include "base/tasks.h"
#include "base/text.h"

namespace yard::base {
namespace {

constexpr size_t kMostEvents = 4096, kMostWaiting = size_t{1} << 20;  // bytes
constexpr size_t kLongestSubject = 300, kLongestReason = 1000;

thread_local constinit const Actor* t_actor = nullptr;  // the outermost Actor

// Appends to a file of this user, which other processes may share.
Status append(const std::string& path, std::string_view text) {
  const auto wrong = [&](const char* why) {
    return invalid("{}: events cannot be written: {}", path, why);
  };
  for (;;) {
    constexpr int kFlags = O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const File file =
        make_file([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | kFlags, 0600); });
    struct stat info, there;
    if (!file || ::fstat(file.fd(), &info) != 0)
      return wrong(errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || info.st_nlink > 1)
      return wrong("expected a file of this user alone, or a new one");
    const auto size = static_cast<size_t>(info.st_size);
    if (size == 0 || size + text.size() <= kMostEventBytes) {
      const int error = write_all(file.fd(), text);
      return error == 0 ? Status() : wrong(std::strerror(error));
    }
    // The first process that finds the file full renames it.
    while (::flock(file.fd(), LOCK_EX) != 0)
      if (errno != EINTR) return wrong(std::strerror(errno));
    if (::lstat(path.c_str(), &there) == 0 && there.st_ino == info.st_ino &&
        there.st_dev == info.st_dev && ::rename(path.c_str(), (path + ".1").c_str()) != 0)
      return wrong(std::strerror(errno));
  }
}

struct EventLog {
  Mutex writing{Rank::kOutput}, lock{Rank::kOutputShard};
  std::deque<Event> all;
  uint64_t last = 0;
  std::string path, waiting;  // the file, and lines that are not written to it yet
  TaskThread thread{"yard-events", {.at_end = [this] { flush(); }}};
  const InChild in_child{[this] { waiting.clear(); }};  // the parent writes them

  // If there are too many events, drops the oldest of the subject, of the kind or of all.
  void make_room(const Event& e) {
    const auto drop_if_full = [&](size_t most, const auto& same) {
      if (static_cast<size_t>(std::ranges::count_if(all, same)) < most) return false;
      all.erase(std::ranges::find_if(all, same));
      return true;
    };
    const auto of_kind = [&](const Event& x) { return x.kind == e.kind && x.runtime == e.runtime; };
    const auto of_subject = [&](const Event& x) { return of_kind(x) && x.subject == e.subject; };
    if (drop_if_full(e.kind->most_of_subject, of_subject)) return;
    if (!drop_if_full(e.kind->most, of_kind) && all.size() >= kMostEvents) all.pop_front();
  }

  void flush() noexcept {
    or_out_of_memory([&] {
      Status failed;
      {
        const std::lock_guard one_writer(writing);
        std::string text, to;
        {
          const std::lock_guard hold(lock);
          to = path;
          text.swap(waiting);
        }
        if (!to.empty() && !text.empty()) failed = append(to, text);
      }
      if (!failed.ok()) log(LogLevel::kError, "telemetry", failed.message());
    }).ignore();
  }
};

uint64_t add(Event e) {
  EventLog& log = process_wide<EventLog>();
  if (e.who.empty()) e.who = Actor::current();
  e.subject = printable(e.subject, kLongestSubject);
  e.reason = printable(e.reason, kLongestReason);
  e.at = std::chrono::system_clock::now(), e.process = ::getpid();
  std::unique_lock lock(log.lock);
  const uint64_t id = e.id = log.last + 1;
  log.make_room(e);
  const std::string line = log.path.empty() ? "" : to_json(e) + '\n';
  log.all.push_back(std::move(e));
  log.last = id;
  if (line.empty() || log.waiting.size() > kMostWaiting) return id;  // no file, or the disk hangs
  log.waiting += line;
  lock.unlock();
  log.thread.post([&log] { log.flush(); }).ignore();
  return id;
}

}  // namespace

std::string to_json(const Event& e) {
  JsonObject to;
  to.add("id", e.id).add("time", utc_text(e.at));
  to.add("at", std::chrono::duration<double>(e.at.time_since_epoch()).count());
  to.add("process", e.process).add("runtime", e.runtime).add("kind", e.kind->name);
  to.add("subject", e.subject).add_or_null("reason", e.reason).add_or_null("who", e.who);
  if (e.number != 0) to.add(e.kind == &event::kUndo ? "change" : "version", e.number);
  return to.text();
}

uint64_t record(Event event) noexcept {
  const auto added = or_out_of_memory([&] { return Result(add(std::move(event))); });
  return added.ok() ? *added : 0;
}

std::vector<Event> events(uint64_t after) {
  EventLog& log = process_wide<EventLog>();
  const std::lock_guard lock(log.lock);
  return {std::ranges::upper_bound(log.all, after, {}, &Event::id), log.all.end()};
}

void forget_details(uint64_t runtime) noexcept {
  EventLog& log = process_wide<EventLog>();
  const std::lock_guard lock(log.lock);
  for (Event& e : log.all)
    if (e.runtime == runtime) e.detail = nullptr;
}

Status write_events_to(const std::string& path) {
  std::error_code none;
  const std::string absolute = path.empty() ? path : std::filesystem::absolute(path, none).string();
  if (!path.empty()) YARD_RETURN_IF_ERROR(append(absolute, ""));
  EventLog& log = process_wide<EventLog>();
  log.flush();  // to the file before
  const std::lock_guard lock(log.lock);
  log.path = absolute;
  return {};
}

Actor::Actor(std::string who) : who_(std::move(who)), outer_(t_actor) {
  if (outer_ == nullptr) t_actor = this;
}
Actor::~Actor() { t_actor = outer_; }
std::string Actor::current() { return t_actor != nullptr ? t_actor->who_ : ""; }

}  // namespace yard::base
