// SPDX-License-Identifier: Apache-2.0
// Logging: messages, which are counted in a bounded table and passed to the sink once; levels and their grammar
// `info,select=debug`; the default sink.
#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/file.h"
#include "base/fork.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/thread_state.h"

namespace yard::base {
namespace {

// Identifies a message; does not own the text.
struct Key {
  LogLevel level;
  uint32_t slot;
  std::string_view text;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const noexcept {
    return std::hash<std::string_view>()(k.text) * 64 + k.slot * 8 + static_cast<size_t>(k.level);
  }
};

struct Entry {
  LogLevel level;
  uint32_t slot;
  std::string text;
  uint64_t count = 0;
  bool written = false;
};

// The messages of one process. A forked child restarts, since the parent's lock may be held.
struct Table {
  std::mutex mutex;
  std::list<Entry> entries;  // least recently logged first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index;

  Entry& find_or_add(LogLevel level, uint32_t slot, std::string&& text) {
    if (const auto it = index.find({level, slot, text}); it != index.end()) {
      entries.splice(entries.end(), entries, it->second);
      return *it->second;
    }
    if (entries.size() >= kMostMessages) {
      const Entry& oldest = entries.front();
      index.erase({oldest.level, oldest.slot, oldest.text});
      entries.pop_front();
    }
    entries.push_back({level, slot, std::move(text)});
    Entry& e = entries.back();
    try {
      index.emplace(Key{level, slot, e.text}, std::prev(entries.end()));
    } catch (...) {
      entries.pop_back();  // unreachable without the index
      throw;
    }
    return e;
  }
};
constinit PerProcess<Table> g_table;

// The program's sink, null for the default. Changed and read under the table's lock. The old holder is freed after the
// new one is in place, so that a forked child finds a complete one at any time.
struct Holder {
  std::shared_ptr<const LogSink> sink;
};
constinit std::atomic<Holder*> g_sink{nullptr};

// Where the thread is: it may re-enter from a sink, or from an allocator that logs.
enum class Where : char { kOutside, kTable, kSink };
thread_local constinit Where t_where = Where::kOutside;

class Inside {
 public:
  explicit Inside(Where where) noexcept : before_(t_where) { t_where = where; }
  ~Inside() { t_where = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Where before_;
};

void count_and_write(LogLevel level, Logger logger, std::string text, bool again) {
  text = printable_lines(text, kLongestText);
  std::string own = text;  // the table may drop its copy while the sink reads
  LogMessage message{level, logger.name(), own, 0};
  std::shared_ptr<const LogSink> sink;
  {
    const bool from_sink = t_where == Where::kSink;
    const Inside inside(Where::kTable);
    Table& t = g_table.get();
    std::lock_guard lock(t.mutex);
    Entry& e = t.find_or_add(level, logger.slot(), std::move(text));
    message.repeated = again ? 0 : e.count;
    ++e.count;
    if ((e.written && !again) || from_sink) return;
    e.written = true;
    if (const Holder* h = g_sink.load(std::memory_order_acquire)) sink = h->sink;
  }
  const Inside inside(Where::kSink);
  if (sink != nullptr)
    (*sink)(message);
  else
    write_to_stderr(message);
}

void try_to_log(LogLevel level, Logger logger, std::string text, bool again) noexcept {
  if (!log_enabled(logger, level) || t_where == Where::kTable) return;
  const int before = errno;
  const CancellationOff deferred;
  try {
    count_and_write(level, logger, std::move(text), again);
  } catch (...) {
    // A sink threw, or memory is short: the message is dropped.
  }
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
  auto* next = sink ? new base::Holder{std::make_shared<const LogSink>(std::move(sink))} : nullptr;
  base::Holder* old;
  {
    const base::Inside inside(base::Where::kTable);
    std::lock_guard lock(base::g_table.get().mutex);
    old = base::g_sink.exchange(next, std::memory_order_acq_rel);
  }
  delete old;  // outside the lock: its destruction may log
}

std::string printable(std::string_view text, size_t most) { return base::printable(text, most); }

std::vector<LogCount> log_counts() {
  const base::Inside inside(base::Where::kTable);
  base::Table& t = base::g_table.get();
  std::lock_guard lock(t.mutex);
  std::vector<LogCount> counts;
  counts.reserve(t.entries.size());
  for (const base::Entry& e : t.entries)
    counts.push_back({e.level, std::string(base::kLoggers[e.slot - 1]), e.text, e.count});
  return counts;
}

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

// spdlog's own time uses localtime_r or gmtime_r: see UtcTime.
class MessageTime : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const UtcTime t(message.time);
    fmt::format_to(std::back_inserter(to), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.year,
                   t.month, t.day, t.hour, t.minute, t.second, t.millisecond);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<MessageTime>();
  }
};

std::string_view colour_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::err: return "\x1b[31m";
    case spdlog::level::warn: return "\x1b[33m";
    default: return "\x1b[36m";
  }
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

class Stderr : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    spdlog::pattern_formatter formatter;
    formatter.add_flag<MessageTime>('q').set_pattern("%q %^%l%$ yard.%n: %v");
    spdlog::memory_buf_t line;
    formatter.format(message, line);
    if (::isatty(STDERR_FILENO) == 0) return write_all(STDERR_FILENO, line.data(), line.size());
    const std::string_view text(line.data(), line.size());
    const size_t from = message.color_range_start, to = message.color_range_end;
    const std::string coloured =
        fmt::format("{}{}{}\x1b[0m{}", text.substr(0, from), colour_of(message.level),
                    text.substr(from, to - from), text.substr(to));
    write_all(STDERR_FILENO, coloured.data(), coloured.size());
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}
};

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
    case LogLevel::kOff: break;
  }
  return spdlog::level::off;
}

}  // namespace

void write_to_stderr(const LogMessage& m) {
  spdlog::logger logger(std::string(m.logger), std::make_shared<Stderr>());
  logger.set_level(spdlog::level::trace);
  logger.set_error_handler([](const std::string&) {});  // spdlog's own has a lock
  logger.log(level_of(m.level), spdlog::string_view_t(m.text.data(), m.text.size()));
}

}  // namespace yard::base
