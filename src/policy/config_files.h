// SPDX-License-Identifier: Apache-2.0
// Rule files and the files they include, from any store of texts.
#pragma once

#include <yard/config.h>

#include <functional>
#include <string>
#include <string_view>

namespace yard::policy {

// The text of a file; the message of a failure says why there is none ("cannot be opened: ...").
using Opener = std::function<Result<std::string>(const std::string& path)>;

// Regular files of at most 4 MiB; never waits for a pipe.
Result<std::string> open_file(const std::string& path);

// yard::read_config() and yard::parse_config() over another store of files.
ConfigReading read_config_from(const std::string& path, const Opener& open);
ConfigReading parse_config_from(std::string_view text, const std::string& name, const Opener& open);

inline constexpr size_t kMostIncludes = 64, kDeepestInclude = 8;

}  // namespace yard::policy
