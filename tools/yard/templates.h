// SPDX-License-Identifier: Apache-2.0
// The files that `yard plugin new` and `yard report` write. They come from `plugin/templates/NAME.in`
// and `report/templates/NAME.in`, without their licence line. The command replaces each @WORD@.
#pragma once

#include <span>
#include <string_view>

namespace yard::tool {

struct Template {
  std::string_view name, text;
};

std::span<const Template> templates() noexcept;

}  // namespace yard::tool
