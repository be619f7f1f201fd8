// SPDX-License-Identifier: Apache-2.0
// Texts that the build puts into the command, without their licence lines: `help.txt`, and the
// files that `yard plugin new` and `yard report` write.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace yard::tool {

struct Template {
  std::string_view name, text;
};
// The build writes this function.
std::span<const Template> templates() noexcept;

using Words = std::map<std::string, std::string, std::less<>>;

// The template of that name, with each @WORD@ of `words` replaced.
std::string fill_in(std::string_view name, const Words& words);

}  // namespace yard::tool
