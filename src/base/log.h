// SPDX-License-Identifier: Apache-2.0
// Log messages, and a cheap test whether they would be written.
//
//   if (base::log_enabled("select", LogLevel::kInfo))
//     base::log(LogLevel::kInfo, "select", fmt::format("Op '{}' using '{}'", op, id));
//
// A message costs an allocation and a lock, so calls whose plan is known write none.
#pragma once

#include <yard/log.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yard::base {

inline constexpr std::string_view kLoggers[] = {
    "base", "core",   "op",       "telemetry", "registry", "policy",  "health", "select",
    "exec", "plugin", "dispatch", "verify",    "runtime",  "inspect", "backend"};
inline constexpr uint32_t kLoggerCount = std::size(kLoggers);

constexpr uint32_t logger_slot(std::string_view name) noexcept {
  for (uint32_t i = 0; i < kLoggerCount; ++i)
    if (name == kLoggers[i]) return i + 1;
  return 0;
}

struct Logger {
  consteval Logger(const char* name) : slot(logger_slot(name)) {  // NOLINT: implicit on purpose
    if (slot == 0) throw "no such logger";
  }
  constexpr std::string_view name() const noexcept { return kLoggers[slot - 1]; }
  uint32_t slot;
};

// Four bits for each logger. Slot 0 is the default, which a level of 0 follows.
using LogLevels = uint64_t;
static_assert(4 * (kLoggerCount + 1) <= 64);
inline constexpr LogLevels kInitialLevels = static_cast<LogLevels>(LogLevel::kWarn);
extern std::atomic<LogLevels> g_log_levels;

constexpr LogLevels level_in_slot(LogLevels levels, uint32_t slot) noexcept {
  const LogLevels own = (levels >> (4 * slot)) & 15;
  return own != 0 ? own : levels & 15;
}

// Returns whether a message of this level would be written. Costs one load.
inline bool log_enabled(Logger logger, LogLevel level) noexcept {
  const LogLevels least = level_in_slot(g_log_levels.load(std::memory_order_relaxed), logger.slot);
  return static_cast<LogLevels>(level) >= least && level < LogLevel::kOff;
}

// Writes the message, unless its level is disabled. A message that was written before needs
// `again`. Texts are made printable and cut to kLongestText. Hold no Mutex, because this runs the
// program's sink.
void log(LogLevel level, Logger logger, std::string_view text, bool again = false) noexcept;
inline void log_event(LogLevel level, Logger logger, std::string_view text) noexcept {
  log(level, logger, text, true);
}
inline constexpr size_t kLongestText = 8192;
inline constexpr size_t kMostMessages = 4096;

// Reads a text for apply_log_levels(). If this adds to `problems`, the result is unspecified.
LogLevels parse_log_levels(std::string_view text, std::vector<std::string>& problems);

// Writes as many lines to standard error as it takes without waiting, because a pipe that nobody
// reads must not stop the program. Splits lines of more than PIPE_BUF bytes. Returns the number of
// bytes written, or lines.size() if standard error is closed or broken.
size_t write_some_lines(std::string_view lines);
// Drops and counts lines that would have to wait, and writes their number before later lines.
void write_or_drop_lines(std::string_view lines);
void count_dropped_lines(std::string_view lines) noexcept;

// Returns 2026-03-01T12:00:00.123Z. Unlike gmtime_r, takes no lock that a fork may leave locked.
std::string utc_text(std::chrono::system_clock::time_point at);

// Admits at most one message per interval, and counts the messages it suppresses.
class LogLimit {
 public:
  static constexpr std::chrono::nanoseconds kInterval = std::chrono::seconds(1);

  bool admits(std::chrono::steady_clock::time_point now, uint64_t& suppressed) noexcept {
    const int64_t t = now.time_since_epoch().count();
    int64_t next = next_.load(std::memory_order_relaxed);
    if (t < next || !next_.compare_exchange_strong(next, t + kInterval.count())) {
      suppressed_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
    return true;
  }

 private:
  std::atomic<int64_t> next_{INT64_MIN};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace yard::base
