// SPDX-License-Identifier: Apache-2.0
// yard.lock: the plugins that may be loaded, by name, version and digest.
//
//   # Only these plugins are loaded. Written by `yard plugin lock`.
//   acme 1.0 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
#pragma once

#include <yard/status.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/manifest.h"

namespace yard::plugin {

struct LockLine {
  std::string name, version, sha256;
  auto operator<=>(const LockLine&) const = default;
};
using LockLines = std::set<LockLine>;  // a plugin may have lines in several versions

// Errors have the line. `where` is the name of the text in messages.
Result<LockLines> parse_lock_file(std::string_view text, const std::string& where);
// The text that parse_lock_file() reads back as the same.
std::string to_text(const LockLines& lines);

// All lock files that apply, together.
struct LockFiles {
  bool present = false;  // without a lock file every plugin may be loaded
  LockLines lines = {};
  Refusal problem = {};  // of a lock file that cannot be read or trusted; no plugin may be loaded

  // Reads the file of the settings, else the lock files in these folders.
  static LockFiles read(const PluginSettings& settings, const std::vector<std::string>& folders);
  // Whether that plugin may be loaded. Without a digest: whether it may with some digest.
  Refusal allows(const Manifest& manifest, const std::string& sha256 = {}) const;
};

}  // namespace yard::plugin
