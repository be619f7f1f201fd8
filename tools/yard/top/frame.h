// SPDX-License-Identifier: Apache-2.0
// The screen of `yard top` as lines of text, and what the keys do to it. These are pure functions;
// screen.h has the terminal.
#pragma once

#include <string>
#include <vector>

#include "top/model.h"

namespace yard::tool {

// What is known of the process beside its counters.
struct TopProcess {
  int64_t pid = 0;
  std::string program, version;
  double up_s = 0;
  std::string rules;        // "version 3 of rules.yaml"; empty: none
  double rules_age_s = -1;  // since they came into force; negative: unknown
  std::string last_change;  // by a command: "deny vendor.acme, 12 s ago"; empty: none
  std::string switches;     // that are on: "verbose 1, trace"
  std::string problem;      // why the figures are old; empty: they are not
};

// A plan of the op that is looked at, with the kernels that it passed over.
struct TopPlan {
  struct Rejected {
    std::string kernel, reason, detail;
  };
  std::string call, kernel, mode;
  bool direct = false;
  std::vector<Rejected> rejected;
};

struct TopData {
  TopProcess process;
  TopModel model;
  std::vector<TopPlan> plans;  // of TopView::op
};

// What the user has chosen.
struct TopView {
  TopSort sort = TopSort::kShare;
  bool reverse = false;
  std::string filter;
  bool typing = false;  // the filter
  bool help = false;
  bool paused = false;
  std::string op;     // empty: the table of all ops
  size_t cursor = 0;  // in the table of all ops
  size_t scroll = 0;  // first line shown of the table or of the op
};

enum class TopKey {
  kNone,
  kCharacter,
  kUp,
  kDown,
  kPageUp,
  kPageDown,
  kHome,
  kEnd,
  kEnter,
  kEscape,
  kBackspace,
  kClear,  // of the line that is typed
};
struct TopInput {
  TopKey key = TopKey::kNone;
  char character = 0;
};

// Changes the view; false: quit. `height` is that of the screen.
bool handle_key(const TopInput& input, const TopData& data, size_t height, TopView& view);

// Exactly `height` lines, each of at most `width` columns, coloured where stdout takes colour. Keeps cursor and scroll of
// the view within what there is.
std::vector<std::string> frame(const TopData& data, TopView& view, size_t width, size_t height);

// All of it, without a cursor or keys: for pipes.
std::string plain_frame(const TopData& data, const TopView& view);

}  // namespace yard::tool
