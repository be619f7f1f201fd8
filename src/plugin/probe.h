// SPDX-License-Identifier: Apache-2.0
// Probing: loads a plugin in a separate process, the program `yard-probe`, with limits, and reports how that ended. The
// program itself is src/runtime/probe_child.cc.
#pragma once

#include <yard/plugins.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace yard::plugin {

// Shared memory in which the child announces each step before it takes it, so that the last one is known however the
// child ends. The child runs code that may write anywhere, so its contents are untrusted.
struct ProbePage {
  enum Outcome : uint32_t { kNone = 0, kPassed = 1, kRefused = 2, kDamage = 3 };
  static constexpr size_t kText = 2000;

  char version[32];  // of the child's library; written first
  uint32_t outcome;  // written last
  uint32_t reason;   // a PluginReason, if it was refused
  uint64_t kernels, runs;
  char step[kText];    // "in its query"
  char detail[kText];  // what went wrong
  char unavailable[kText];

  template <size_t N>
  static void put(char (&to)[N], std::string_view text) noexcept {
    const size_t n = std::min(text.size(), N - 1);
    if (n > 0) std::memcpy(to, text.data(), n);  // data() of an empty text may be null
    std::memset(to + n, 0, N - n);
  }
  template <size_t N>
  static std::string get(const char (&from)[N]) {
    std::string text(from, strnlen(from, N));
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }
};

// File descriptors of the child.
inline constexpr int kPageFd = 3, kFileFd = 4;

struct ProbeRequest {
  const base::File& file;             // the plugin; its path may refer to another file by now
  std::vector<std::string> others;    // files of plugins that it may depend on
  std::vector<std::string> features;  // device features that the program has stated
  const PluginSettings& settings;
};

// Sets everything in the report but its `info`. Waits for the child, at most as long as the settings allow.
void probe_in_child(const ProbeRequest& request, ProbeReport& report);

// The path of the probe program: from the settings, or beside this library. Empty, with `why`, if it is missing or
// cannot be trusted.
std::string find_probe_program(const PluginSettings& settings, std::string& why);

}  // namespace yard::plugin
