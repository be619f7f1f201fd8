// SPDX-License-Identifier: Apache-2.0
// The terminal of `yard top`: shows coloured lines and reads single keys, with ncurses.
//
// The terminal is restored however the command ends. The destructor restores it, also after SIGINT,
// SIGTERM, SIGHUP and SIGQUIT, which are reported as events. A signal handler restores it after a
// crash. While SIGTSTP stops the command, the shell has its usual terminal.
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
  // Returns why a screen cannot be opened, or an empty text.
  static std::string unavailable();

  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Returns columns and lines.
  std::pair<size_t, size_t> size() const;
  void draw(const std::vector<Line>& lines);

  struct Event {
    enum class Kind { kTimeout, kKey, kResized, kEnd } kind = Kind::kTimeout;
    TopInput input;
    int signal = 0;  // for kEnd: the signal that ends the command; 0 if the terminal is gone
  };
  Event wait(std::chrono::milliseconds most);

 private:
  Event on_signal();

  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace yard::tool
