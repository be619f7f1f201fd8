// SPDX-License-Identifier: Apache-2.0
// Logging: messages, which go to the sink once; levels and their grammar `info,select=debug`; the default sink.
#include "base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "base/file.h"
#include "base/mutex.h"
#include "base/text.h"

namespace yard::base {
namespace {

// What the process has logged, and its sink.
class LogTable {
 public:
  // Whether the message is new. Remembers between half of kMostMessages and all of them, those that come again first.
  bool add(LogLevel level, uint32_t slot, std::string_view text) {
    if (std::exchange(process_, forks()) != forks()) recent_.clear(), older_.clear();
    const uint64_t hash =
        std::hash<std::string_view>()(text) * 64 + slot * 8 + static_cast<uint64_t>(level);
    if (recent_.contains(hash)) return false;
    if (recent_.size() >= kMostMessages / 2) older_ = std::exchange(recent_, {});
    recent_.insert(hash);
    return !older_.contains(hash);
  }
  Mutex lock{Rank::kLog};
  std::shared_ptr<const LogSink> sink;  // null for the default

 private:
  uint64_t process_ = forks();
  std::unordered_set<uint64_t> recent_, older_;
};

LogTable& log_table() {
  static constinit std::once_flag once;
  static constinit LogTable* made = nullptr;  // never destroyed, because threads may log at exit
  std::call_once(once, [] { made = new LogTable; });
  return *made;
}

thread_local constinit bool t_in_sink = false;

void write_once(LogLevel level, Logger logger, std::string text, bool again) {
  text = printable_lines(text, kLongestText);
  std::shared_ptr<const LogSink> sink;
  {
    LogTable& t = log_table();
    const std::lock_guard lock(t.lock);
    if (!t.add(level, logger.slot(), text) && !again) return;
    sink = t.sink;
  }
  const LogMessage message{level, logger.name(), text};
  if (sink == nullptr) return write_to_stderr(message);
  const ForeignCode inside;
  (*sink)(message);
}

void try_to_log(LogLevel level, Logger logger, std::string text, bool again) noexcept {
  if (!log_enabled(logger, level) || t_in_sink) return;
  const int before = errno;
  t_in_sink = true;
  try {
    write_once(level, logger, std::move(text), again);
  } catch (...) {
    // A sink threw, or memory is short: the message is dropped.
  }
  t_in_sink = false;
  errno = before;
}

}  // namespace

void log(LogLevel level, Logger logger, std::string text) noexcept {
  try_to_log(level, logger, std::move(text), false);
}
void log_event(LogLevel level, Logger logger, std::string text) noexcept {
  try_to_log(level, logger, std::move(text), true);
}

}  // namespace yard::base

namespace yard {

void set_log_sink(LogSink sink) {
  auto next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  base::LogTable& t = base::log_table();
  {
    const std::lock_guard lock(t.lock);
    t.sink.swap(next);
  }
  next.reset();  // without the lock, because its destructor may log
}

std::string printable(std::string_view text, size_t most) { return base::printable(text, most); }

namespace {

constexpr LogLevel kLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                                LogLevel::kError, LogLevel::kOff};
constexpr const char* kLevelWords = "debug, info, warn, error or off";
constexpr const char* kEntries = "LEVEL or NAME=LEVEL, with ',' between entries";

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  for (LogLevel l : kLevels) names.emplace_back(to_string(l));
  return names;
}

std::vector<std::string> logger_names() {
  return {std::begin(base::kLoggers), std::end(base::kLoggers)};
}

// Sets one slot; 0 makes it follow the default.
constexpr base::LogLevels with(base::LogLevels levels, uint32_t slot, base::LogLevels level) {
  return (levels & ~(base::LogLevels{15} << (4 * slot))) | level << (4 * slot);
}

void set_slot(uint32_t slot, LogLevel level) noexcept {
  base::LogLevels now = base::g_log_levels.load(std::memory_order_relaxed);
  while (!base::g_log_levels.compare_exchange_weak(
      now, with(now, slot, static_cast<base::LogLevels>(level)), std::memory_order_relaxed)) {
  }
}

std::string no_logger(std::string_view name) {
  if (name.empty()) return "no logger stands before '='; expected NAME=LEVEL";
  if (!base::is_bare_word(name))
    return fmt::format("no logger is called {}; expected {}", base::excerpt(name), kEntries);
  const std::vector<std::string> names = logger_names();
  const std::string hint = base::did_you_mean(base::lower(name), names);
  return fmt::format("no logger is called {}{}", base::excerpt(name),
                     hint.empty() ? "; expected " + base::one_of(names) : hint);
}

