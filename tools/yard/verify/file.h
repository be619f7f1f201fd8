// SPDX-License-Identifier: Apache-2.0
// Verifies an untrusted plugin in a forked child, so that a crash of the plugin is a failed
// verification. A plain fork is safe because the command has one thread and no runtime yet.
#pragma once

#include <yard/status.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace yard::tool {

// A text in shared memory. Longer texts are cut.
template <size_t N>
struct SharedText {
  char bytes[N];
  void set(std::string_view text) noexcept {
    const size_t n = text.copy(bytes, N - 1);
    std::fill(bytes + n, bytes + N, '\0');
  }
  // The child may have written arbitrary bytes, so control characters are replaced.
  std::string get() const {
    std::string text(bytes, std::find(bytes, bytes + N, '\0'));
    for (char& c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return text;
  }
};

// The memory in which the child reports its steps and its result.
struct Ward {
  Ward(std::string opened, std::string plugin);
  ~Ward();
  Ward(const Ward&) = delete;
  Ward& operator=(const Ward&) = delete;

  // Announces the next step, such as "in its query", and the command that repeats it.
  void step(std::string_view text, std::string_view again) noexcept {
    page->step.set(text), page->again.set(again);
    page->steps = page->steps + 1;
  }
  void result(bool verified, bool failed, std::string_view why) noexcept {
    page->why.set(why);
    page->verified = verified, page->failed = failed;
  }
  // Returns {"file", "sha256", "verified", "why"}.
  Json json(const std::string& file) const;

  // An address in the code, relative to the start of its file.
  struct Frame {
    SharedText<200> file;
    SharedText<300> symbol;  // empty if not exported
    unsigned long offset;
  };
  static constexpr size_t kMostFrames = 12;

  struct Page {
    volatile unsigned long steps;  // number of steps so far
    volatile int signal;           // the signal of a crash, or 0
    Frame frames[kMostFrames];     // the innermost frame of a crash first; unused ones are zero
    bool verified;                 // the whole plugin passed
    bool failed;
    bool finished;  // the report is complete
    SharedText<65> sha256;
    SharedText<4000> step, again;
    SharedText<2000> why;  // why the plugin failed or is not verified
  };
  const std::string path, name;  // `path` is the path that the child opens
  Page* page = nullptr;          // null if there was not enough memory
};

// Describes how a child ended. If the child completed its work, only `code` is set. Otherwise `how`
// says why, such as "died of SIGSEGV in its query", `again` is the command that reproduces it, and
// `backtrace` is the place of a crash.
struct ChildEnd {
  int code;
  std::string how, again = {};
  std::vector<std::string> backtrace = {};
  Status status(std::string_view subject) const;
};
// Records the result of the child for later loads.
void remember_result(const std::string& file, const Ward& ward);

// Runs `work` on the plugin in a forked child. Kills the child after `patience` seconds without a
// new step.
ChildEnd run_in_child(Ward& ward, const std::string& file, double patience,
                      const std::function<int(Ward&)>& work);

// Verifies the plugin in a forked child, prints nothing, and records the result. Returns why the
// plugin does not count as verified, or an empty text.
Result<std::string> verify_silently(const std::string& file, const std::string& name);

// Inspects the file, runs `work` on it in a child, and records the result. Returns an exit code.
// Reports a crash on stderr, or in the JSON that `work` would have printed.
int verify_file(const std::string& file, bool json, double patience,
                const std::function<int(Ward&)>& work);

}  // namespace yard::tool
