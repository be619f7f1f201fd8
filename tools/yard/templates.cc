// SPDX-License-Identifier: Apache-2.0
#include "templates.h"

#include <algorithm>

namespace yard::tool {

std::string fill_in(std::string_view name, const Words& words) {
  const auto found = std::ranges::find(templates(), name, &Template::name);
  std::string_view text = found->text;
  std::string to;
  while (!text.empty()) {
    const size_t at = std::min(text.find('@'), text.size());
    const size_t end = text.find('@', at + 1);
    const auto word =
        end == text.npos ? words.end() : words.find(text.substr(at + 1, end - at - 1));
    const bool known = word != words.end();
    to += text.substr(0, known ? at : at + 1);
    if (known) to += word->second;
    text.remove_prefix(std::min(known ? end + 1 : at + 1, text.size()));
  }
  return to;
}

}  // namespace yard::tool
