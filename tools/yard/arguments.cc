// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <filesystem>

#include "help.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// The option that a message of the parser begins with, "--rows: ...", or null.
CLI::Option* option_of(const std::string& message, CLI::App& command) {
  return command.get_option_no_throw(message.substr(0, message.find(':')));
}

}  // namespace

CLI::Validator existing_file() {
  return CLI::Validator(
      [](std::string& path) -> std::string {
        std::error_code error;
        const auto status = std::filesystem::status(path, error);
        if (std::filesystem::is_directory(status))
          return fmt::format("expected a file, got the directory '{}'", path);
        if (!std::filesystem::exists(status))
          return fmt::format("expected a file, got '{}', which does not exist", path);
        return {};
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& word) -> std::string {
        if (std::find(words.begin(), words.end(), word) != words.end()) return {};
        std::string list = words[0];
        for (size_t i = 1; i < words.size(); ++i)
          list += (i + 1 < words.size() ? ", " : " or ") + words[i];
        return fmt::format("expected {}, got '{}'{}", list, word, did_you_mean(word, words));
      },
      "");
}

std::string message_of(const CLI::ParseError& error, CLI::App& command) {
  const std::string text = error.what();
  const CLI::Option* option = option_of(text, command);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return fmt::format("{}; usage: {}", text, usage_of(command));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && option != nullptr)
    return fmt::format("{}: expected {}, got nothing", option->get_name(),
                       value_name(*option).empty() ? "a value" : value_name(*option));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    if (const size_t at = text.rfind(" = "); at != std::string::npos) {
      const size_t name = text.rfind(' ', at - 1) + 1;
      return fmt::format("{}: expected a number, got '{}'", text.substr(name, at - name),
                         text.substr(at + 3));
    }
  return text;
}

}  // namespace yard::tool
