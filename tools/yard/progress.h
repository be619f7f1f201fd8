// SPDX-License-Identifier: Apache-2.0
// A line on stderr that shows the progress of a long command; on terminals only.
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

  // Whether it is shown.
  bool shown() const noexcept { return shown_; }
  // Replaces the previous line; at most ten times a second.
  void say(const std::string& line);
  // Before other output.
  void clear();

 private:
  const bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace yard::tool
