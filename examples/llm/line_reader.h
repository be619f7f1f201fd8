// SPDX-License-Identifier: Apache-2.0
// Reads lines from a terminal. A build with libedit offers editing and a history.
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

  // Returns kEnd after ctrl-D on an empty line. Ctrl-C discards the line, raises SIGINT and returns
  // kInterrupt. The program must handle SIGINT without SA_RESTART.
  enum class Event { kLine, kInterrupt, kEnd };
  Event read(const char* prompt, std::string& line);

 private:
  struct Editor;  // null without libedit
  std::unique_ptr<Editor> editor_;
};

}  // namespace llm
