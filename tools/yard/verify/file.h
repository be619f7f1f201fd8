// SPDX-License-Identifier: Apache-2.0
// Verifying an untrusted plugin in a separate process, so that its crash is a failed verification.
//
// The child is a plain fork: the command has one thread and no runtime yet.
#pragma once

#include <yard/status.h>

#include <functional>
#include <string>
#include <string_view>

#include "json.h"

namespace yard::tool {

// Shared memory through which the child reports its last step before a crash, and the result.
class Ward {
 public:
  Ward(std::string path, std::string name);
  ~Ward();
  Ward(const Ward&) = delete;
  Ward& operator=(const Ward&) = delete;
  bool good() const noexcept { return page_ != nullptr; }

  // The path that the child opens, and the plugin's name.
  const std::string& path() const noexcept { return path_; }
  const std::string& name() const noexcept { return name_; }

  // ---- Written by the child ----
  // What it is about to do: "in its query".
  void step(std::string_view text) noexcept;
  void digest(std::string_view sha256) noexcept;
  // Whether it is a pass of the whole plugin, or a failure; `why` it is neither, or a failure.
  void result(bool verified, bool failed, std::string_view why) noexcept;

  // The report is complete.
  void finish() noexcept;

  // ---- Read by both ----
  bool finished() const noexcept;
  std::string step() const;
  std::string sha256() const;
  std::string why() const;
  bool verified() const noexcept;
  bool failed() const noexcept;
  unsigned long steps() const noexcept;  // how many there were

 private:
  struct Page;
  const std::string path_, name_;
  Page* page_ = nullptr;
};

// {"file", "sha256", "verified", "why"}
Json to_json(const Ward& ward, const std::string& file);

// How a child ended: its exit code, and what went wrong if it did not come to an end by itself, as "died of SIGSEGV in its
// query".
struct ChildEnd {
  int code;
  std::string how;
};
// Runs `work` in a forked child. A child without a step for `patience` seconds counts as hanging, and is killed.
ChildEnd run_in_child(Ward& ward, double patience, const std::function<int(Ward&)>& work);

// Runs a smoke test of the plugin in a forked child, and prints nothing.
Status smoke_test(const std::string& file, const std::string& name);

// Inspects the file, runs `work` on it in a child, and records the result. Returns an exit code. A crash
// is reported on stderr, or in the JSON that `work` would have printed.
int verify_file(const std::string& file, bool json, double patience,
                const std::function<int(Ward&)>& work);

}  // namespace yard::tool
