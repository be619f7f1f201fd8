// SPDX-License-Identifier: Apache-2.0
// Logging for the layers: one line to say something, and a cheap question whether anybody listens.
//
//   if (base::log_enabled("select", LogLevel::kInfo))
//     base::log(LogLevel::kInfo, "select", fmt::format("Op '{}' using '{}'", op, id));
//
// Not for the path of a hit: a message costs an allocation and a lock. Whoever returns a Status does not
// also log it.
#pragma once

#include <yard/log.h>

#include <atomic>
#include <string>
#include <string_view>

namespace yard::base {

// By layer; `backend` is what kernels and plugins say.
inline constexpr std::string_view kLoggers[] = {
    "base",   "core", "op",     "telemetry", "registry", "policy",  "health",
    "select", "exec", "plugin", "dispatch",  "tune",     "runtime", "backend"};
inline constexpr uint32_t kLoggerCount = std::size(kLoggers);

// 0 if there is none of that name.
constexpr uint32_t logger_slot(std::string_view name) noexcept {
  for (uint32_t i = 0; i < kLoggerCount; ++i)
    if (name == kLoggers[i]) return i + 1;
  return 0;
}

// A logger's name, looked up while compiling: one that does not exist is an error there.
class Logger {
 public:
  consteval Logger(const char* name) : slot_(logger_slot(name)) {  // NOLINT: implicit on purpose
    if (slot_ == 0) throw "no such logger";
  }
  constexpr uint32_t slot() const noexcept { return slot_; }
  constexpr std::string_view name() const noexcept { return kLoggers[slot_ - 1]; }

 private:
  uint32_t slot_;
};

// Every level in one word, so that a change of several is one store: four bits each, slot 0 the default,
// where 0 means to follow the default.
using LogLevels = uint64_t;
static_assert(4 * (kLoggerCount + 1) <= 64);
inline constexpr LogLevels kInitialLevels = static_cast<LogLevels>(LogLevel::kWarn);
extern std::atomic<LogLevels> g_log_levels;

constexpr LogLevels level_in_slot(LogLevels levels, uint32_t slot) noexcept {
  const LogLevels own = (levels >> (4 * slot)) & 15;
  return own != 0 ? own : levels & 15;
}

// Whether a message would be written or counted. One load.
inline bool log_enabled(Logger logger, LogLevel level) noexcept {
  const LogLevels least =
      level_in_slot(g_log_levels.load(std::memory_order_relaxed), logger.slot());
  return static_cast<LogLevels>(level) >= least && level < LogLevel::kOff;
}

// Writes the message unless its level is off or it has been written before; then it is counted. Texts
// longer than kLongestText are cut.
void log(LogLevel level, Logger logger, std::string text) noexcept;
// The same for what happened, not what is so: each time is news, and is written although the words are the same.
void log_event(LogLevel level, Logger logger, std::string text) noexcept;
inline constexpr size_t kLongestText = 8192;
inline constexpr size_t kMostMessages = 4096;

// Reads the grammar of apply_log_levels(). Adds what is wrong to `problems`; the result means nothing then.
LogLevels parse_log_levels(std::string_view text, std::vector<std::string>& problems);

// The default sink: one line, one write to stderr, by spdlog. Takes no lock and uses nothing that was made
// before, so it works in a forked child.
void write_to_stderr(const LogMessage& message);

}  // namespace yard::base
