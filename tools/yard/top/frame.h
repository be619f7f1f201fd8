// SPDX-License-Identifier: Apache-2.0
// The screen of `yard top` as lines of text, and what the keys do to it. These are pure functions;
// screen.h has the terminal.
#pragma once

#include <string>
#include <vector>

#include "terminal.h"
#include "top/model.h"

namespace yard::tool {

// The process, apart from its counters.
struct TopProcess {
  int64_t pid = 0;
  std::string program, version;
  double up_s = 0;
  std::string rules;        // "version 3 of rules.yaml"; empty if there are none
  double rules_age_s = -1;  // since they came into force; negative if unknown
  std::string last_change;  // by a command: "deny vendor.acme, 12 s ago"; empty if there was none
  std::string switches;     // those that are on: "verbose 1, trace"
  std::string problem;      // why the figures are old; empty if they are not
};

// A plan of the op that is shown, with the kernels that were rejected.
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
  std::vector<TopPlan> plans;       // of TopView::op
  std::vector<std::string> events;  // the newest first
};

// What the user has chosen.
struct TopView {
  TopSort sort = TopSort::kShare;
  bool reverse = false;
  std::string filter;
  bool typing = false;  // the filter
  bool help = false;
  bool paused = false;
  bool events = false;  // they are shown instead of the table or the op
  std::string op;       // the op that is shown; empty for the table of all ops
  size_t cursor = 0;    // in the table of all ops
  size_t scroll = 0;    // the first line that is shown of the table or of the op
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
  kClear,  // erases the line that is typed
};
struct TopInput {
  TopKey key = TopKey::kNone;
  char character = 0;
};

// Changes the view. Returns false to quit. `height` is the height of the screen.
bool handle_key(const TopInput& input, const TopData& data, size_t height, TopView& view);

// Returns exactly `height` lines of at most `width` columns. Keeps the view's cursor and scroll
// within the rows and lines that there are.
std::vector<Line> frame(const TopData& data, TopView& view, size_t width, size_t height);

// All rows, without a cursor or keys, for pipes. Coloured where stdout takes colour.
std::string plain_frame(const TopData& data, const TopView& view);

}  // namespace yard::tool
