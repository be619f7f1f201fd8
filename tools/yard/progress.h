// SPDX-License-Identifier: Apache-2.0
// A line on stderr that says how far a long command is; on terminals only.
#pragma once

#include <chrono>
#include <string>

namespace yard::tool {

class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether anybody would see it.
  bool shown() const noexcept { return shown_; }
  // Takes the place of the line before; at most ten times a second.
  void say(const std::string& line);
  // Before other output.
  void clear();

 private:
  const bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace yard::tool
