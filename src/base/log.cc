// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <unordered_set>

#include "base/file.h"
#include "base/mutex.h"
#include "base/text.h"

namespace yard::base {

constinit std::atomic<LogLevels> g_log_levels{kInitialLevels};

namespace {

std::atomic<uint64_t> g_dropped{0};  // lines for standard error

struct LogTable {
  Mutex lock{Rank::kLog};
  std::shared_ptr<const LogSink> sink;  // null for the default sink
  uint64_t process = forks();
  std::unordered_set<uint64_t> recent, older;  // hashes of messages

  // Returns whether the message is new. Remembers at least the last kMostMessages / 2 messages.
  bool add(LogLevel level, uint32_t slot, std::string_view text) {
    if (std::exchange(process, forks()) != forks()) recent.clear(), older.clear();
    const uint64_t hash =
        std::hash<std::string_view>()(text) * 64 + slot * 8 + static_cast<uint64_t>(level);
    if (recent.contains(hash)) return false;
    if (recent.size() >= kMostMessages / 2) older = std::exchange(recent, {});
    recent.insert(hash);
    return !older.contains(hash);
  }
};

void write_to_stderr(const LogMessage& m) {
  std::string level = to_string(m.level);
  if (::isatty(STDERR_FILENO) != 0) {
    constexpr int kColours[] = {36, 36, 33, 31};  // from debug to error
    level = fmt::format("\x1b[{}m{}\x1b[0m", kColours[static_cast<int>(m.level) - 1], level);
  }
  const std::string time = utc_text(std::chrono::system_clock::now());
  write_or_drop_lines(fmt::format("{} {} yard.{}: {}\n", time, level, m.logger, m.text));
}

void write(LogLevel level, Logger logger, std::string_view raw, bool again) {
  const std::string text = printable_lines(raw, kLongestText);
  LogTable& t = process_wide<LogTable>();
  std::unique_lock lock(t.lock);
  if (!t.add(level, logger.slot, text) && !again) return;
  const auto sink = t.sink;
  lock.unlock();
  const LogMessage message{level, logger.name(), text};
  const ForeignCode inside;
  sink != nullptr ? (*sink)(message) : write_to_stderr(message);
}

constexpr const char* kLevels[] = {"debug", "info", "warn", "error", "off"};  // from 1
constexpr const char* kEntries = "LEVEL or NAME=LEVEL, with ',' between entries";

constexpr LogLevels with(LogLevels levels, uint32_t slot, LogLevel level) {
  return (levels & ~(LogLevels{15} << (4 * slot))) | static_cast<LogLevels>(level) << (4 * slot);
}

void set_slot(uint32_t slot, LogLevel level) noexcept {
  LogLevels now = g_log_levels.load(std::memory_order_relaxed);
  while (!g_log_levels.compare_exchange_weak(now, with(now, slot, level))) {
  }
}

std::string no_logger(std::string_view name) {
  if (name.empty()) return "no logger stands before '='; expected NAME=LEVEL";
  const std::vector<std::string> names(std::begin(kLoggers), std::end(kLoggers));
  std::string hint = did_you_mean(lower(name), names);
  if (!is_bare_word(name)) hint = fmt::format("; expected {}", kEntries);
  if (hint.empty()) hint = "; expected " + one_of(names);
  return fmt::format("no logger is called {}{}", excerpt(name), hint);
}

std::string no_level(std::string_view word, bool named) {
  const std::vector<std::string> names(std::begin(kLevels), std::end(kLevels));
  if (word.empty()) return fmt::format("a level is missing; expected {}", one_of(names));
  if (!named && logger_slot(lower(word)) != 0)
    return fmt::format("the logger {} has no level; expected {}=info", word, word);
  if (!is_bare_word(word))
    return fmt::format("{} is not a level; expected {}", excerpt(word), kEntries);
  return fmt::format("{} is not a level; expected {}{}", excerpt(word), one_of(names),
                     did_you_mean(lower(word), names));
}

}  // namespace

size_t write_some_lines(std::string_view lines) {
  struct stat info;
  if (::fstat(STDERR_FILENO, &info) != 0) return lines.size();
  const bool is_file = S_ISREG(info.st_mode);
  // Opens the pipe or terminal again, because O_NONBLOCK on standard error itself would affect the
  // program and other processes.
  const File own(is_file ? -1
                         : ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  for (size_t done = 0; done < lines.size();) {
    // A pipe that poll() calls writable takes PIPE_BUF bytes as a whole.
    std::string_view piece = lines.substr(done, PIPE_BUF);
    if (const size_t end = piece.rfind('\n'); end != piece.npos) piece = piece.substr(0, end + 1);
    if (::send(STDERR_FILENO, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == EAGAIN) return done;
      if (errno != ENOTSOCK) break;
      pollfd one{STDERR_FILENO, POLLOUT, 0};
      if (::poll(&one, 1, 0) == 0) return done;
      const int error = write_all(own ? own.fd() : STDERR_FILENO, piece);
      if (error == ETIMEDOUT) return done;
      if (error != 0) break;
    }
    done += piece.size();
  }
  return lines.size();  // errors cannot be reported anywhere
}

void count_dropped_lines(std::string_view lines) noexcept {
  g_dropped.fetch_add(static_cast<uint64_t>(std::ranges::count(lines, '\n')));
}

void write_or_drop_lines(std::string_view lines) {
  const uint64_t dropped = g_dropped.exchange(0);
  if (dropped == 0 && lines.empty()) return;
  const std::string notice =
      dropped == 0
          ? ""
          : fmt::format("yard: {} lines were dropped, because standard error took no more\n",
                        dropped);
  const size_t done = write_some_lines(notice + std::string(lines));
  if (done < notice.size()) g_dropped.fetch_add(dropped);
  count_dropped_lines(lines.substr(std::max(done, notice.size()) - notice.size()));
}

void log(LogLevel level, Logger logger, std::string_view text, bool again) noexcept {
  static thread_local constinit bool t_in_sink = false;
  if (!log_enabled(logger, level) || t_in_sink) return;
  const int before = errno;
  t_in_sink = true;
  try {
    write(level, logger, text, again);
  } catch (...) {  // a sink threw or memory ran out, so the message is dropped
  }
  t_in_sink = false;
  errno = before;
}

LogLevels parse_log_levels(std::string_view text, std::vector<std::string>& problems) {
  LogLevels levels = kInitialLevels;
  if (trim(text).empty()) return levels;
  uint32_t seen = 0, number = 0;
  for (const std::string_view entry : split(text, ',')) {
    ++number;
    const size_t equals = entry.find('=');
    const bool named = equals != entry.npos;
    const std::string name = named ? lower(trim(entry.substr(0, equals))) : "";
    const std::string_view word = named ? trim(entry.substr(equals + 1)) : entry;
    const uint32_t slot = logger_slot(name);
    const auto level = parse_log_level(word);
    if (named && slot == 0) problems.push_back(no_logger(name));
    if (entry.empty())
      problems.push_back(
          fmt::format("entry {} is empty; expected one ',' between entries", number));
    else if (!level)
      problems.push_back(no_level(word, named));
    if (!level || (named && slot == 0)) continue;
    if ((seen & (1u << slot)) != 0)
      problems.push_back(
          named ? fmt::format("{} has a level already; expected one for each logger", name)
                : "there is a default already; expected one bare level");
    seen |= 1u << slot;
    levels = with(levels, slot, *level);
  }
  return levels;
}

std::string utc_text(std::chrono::system_clock::time_point at) {
  using namespace std::chrono;
  const auto day = floor<days>(at);
  const year_month_day date(day);
  const hh_mm_ss time(floor<milliseconds>(at) - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     time.hours().count(), time.minutes().count(), time.seconds().count(),
                     time.subseconds().count());
}

}  // namespace yard::base

namespace yard {

void set_log_sink(LogSink sink) {
  // Free the old sink after the lock, because its destructor may log.
  auto next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  base::LogTable& t = base::process_wide<base::LogTable>();
  const std::lock_guard lock(t.lock);
  t.sink.swap(next);
}

std::string printable(std::string_view text, size_t most) { return base::printable(text, most); }

const char* to_string(LogLevel level) noexcept {
  const size_t i = static_cast<size_t>(level) - 1;
  return i < std::size(base::kLevels) ? base::kLevels[i] : "?";
}

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept {
  if (base::same_word(text, "warning")) return LogLevel::kWarn;
  for (size_t i = 0; i < std::size(base::kLevels); ++i)
    if (base::same_word(text, base::kLevels[i])) return static_cast<LogLevel>(i + 1);
  return std::nullopt;
}

void set_log_level(LogLevel level) noexcept { base::set_slot(0, level); }

Status set_log_level(std::string_view logger, LogLevel level) {
  const uint32_t slot = base::logger_slot(logger);
  if (slot == 0) return Status(Code::kNotFound, base::no_logger(logger));
  base::set_slot(slot, level);
  return {};
}

LogLevel log_level(std::string_view logger) noexcept {
  const base::LogLevels levels = base::g_log_levels.load(std::memory_order_relaxed);
  return static_cast<LogLevel>(base::level_in_slot(levels, base::logger_slot(logger)));
}

std::vector<std::string_view> loggers() {
  return {std::begin(base::kLoggers), std::end(base::kLoggers)};
}

Status apply_log_levels(std::string_view text) {
  std::vector<std::string> problems;
  const base::LogLevels levels = base::parse_log_levels(text, problems);
  if (problems.empty()) {
    base::g_log_levels.store(levels, std::memory_order_relaxed);
    return {};
  }
  Status status(Code::kParse, "log levels: " + problems.front());
  for (size_t i = 1; i < problems.size(); ++i) status.note(std::move(problems[i]));
  return status;
}

}  // namespace yard
