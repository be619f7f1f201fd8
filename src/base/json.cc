// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <cstdio>

#include "base/text.h"

namespace yard::base {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    const char c = text[i];
    if (n == 0) {
      out += "\\ufffd";
      ++i;
      continue;
    }
    if (n == 1 && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else if (n == 1 && static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out += text.substr(i, n);
    }
    i += n;
  }
  return out + '"';
}

}  // namespace yard::base
