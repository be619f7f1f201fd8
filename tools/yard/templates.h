// SPDX-License-Identifier: Apache-2.0
// Texts that the build puts into the command without their licence lines: the help, and the files
// that `yard plugin new` and `yard report` write.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace yard::tool {

struct Template {
  std::string_view name, text;
};
// The build generates this function.
std::span<const Template> templates() noexcept;

using Words = std::map<std::string, std::string, std::less<>>;

// Returns the named template with each @WORD@ replaced by its entry in `words`.
std::string fill_in(std::string_view name, const Words& words);

}  // namespace yard::tool
