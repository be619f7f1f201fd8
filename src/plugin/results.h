// SPDX-License-Identifier: Apache-2.0
// What is remembered about plugins from one process to the next: the results of probes and verifications, by
// digest, in one small file.
//
//   probe 0.1.0 9f86d0...0a08 failed "died of SIGSEGV in its query"
//   verify 0.1.0 60303a...d2f1 passed
//
// Newest last; the oldest go when there are too many. Results of other versions of the library count as none.
#pragma once

#include <yard/result.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::plugin {

struct Verdict {
  bool passed = false;
  std::string detail;  // of what failed
  bool operator==(const Verdict&) const = default;
};

class Results {
 public:
  enum class Of { kProbe, kVerify };
  struct Entry {
    Of of;
    std::string version, sha256;
    Verdict verdict;
    bool operator==(const Entry&) const = default;
  };
  static constexpr size_t kMost = 1000, kLongestDetail = 400, kLargest = 4 << 20;
  static constexpr const char* kFileName = "plugin_results";

  // An absolute directory, made when it is first needed. Empty: nothing is remembered.
  explicit Results(std::string directory) : directory_(std::move(directory)) {}
  // As the environment has it; empty where it does not say, and in a process with more rights than whoever
  // started it. Like getenv, not while another thread changes the environment.
  static std::string default_directory();

  // Nothing where nothing is known. `why`, if given, says why the file is not believed or not there.
  std::optional<Verdict> find(Of of, std::string_view sha256, std::string* why = nullptr) const;
  // Takes the place of what was known of it.
  Status remember(Of of, std::string_view sha256, Verdict verdict) const;

  std::string path() const { return directory_ + "/" + kFileName; }

  // Lines that cannot be read are skipped: they may be of a later version.
  static std::vector<Entry> parse(std::string_view text);
  static std::string text(const std::vector<Entry>& entries);

 private:
  // The error says why it is not believed.
  Result<std::vector<Entry>> read() const;
  Status usable() const;

  std::string directory_;
};

}  // namespace yard::plugin
