// SPDX-License-Identifier: Apache-2.0
// Messages to stderr by spdlog. A logger, a formatter and a sink are made for each message and nothing of
// spdlog's registry is used: a message is rare, and what is not shared needs no lock.
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <iterator>

#include "base/log.h"
#include "base/utc_time.h"

namespace yard::base {
namespace {

// spdlog's own time goes through localtime_r or gmtime_r: see utc_time.h.
class TimeOfMessage : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& to) override {
    const UtcTime t(message.time);
    fmt::format_to(std::back_inserter(to), "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.year,
                   t.month, t.day, t.hour, t.minute, t.second, t.millisecond);
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<TimeOfMessage>();
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
  while (size > 0) {
    const ssize_t n = ::write(file, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads: there is no better place to say so
    data += n;
    size -= static_cast<size_t>(n);
  }
}

class Stderr : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    spdlog::pattern_formatter formatter;
    formatter.add_flag<TimeOfMessage>('q').set_pattern("%q %^%l%$ yard.%n: %v");
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
