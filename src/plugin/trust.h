// SPDX-License-Identifier: Apache-2.0
// Files that decide which plugins may be loaded: the lock file, and stored results of `yard verify`.
#pragma once

#include <yard/status.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/manifest.h"

namespace yard::plugin {

inline constexpr const char* kLockFileName = "yard.lock";

// yard.lock: the plugins that may be loaded, by name, version and digest.
//
//   # Only these plugins are loaded. Written by `yard plugin lock`.
//   acme 1.0 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
struct LockLine {
  std::string name, version, sha256;
  auto operator<=>(const LockLine&) const = default;
};

class LockFile {
 public:
  // Errors have the line. `where` is the name of the text in messages.
  static Result<LockFile> parse(std::string_view text, const std::string& where);
  static Result<LockFile> read(const std::string& path);

  // Sorted by name; parse() reads it back as the same.
  std::string text() const;
  // Atomic, through a temporary file beside it.
  Status write(const std::string& path) const;

  // A plugin may have lines in several versions.
  void add(LockLine line);
  void add(const LockFile& other);
  const std::vector<LockLine>& lines() const noexcept { return lines_; }

  // Whether that plugin may be loaded. Without a digest: whether it may with some digest.
  Refusal allows(const std::string& name, const std::string& version,
                 const std::string& sha256 = {}) const;

 private:
  std::vector<LockLine> lines_;  // sorted, unique
};

// Results of `yard verify`, by digest, in one small file.
//
//   verify 0.1.0 60303a...d2f1 passed
//
// Newest last; the oldest are dropped beyond a limit. Results of other versions of the library are ignored.
class ResultStore {
 public:
  struct Line {
    std::string version, sha256;
    bool passed = false;
    bool operator==(const Line&) const = default;
  };
  static constexpr size_t kMost = 1000, kLargest = 4 << 20;
  static constexpr const char* kFileName = "plugin_results";

  // An absolute directory, created when it is first needed. Empty: nothing is stored.
  explicit ResultStore(std::string directory) : directory_(std::move(directory)) {}
  // From XDG_STATE_HOME or HOME; empty if neither is set, and in a privileged process. As with getenv, no other thread
  // may change the environment meanwhile.
  static std::string default_directory();

  // Whether it passed; empty if no result is stored. `why`, if given, is set if the file is missing or not trusted.
  std::optional<bool> find(std::string_view sha256, std::string* why = nullptr) const;
  // Replaces an earlier result.
  Status save(std::string_view sha256, bool passed) const;

  std::string path() const { return directory_ + "/" + kFileName; }

  // Invalid lines are skipped: they may be of a later version.
  static std::vector<Line> parse(std::string_view text);
  static std::string text(const std::vector<Line>& lines);

 private:
  // An error if the file is missing or not trusted.
  Result<std::vector<Line>> read() const;
  Status usable() const;

  std::string directory_;
};

}  // namespace yard::plugin
