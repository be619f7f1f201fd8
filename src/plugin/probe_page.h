// SPDX-License-Identifier: Apache-2.0
// What a probe and its child share: a page of memory where the child says what it is about to do, so that the
// last word is there however it ends.
//
// The child runs code that may write anywhere, this page included: whoever reads takes it for bytes of a
// stranger.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace yard::plugin {

// Descriptors of the child.
inline constexpr int kPageFd = 3, kFileFd = 4;

struct ProbePage {
  enum Outcome : uint32_t { kNone = 0, kPassed = 1, kRefused = 2, kDamage = 3 };
  static constexpr size_t kText = 2000;

  char version[32];  // of the library that the child uses; written first
  uint32_t outcome;  // written last
  uint32_t reason;   // a PluginReason, where it was refused
  uint64_t kernels, runs;
  char step[kText];    // "in its query"
  char detail[kText];  // of what went wrong

  template <size_t N>
  static void put(char (&to)[N], std::string_view text) noexcept {
    const size_t n = std::min(text.size(), N - 1);
    if (n > 0) std::memcpy(to, text.data(), n);  // no text may have no data
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

}  // namespace yard::plugin
