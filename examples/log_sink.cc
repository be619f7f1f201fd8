// SPDX-License-Identifier: Apache-2.0
// Sets log levels for loggers, and installs a sink of the program.
#include <yard/log.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "check.h"

int main() {
  // [levels]
  yard::set_log_level(yard::LogLevel::kInfo);
  yard::set_log_level("select", yard::LogLevel::kDebug).or_throw();
  CHECK(yard::log_level("select") == yard::LogLevel::kDebug);

  yard::apply_log_levels("info,select=debug").or_throw();  // the same as text
  // [/levels]

  // [wrong]
  yard::Status s = yard::apply_log_levels("info,selct=debug");
  CHECK(!s.ok());  // and nothing has changed
  std::puts(s.to_string().c_str());
  // [/wrong]
  CHECK(std::string(s.message()).find("did you mean 'select'") != std::string::npos);
  CHECK(yard::log_level("select") == yard::LogLevel::kDebug);

  // [sink]
  struct Lines {
    std::mutex mutex;
    std::vector<std::string> all;
  };
  const auto lines =
      std::make_shared<Lines>();  // shared: a thread may be inside the sink at the end
  yard::set_log_sink([lines](const yard::LogMessage& m) {
    std::lock_guard lock(lines->mutex);
    lines->all.push_back(std::string(m.logger) + ": " + std::string(m.text));
  });
  // [/sink]

  yard::set_log_sink({});  // logs to stderr again
}
