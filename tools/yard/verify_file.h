// SPDX-License-Identifier: Apache-2.0
// Verifying a stranger's plugin in a process of its own, so that its crash is a failed verification.
//
// The child is a plain fork: the command has one thread and no runtime yet.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "json.h"

namespace yard::tool {

// What the child tells the parent, in memory that both see: the last word before a crash, and the result.
class Ward {
 public:
  Ward(std::string path, std::string name);
  ~Ward();
  Ward(const Ward&) = delete;
  Ward& operator=(const Ward&) = delete;
  bool good() const noexcept { return page_ != nullptr; }

  // Where the child opens the plugin, and what it is called.
  const std::string& path() const noexcept { return path_; }
  const std::string& name() const noexcept { return name_; }

  // ---- The child says ----
  // What it is about to do: "in its query".
  void step(std::string_view text) noexcept;
  void digest(std::string_view sha256) noexcept;
  // Whether that is a pass of the whole plugin, or a failure; `why` it is neither, or fails.
  void result(bool verified, bool failed, std::string_view why) noexcept;

  // It has said all.
  void finish() noexcept;

  // ---- Both read ----
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

// Looks at the file, runs `work` on it in a child, and remembers what came of it. Gives an exit code. A crash
// is told on stderr, or in the JSON that `work` would have printed. A child that is
// without a step for `patience` seconds is taken to hang, and is ended.
int verify_file(const std::string& file, bool json, double patience,
                const std::function<int(Ward&)>& work);

}  // namespace yard::tool
