// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <cstdio>

namespace yard::base {
namespace {

// Length of the UTF-8 sequence at `at`, 0 if there is none.
size_t sequence(std::string_view s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(at);
  const size_t n = c < 0x80                ? 1
                   : c >= 0xc2 && c < 0xe0 ? 2
                   : (c >> 4) == 14        ? 3
                   : c >= 0xf0 && c < 0xf5 ? 4
                                           : 0;
  if (n == 0 || at + n > s.size()) return 0;
  for (size_t k = 1; k < n; ++k)
    if ((byte(at + k) & 0xc0) != 0x80) return 0;
  if (n == 3 && ((c == 0xe0 && byte(at + 1) < 0xa0) || (c == 0xed && byte(at + 1) >= 0xa0)))
    return 0;
  if (n == 4 && ((c == 0xf0 && byte(at + 1) < 0x90) || (c == 0xf4 && byte(at + 1) >= 0x90)))
    return 0;
  return n;
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t n = sequence(text, i);
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
