// SPDX-License-Identifier: Apache-2.0
// The JSON that commands print: keys in the order in which they are written.
#pragma once

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "output.h"

namespace yard::tool {

using Json = nlohmann::ordered_json;

// Unknown values are null, not "".
inline Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

// The version of all output; a change that programs would notice changes it.
inline constexpr int kJsonSchema = 1;

// An object, after its version: indented, with a newline; bytes that are not UTF-8 are replaced.
inline void print_json(const Json& j) {
  Json all = {{"schema", kJsonSchema}};
  all.update(j);
  write_out(all.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
}

}  // namespace yard::tool
