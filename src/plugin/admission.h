// SPDX-License-Identifier: Apache-2.0
// Decides which plugins may be loaded: plugins in lock files and, if required, plugins that passed
// `yard verify`. Both name a plugin by its digest.
//
// yard.lock:
//   # Only these plugins are loaded. Written by `yard plugin lock`.
//   acme 1.0 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//
// plugin_results:
//   verify 0.1.0 60303a...d2f1 passed
#pragma once

#include <set>

#include "plugin/manifest.h"

namespace yard::plugin {

inline constexpr size_t kLargestList = 4 << 20;  // bytes of a lock file or of stored results

struct LockLine {
  std::string name, version, sha256;
  auto operator<=>(const LockLine&) const = default;
};
using LockLines = std::set<LockLine>;  // a plugin may have lines in several versions

// Messages call the text `where`.
Result<LockLines> parse_lock_file(std::string_view text, const std::string& where);
// parse_lock_file() reads equal lines from this text.
std::string to_text(const LockLines& lines);

struct LockFiles {
  bool present = false;  // without a lock file every plugin may be loaded
  LockLines lines = {};
  Refusal problem = {};  // if a lock file cannot be read or trusted, no plugin may be loaded

  // Reads the lock file of the settings or, if there is none, the lock files in these folders.
  static LockFiles read(const PluginSettings& settings, const std::set<std::string>& folders);
  // Refuses a plugin that may not be loaded. If `sha256` is empty, any digest will do.
  Refusal allows(const Manifest& manifest, const std::string& sha256 = {}) const;
};

// Keeps results of `yard verify`, newest last, and drops the oldest beyond a limit. Ignores unknown
// lines, and lines of other versions of the library.
class ResultStore {
 public:
  static constexpr size_t kMost = 1000;

  // `folder` is an absolute path and is created when needed. If it is empty, nothing is stored.
  explicit ResultStore(std::string folder) : folder_(std::move(folder)) {}
  // Reads XDG_STATE_HOME or HOME. Returns an empty text without these, and in a privileged process.
  // No other thread may change the environment meanwhile.
  static std::string default_folder();

  // Returns nothing if no result is stored. Sets `why` if the file is missing or not trusted.
  std::optional<bool> find(std::string_view sha256, std::string* why = nullptr) const;
  // Replaces an earlier result.
  Status save(std::string_view sha256, bool passed) const;

  std::string path() const { return folder_ + "/plugin_results"; }

 private:
  // Returns the lines without comments. Fails if the file is missing or not trusted.
  Result<std::vector<std::string>> read() const;

  std::string folder_;
};

}  // namespace yard::plugin
