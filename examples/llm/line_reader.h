// SPDX-License-Identifier: Apache-2.0
// Reads lines from a terminal: with editing and a history of this process if it was built with libedit, else plainly.
#pragma once

#include <memory>
#include <string>

namespace llm {

class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // kEnd after ctrl-D on an empty line. Ctrl-C discards the line and raises SIGINT, for which the program must have a handler
  // without SA_RESTART; then the event is kInterrupt.
  enum class Event { kLine, kInterrupt, kEnd };
  Event read(const char* prompt, std::string& line);

 private:
  struct Editor;  // null where there is none
  std::unique_ptr<Editor> editor_;
};

}  // namespace llm
