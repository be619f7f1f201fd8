// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace yard::tool {

std::vector<Variable> look_at_environment(const Runtime& runtime) {
  const std::vector<Problem> problems = runtime.problems();
  std::vector<Variable> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("YARD_") || equals == std::string_view::npos) continue;
    Variable v{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), {}};
    for (const Problem& p : problems)
      if (p.where == v.name) v.problems.push_back(p.message);
    found.push_back(std::move(v));
  }
  std::sort(found.begin(), found.end(),
            [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return found;
}

}  // namespace yard::tool