// One entry of the grammar, `level` or `name=level`.
class EntryReader {
 public:
  explicit EntryReader(std::vector<std::string>& problems) : problems_(problems) {}

  void read(std::string_view entry) {
    ++number_;
    if (entry.empty()) {
      problems_.push_back(
          fmt::format("entry {} is empty; expected one ',' between entries", number_));
      return;
    }
    const size_t equals = entry.find('=');
    const bool named = equals != std::string_view::npos;
    const std::string name = named ? base::lower(base::trim(entry.substr(0, equals))) : "";
    const std::string_view word = named ? base::trim(entry.substr(equals + 1)) : entry;
    const uint32_t slot = base::logger_slot(name);
    if (named && slot == 0) problems_.push_back(no_logger(name));
    const auto level = parse_log_level(word);
    if (!level) problems_.push_back(no_level(word, named));
    if (!level || (named && slot == 0)) return;
    if ((seen_ & (1u << slot)) != 0)
      problems_.push_back(
          named ? fmt::format("{} has a level already; expected one for each logger", name)
                : "there is a default already; expected one bare level");
    seen_ |= 1u << slot;
    levels_ = with(levels_, slot, static_cast<base::LogLevels>(*level));
  }
  base::LogLevels levels() const { return levels_; }

 private:
  static std::string no_level(std::string_view word, bool named) {
    if (word.empty()) return fmt::format("a level is missing; expected {}", kLevelWords);
    if (!named && base::logger_slot(base::lower(word)) != 0)
      return fmt::format("the logger {} has no level; expected {}=info", word, word);
    if (!base::is_bare_word(word))
      return fmt::format("{} is no level; expected {}", base::excerpt(word), kEntries);
    return fmt::format("{} is no level; expected {}{}", base::excerpt(word), kLevelWords,
                       base::did_you_mean(base::lower(word), level_names()));
  }

  std::vector<std::string>& problems_;
  base::LogLevels levels_ = base::kInitialLevels;
  uint32_t seen_ = 0, number_ = 0;
};

}  // namespace

const char* to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarn: return "warn";
    case LogLevel::kError: return "error";
    case LogLevel::kOff: return "off";
  }
  return "?";
}

std::optional<LogLevel> parse_log_level(std::string_view text) noexcept {
  for (LogLevel l : kLevels)
    if (base::same_word(text, to_string(l))) return l;
  if (base::same_word(text, "warning")) return LogLevel::kWarn;
  return std::nullopt;
}

void set_log_level(LogLevel level) noexcept { set_slot(0, level); }

Status set_log_level(std::string_view logger, LogLevel level) {
  const uint32_t slot = base::logger_slot(logger);
  if (slot == 0) return Status(Code::kNotFound, no_logger(logger));
  set_slot(slot, level);
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

namespace yard::base {

constinit std::atomic<LogLevels> g_log_levels{kInitialLevels};

LogLevels parse_log_levels(std::string_view text, std::vector<std::string>& problems) {
  if (trim(text).empty()) return kInitialLevels;
  EntryReader reader(problems);
  for (std::string_view entry : split(text, ',')) reader.read(entry);
  return reader.levels();
}

namespace {

const char* colour_of(LogLevel level) {
  return level == LogLevel::kError  ? "\x1b[31m"
         : level == LogLevel::kWarn ? "\x1b[33m"
                                    : "\x1b[36m";
}

void write_all(int file, const char* data, size_t size) {
  const WithoutWriteSignals without_signals;
  while (size > 0) {
    const ssize_t n = ::write(file, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nowhere to report it
    data += n;
    size -= static_cast<size_t>(n);
  }
}

}  // namespace

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

void write_to_stderr(const LogMessage& m) {
  const bool coloured = ::isatty(STDERR_FILENO) != 0;
  const std::string line =
      fmt::format("{} {}{}{} yard.{}: {}\n", utc_text(std::chrono::system_clock::now()),
                  coloured ? colour_of(m.level) : "", to_string(m.level), coloured ? "\x1b[0m" : "",
                  m.logger, m.text);
  write_all(STDERR_FILENO, line.data(), line.size());
}

}  // namespace yard::base
