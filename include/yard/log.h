// SPDX-License-Identifier: Apache-2.0
// Messages that reach the level of their logger go to the log sink.
//
//   yard::set_log_level(yard::LogLevel::kInfo);
//   yard::set_log_level("select", yard::LogLevel::kDebug).or_throw();
//   yard::set_log_sink([](const yard::LogMessage& m) { my_log(m.logger, m.text); });
//
// Each distinct message is written once, and events are written each time (docs/guides/logging.md).
// Levels and sink belong to the process, and a forked child keeps them. Any thread may call.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <functional>
#include <vector>

namespace yard {

// The level of a logger is the least severity that it writes. With kOff it writes nothing.
enum class LogLevel : int { kDebug = YARD_LOG_DEBUG, kInfo, kWarn, kError, kOff };
static_assert(static_cast<int>(LogLevel::kError) == YARD_LOG_ERROR);
YARD_API const char* to_string(LogLevel level) noexcept;
// Ignores case, and reads `warning` as `warn`.
YARD_API std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

struct LogMessage {
  LogLevel level;
  std::string_view logger;
  std::string_view text;  // lines after the first are indented; no newline at the end
};

// Called on the threads that log, perhaps at once. Exceptions and messages of the sink are dropped.
using LogSink = std::function<void(const LogMessage&)>;

// An empty sink restores the default. The old one may still be in use on another thread.
YARD_API void set_log_sink(LogSink sink);

// Sets the level of all loggers that have none themselves. Initially it is kWarn.
YARD_API void set_log_level(LogLevel level) noexcept;
// Fails with kNotFound and a suggestion if the name is unknown.
YARD_API Status set_log_level(std::string_view logger, LogLevel level);
YARD_API LogLevel log_level(std::string_view logger) noexcept;  // the default for an unknown name
YARD_API std::vector<std::string_view> loggers();               // layers, and `backend` for plugins

// Sets all levels from a text such as `info,select=debug`; an empty text resets them. An invalid
// text changes nothing, and the error lists all mistakes.
YARD_API Status apply_log_levels(std::string_view text);

// Returns one line of about `most` bytes, with control characters and invalid UTF-8 escaped.
YARD_API std::string printable(std::string_view text, size_t most = 2048);

}  // namespace yard
