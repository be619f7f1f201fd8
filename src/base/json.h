// SPDX-License-Identifier: Apache-2.0
// Writing JSON: enough for the library to print its own plain data without a JSON library.
#pragma once

#include <string>
#include <string_view>

namespace yard::base {

// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the output always parses.
std::string json_string(std::string_view text);

}  // namespace yard::base
