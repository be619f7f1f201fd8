// SPDX-License-Identifier: Apache-2.0
// Persistent results of probes and verifications of plugins, by digest, in one small file.
//
//   probe 0.1.0 9f86d0...0a08 failed "died of SIGSEGV in its query"
//   verify 0.1.0 60303a...d2f1 passed
//
// Newest last; the oldest are dropped beyond a limit. Results of other versions of the library are ignored.
#pragma once

#include <yard/status.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::plugin {

struct CheckResult {
  bool passed = false;
  std::string detail;  // of a failure
  bool operator==(const CheckResult&) const = default;
};

class ResultStore {
 public:
  enum class Check { kProbe, kVerify };
  struct Entry {
    Check check;
    std::string version, sha256;
    CheckResult result;
    bool operator==(const Entry&) const = default;
  };
  static constexpr size_t kMost = 1000, kLongestDetail = 400, kLargest = 4 << 20;
  static constexpr const char* kFileName = "plugin_results";

  // An absolute directory, created when it is first needed. Empty: nothing is stored.
  explicit ResultStore(std::string directory) : directory_(std::move(directory)) {}
  // From XDG_STATE_HOME or HOME; empty if neither is set, and in a privileged process. As with getenv, no other thread
  // may change the environment meanwhile.
  static std::string default_directory();

  // Empty if no result is stored. `why`, if given, is set if the file is missing or not trusted.
  std::optional<CheckResult> find(Check check, std::string_view sha256,
                                  std::string* why = nullptr) const;
  // Replaces an earlier result.
  Status save(Check check, std::string_view sha256, CheckResult result) const;

  std::string path() const { return directory_ + "/" + kFileName; }

  // Invalid lines are skipped: they may be of a later version.
  static std::vector<Entry> parse(std::string_view text);
  static std::string text(const std::vector<Entry>& entries);

 private:
  // An error if the file is missing or not trusted.
  Result<std::vector<Entry>> read() const;
  Status usable() const;

  std::string directory_;
};

}  // namespace yard::plugin
