// SPDX-License-Identifier: Apache-2.0
// The lines of the protocol: {"v": 1, "id": 7, "command": "stats", "args": {...}, "runtime": 0} and its answers.
#pragma once

#include <yard/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/yaml.h"

namespace yard::inspect {

struct Request {
  std::string id = "null";  // JSON: a number, a string or null
  std::string command;
  base::YamlNode args;             // a map, or kNull: none
  std::optional<int64_t> runtime;  // unset: the first
};

// On failure `to.id` is that of the line, if it has a valid one, for the answer. Unknown members are errors.
Status parse_request(std::string_view line, Request& to);

// Answers, on one line without its newline. `result` is JSON.
std::string answer(const Request& request, std::string_view result);
std::string answer(const Request& request, const Status& error);

}  // namespace yard::inspect
