// SPDX-License-Identifier: Apache-2.0
// Formats the screen of `yard top` as lines of text and handles keys. These are pure functions;
// screen.h has the terminal.
#pragma once

#include <string>
#include <vector>

#include "terminal.h"
#include "top/model.h"

namespace yard::tool {

// The state of the process, apart from its counters.
struct TopProcess {
  int64_t pid = 0;
  std::string program, version;
  double up_s = 0;
  std::string rules;        // "version 3 of rules.yaml"; empty if there are none
  double rules_age_s = -1;  // time since they took effect; negative if unknown
  std::string last_change;  // "deny vendor.acme, 12 s ago"; empty if no command changed it
  std::string switches;     // the active ones: "verbose 1, trace"
  std::string problem;      // why the figures are old; empty if they are current
};

// A plan of the shown op, with the rejected kernels.
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
  std::vector<TopPlan> plans;       // for the op TopView::op
  std::vector<std::string> events;  // newest first
};

struct TopView {
  TopSort sort = TopSort::kShare;
  bool reverse = false;
  std::string filter;
  bool typing = false;  // the user is typing the filter
  bool help = false;
  bool paused = false;
  bool events = false;  // events replace the table or the op
  std::string op;       // the shown op; empty for the table of all ops
  size_t cursor = 0;    // row in the table of all ops
  size_t scroll = 0;    // first visible line of the table or the op
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
  kClear,  // erases the typed line
};
struct TopInput {
  TopKey key = TopKey::kNone;
  char character = 0;
};

// Changes the view. Returns false to quit. `height` is the height of the screen.
bool handle_key(const TopInput& input, const TopData& data, size_t height, TopView& view);

// Returns exactly `height` lines of at most `width` columns. Moves the cursor and scroll position
// of the view into the existing rows and lines.
std::vector<Line> frame(const TopData& data, TopView& view, size_t width, size_t height);

// Returns all rows without a cursor or keys, for pipes. Uses colour where stdout takes colour.
std::string plain_frame(const TopData& data, const TopView& view);

}  // namespace yard::tool
