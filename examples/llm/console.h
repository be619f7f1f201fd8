// SPDX-License-Identifier: Apache-2.0
// Runs a conversation with messages and commands on a terminal, line by line.
#pragma once

#include <functional>
#include <string>

#include "conversation.h"
#include "line_reader.h"

namespace llm {

class Console {
 public:
  Console(Conversation& conversation, std::function<void(const Answer&)> after)
      : conversation_(conversation), after_(std::move(after)) {}
  // Returns the exit code: 0, or 130 if ctrl-C ended the conversation.
  int run();

 private:
  struct Command;
  static const Command kCommands[];
  static std::string help();
  void answer(const std::string& line);
  // Returns false to leave.
  bool obey(const std::string& line);

  Conversation& conversation_;
  const std::function<void(const Answer&)> after_;
  LineReader reader_;
  Answer last_;
};

}  // namespace llm
