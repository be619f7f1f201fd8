// SPDX-License-Identifier: Apache-2.0
// Logging: levels and the sink.
//
//   yard::set_log_level(yard::LogLevel::kInfo);
//   yard::set_log_level("select", yard::LogLevel::kDebug).or_throw();
//   yard::set_log_sink([](const yard::LogMessage& m) { my_log(m.logger, m.text); });
//
// Each distinct message is written once, events such as changes of rules each time (docs/guides/logging.md). All of this is
// per process, may be called from any thread, and is kept by a forked child.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <functional>
#include <vector>

namespace yard {

// The severity of a message; the level of a logger is the least severity that it writes. Values as in yard_log_level_t.
enum class LogLevel : int {
  kDebug = YARD_LOG_DEBUG,
  kInfo = YARD_LOG_INFO,
  kWarn = YARD_LOG_WARN,
  kError = YARD_LOG_ERROR,
  kOff,  // of a logger only: writes nothing
};
// "debug", "info", "warn", "error", "off".
YARD_API const char* to_string(LogLevel level) noexcept;
// One of those words in any case; `warning` reads as `warn`.
YARD_API std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

struct LogMessage {
  LogLevel level;
  std::string_view logger;
  std::string_view text;  // without a newline at its end; lines after the first are indented
};

// Called on the thread that logs, possibly on several at once. Exceptions are dropped, and so are messages that it
// logs itself.
using LogSink = std::function<void(const LogMessage&)>;

// An empty sink restores the default. Another thread may still use the old sink when this returns.
YARD_API void set_log_sink(LogSink sink);

// The level of all loggers without a level of their own; initially kWarn.
YARD_API void set_log_level(LogLevel level) noexcept;
// kNotFound, with a suggestion, if there is no such logger.
YARD_API Status set_log_level(std::string_view logger, LogLevel level);
// The level in force for a logger; the default for an unknown name.
YARD_API LogLevel log_level(std::string_view logger) noexcept;
// The layers of the library (`select`, `plugin`, ...), and `backend` for messages of kernels and plugins.
YARD_API std::vector<std::string_view> loggers();

// Sets all levels from one text, `info,select=debug`, in which loggers that are not named follow the default. The empty text
// resets everything. An invalid text changes nothing: the message is the first error, the notes are the others.
YARD_API Status apply_log_levels(std::string_view text);

// Text from outside (kernels, plugins, files) on one line, safe for logs and terminals: control characters and bytes that
// are not UTF-8 are escaped (\n, \x1b); beyond about `most` bytes it is cut. Texts of log messages are safe already.
YARD_API std::string printable(std::string_view text, size_t most = 2048);

}  // namespace yard
