// SPDX-License-Identifier: Apache-2.0
// Results of `yard verify`, by digest, in one small file.
//
//   verify 0.1.0 60303a...d2f1 passed
//
// Newest last; the oldest are dropped beyond a limit. Results of other versions of the library, and lines that are not
// understood, are ignored.
#pragma once

#include <yard/status.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::plugin {

class ResultStore {
 public:
  static constexpr size_t kMost = 1000, kLargest = 4 << 20;
  static constexpr const char* kFileName = "plugin_results";

  // An absolute folder, created when it is first needed. If it is empty, nothing is stored.
  explicit ResultStore(std::string folder) : folder_(std::move(folder)) {}
  // From XDG_STATE_HOME or HOME. Empty if neither is set, and in a privileged process. No other thread may change the
  // environment meanwhile.
  static std::string default_folder();

  // Whether it passed; empty if no result is stored. `why`, if given, is set if the file is missing or not trusted.
  std::optional<bool> find(std::string_view sha256, std::string* why = nullptr) const;
  // Replaces an earlier result.
  Status save(std::string_view sha256, bool passed) const;

  std::string path() const { return folder_ + "/" + kFileName; }

 private:
  Status add(std::string_view sha256, bool passed) const;
  // The lines without comments. An error if the file is missing or not trusted.
  Result<std::vector<std::string>> read() const;

  std::string folder_;
};

}  // namespace yard::plugin
