// SPDX-License-Identifier: Apache-2.0
// The terminal of `yard top`: the alternate screen and single keys, by the escape sequences that every terminal of today
// has. Whatever ends the command, the terminal is left as it was: by the destructor, also after SIGINT, SIGTERM, SIGHUP
// and SIGQUIT, which are read as events; around SIGTSTP; and by a handler after a crash.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "top/frame.h"

namespace yard::tool {

// Takes the first key from bytes that a terminal has sent. kNone, with `bytes` unchanged: more are needed. Unknown
// sequences are dropped. `complete`: no more will come, so a lone escape byte is the key.
TopInput take_key(std::string& bytes, bool complete);

class Screen {
 public:
  // Whether stdin and stdout are a terminal that can move its cursor.
  static bool possible();

  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Columns and lines.
  std::pair<size_t, size_t> size() const;
  void draw(const std::vector<std::string>& lines);

  struct Event {
    enum class Kind { kTimeout, kKey, kResized, kEnd } kind = Kind::kTimeout;
    TopInput input;
    int signal = 0;  // kEnd: that ends the command; 0: the terminal is gone
  };
  Event wait(std::chrono::milliseconds most);

 private:
  void enter();
  void leave();
  Event on_signal();

  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace yard::tool
