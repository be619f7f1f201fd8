// SPDX-License-Identifier: Apache-2.0
// Logs: what Switchyard has to say beside its return values, and where it goes.
//
// Loggers are named by the layer that speaks (`select`, `plugin`, ...); `backend` is what kernels and
// plugins say. Each distinct message is written once and from then on only counted; rules that come into
// force or are refused are told every time. Until the program gives a sink of its own, messages go to
// stderr by spdlog, coloured on a terminal.
//
//   yard::set_log_level(yard::LogLevel::kInfo);
//   yard::set_log_level("select", yard::LogLevel::kDebug).or_throw();
//   yard::set_log_sink([](const yard::LogMessage& m) { my_log(m.logger, m.text); });
//
// All of this is of the process, not of a Runtime. Any thread may call any of it at any time, a child of
// fork too: it keeps levels and sink and counts again.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

// How much a message matters; as a logger's level, what it lets through. The numbers are those of
// yard_log_level_t.
enum class LogLevel : int {
  kDebug = YARD_LOG_DEBUG,
  kInfo = YARD_LOG_INFO,
  kWarn = YARD_LOG_WARN,
  kError = YARD_LOG_ERROR,
  kOff,  // lets nothing through; no message has it
};
// "debug", "info", "warn", "error", "off".
YARD_API const char* to_string(LogLevel level) noexcept;
// One of those words in any case; `warning` reads as `warn`.
YARD_API std::optional<LogLevel> parse_log_level(std::string_view text) noexcept;

struct LogMessage {
  LogLevel level;
  std::string_view logger;
  std::string_view text;  // without a newline at its end
  // How often it came before without being written: from inside a sink.
  uint64_t repeated;
};

// Gets each message on the thread that logs it, possibly on several at once. What it throws is dropped;
// what it logs itself is counted, not written.
using LogSink = std::function<void(const LogMessage&)>;

// From now on messages go to `sink`; an empty one brings the default back. Another thread may still be
// inside the old sink when this returns: let a sink share what it uses. It is destroyed after its last use.
YARD_API void set_log_sink(LogSink sink);

// The level of all loggers that have none of their own; kWarn to begin with.
YARD_API void set_log_level(LogLevel level) noexcept;
// Of one logger. kNotFound, with the name that was perhaps meant, if there is no such logger.
YARD_API Status set_log_level(std::string_view logger, LogLevel level);
// What is in force for a logger; the default for a name that no logger has.
YARD_API LogLevel log_level(std::string_view logger) noexcept;
// The names of all loggers.
YARD_API std::vector<std::string_view> loggers();

// Levels as one text, `info,select=debug`: a bare level is the default, NAME=LEVEL is one logger's. It says
// everything: loggers it does not name follow the default, and the default is kWarn unless it says so. The
// empty text sets everything back. kParse if it means nothing: the message is the first problem, its notes
// are the others, and nothing has changed.
YARD_API Status apply_log_levels(std::string_view text);

// How often a message came, whether written or only counted.
struct LogCount {
  LogLevel level;
  std::string logger;
  std::string text;
  uint64_t count;
};
// All messages of this process, the longest unheard first. The 4096 last heard are remembered; an older
// one that comes again counts as new.
YARD_API std::vector<LogCount> log_counts();

}  // namespace yard
