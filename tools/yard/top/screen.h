// SPDX-License-Identifier: Apache-2.0
// The terminal of `yard top`, by ncurses: a screen of coloured lines, and single keys.
//
// Whatever ends the command, the terminal is left as it was: the destructor restores it, also after
// SIGINT, SIGTERM, SIGHUP and SIGQUIT, which are read as events, and so does a handler after a
// crash. While the command is stopped by SIGTSTP, the terminal is the shell's.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "top/frame.h"

namespace yard::tool {

class Screen {
 public:
  // Why there can be no screen; empty if there can be one.
  static std::string unavailable();

  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Columns and lines.
  std::pair<size_t, size_t> size() const;
  void draw(const std::vector<Line>& lines);

  struct Event {
    enum class Kind { kTimeout, kKey, kResized, kEnd } kind = Kind::kTimeout;
    TopInput input;
    int signal = 0;  // of kEnd: the signal that ends the command; 0 if the terminal is gone
  };
  Event wait(std::chrono::milliseconds most);

 private:
  Event on_signal();

  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace yard::tool
