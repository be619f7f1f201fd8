// SPDX-License-Identifier: Apache-2.0
#include "base/events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
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

thread_local constinit const Actor* t_actor = nullptr;  // the outermost

// Appends to a file of this user, which may be shared with other processes.
Status append(const std::string& path, std::string_view text) {
  const auto wrong = [&](const char* why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: events cannot be written: {}", path, why));
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
    // One of the processes that find it full renames it.
    while (::flock(file.fd(), LOCK_EX) != 0)
      if (errno != EINTR) return wrong(std::strerror(errno));
    if (::lstat(path.c_str(), &there) == 0 && there.st_ino == info.st_ino &&
        there.st_dev == info.st_dev && ::rename(path.c_str(), (path + ".1").c_str()) != 0)
      return wrong(std::strerror(errno));
  }
}

class EventLog {
 public:
  uint64_t add(Event e) {
    if (e.who.empty()) e.who = Actor::current();
    e.subject = printable(e.subject, kLongestSubject);
    e.reason = printable(e.reason, kLongestReason);
    e.at = std::chrono::system_clock::now(), e.process = ::getpid();
    std::unique_lock lock(lock_);
    const uint64_t id = e.id = last_ + 1;
    make_room(e);
    std::string line = path_.empty() ? "" : to_json(e) + '\n';
    all_.push_back(std::move(e));
    last_ = id;
    if (line.empty()) return id;
    std::string& waiting = waiting_[path_];
    if (waiting.size() > kMostWaiting) return id;  // the disk hangs
    waiting += line;
    lock.unlock();
    thread_.post([this] { flush(); }).ignore();
    return id;
  }

  std::vector<Event> list(uint64_t after) {
    const std::lock_guard lock(lock_);
    auto first = all_.begin();
    while (first != all_.end() && first->id <= after) ++first;
    return {first, all_.end()};
  }

  void forget_details(uint64_t runtime) noexcept {
    const std::lock_guard lock(lock_);
    for (Event& e : all_)
      if (e.runtime == runtime) e.detail = nullptr;
  }

  Status write_to(std::string path) {
    std::error_code none;
    if (!path.empty()) path = std::filesystem::absolute(path, none);
    if (!path.empty()) YARD_RETURN_IF_ERROR(append(path, ""));
    const std::lock_guard lock(lock_);
    path_ = std::move(path);
    return {};
  }

 private:
  // Drops the oldest event of its kind or of its subject if there are too many, or the oldest of all.
  void make_room(const Event& e) {
    size_t of_kind = 0, of_subject = 0;
    auto oldest = all_.end(), oldest_of_subject = all_.end();
    for (auto at = all_.begin(); at != all_.end(); ++at) {
      if (at->kind != e.kind || at->runtime != e.runtime) continue;
      if (of_kind++ == 0) oldest = at;
      if (at->subject == e.subject && of_subject++ == 0) oldest_of_subject = at;
    }
    auto out = all_.end();
    if (of_subject >= e.kind->most_of_subject)
      out = oldest_of_subject;
    else if (of_kind >= e.kind->most)
      out = oldest;
    else if (all_.size() >= kMostEvents)
      out = all_.begin();
    if (out != all_.end()) all_.erase(out);
  }

  void flush() noexcept {
    or_out_of_memory([&] {
      Status failed;
      {
        const std::lock_guard writing(writing_);
        std::map<std::string, std::string> waiting;
        {
          const std::lock_guard lock(lock_);
          waiting.swap(waiting_);
        }
        for (const auto& [path, text] : waiting)
          if (Status s = append(path, text); !s.ok()) failed = std::move(s);
      }
      if (!failed.ok()) log(LogLevel::kError, "telemetry", failed.message());
    }).ignore();
  }

  Mutex writing_{Rank::kOutput}, lock_{Rank::kOutputShard};
  std::deque<Event> all_;
  uint64_t last_ = 0;
  std::string path_;
  std::map<std::string, std::string> waiting_;  // lines that are not written yet, by path
  TaskThread thread_{"yard-events", {.at_end = [this] { flush(); }}};
  const InChild in_child_{[this] { waiting_.clear(); }};  // the parent writes them
};

EventLog& event_log() { return process_wide<EventLog>(); }

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
  const auto added = or_out_of_memory([&] { return Result(event_log().add(std::move(event))); });
  return added.ok() ? *added : 0;
}

std::vector<Event> events(uint64_t after) { return event_log().list(after); }
void forget_details(uint64_t runtime) noexcept { event_log().forget_details(runtime); }
Status write_events_to(const std::string& path) { return event_log().write_to(path); }

Actor::Actor(std::string who) : who_(std::move(who)), outer_(t_actor) {
  if (outer_ == nullptr) t_actor = this;
}
Actor::~Actor() { t_actor = outer_; }
std::string Actor::current() { return t_actor != nullptr ? t_actor->who_ : ""; }

}  // namespace yard::base
