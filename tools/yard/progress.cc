// SPDX-License-Identifier: Apache-2.0
// Progress on terminals.
#include "progress.h"

#include "output.h"

#include <unistd.h>
#include <yard/log.h>

#include <cstdlib>
#include <string_view>

namespace yard::tool {
namespace {

constexpr size_t kWidth = 78;  // a line that wraps could not be erased

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

Progress::Progress() : shown_(is_terminal()) {}

void Progress::say(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (dirty_ && now - last_ < std::chrono::milliseconds(100))) return;
  write_err("\r\x1b[K" + printable(std::string_view(line).substr(0, kWidth)));
  dirty_ = true, last_ = now;
}

void Progress::clear() {
  if (!dirty_) return;
  write_err("\r\x1b[K");
  dirty_ = false;
}

}  // namespace yard::tool
