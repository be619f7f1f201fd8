// SPDX-License-Identifier: Apache-2.0
// Applies keys to the view of `yard top`.
#include <algorithm>

#include "top/frame.h"

namespace yard::tool {
namespace {

void move(size_t& at, const TopInput& input, size_t page) {
  const auto back = [&](size_t n) { at -= std::min(at, n); };
  switch (input.key) {
    case TopKey::kUp: back(1); break;
    case TopKey::kDown: ++at; break;
    case TopKey::kPageUp: back(page); break;
    case TopKey::kPageDown: at += page; break;
    case TopKey::kHome: at = 0; break;
    case TopKey::kEnd: at = SIZE_MAX / 2; break;  // frame() corrects it
    default: break;
  }
}

void type(const TopInput& input, TopView& view) {
  switch (input.key) {
    case TopKey::kCharacter: view.filter += input.character; break;
    case TopKey::kBackspace:
      while (!view.filter.empty()) {  // erases all bytes of a character
        const char last = view.filter.back();
        view.filter.pop_back();
        if ((last & 0xc0) != 0x80) break;
      }
      break;
    case TopKey::kClear: view.filter.clear(); break;
    case TopKey::kEnter: view.typing = false; break;
    case TopKey::kEscape: view.typing = false, view.filter.clear(); break;
    default: break;
  }
  view.cursor = view.scroll = 0;
}

void open_op(const TopData& data, TopView& view) {
  const auto rows = chosen_rows(data.model.rows, view.filter, view.sort, view.reverse);
  if (view.cursor >= rows.size()) return;
  view.op = rows[view.cursor].op;
  view.filter.clear(), view.scroll = 0;
}

// Returns false to quit.
bool command(char c, TopView& view, TopInput& as) {
  const auto sort = [&](TopSort by) { view.sort = by, view.cursor = view.scroll = 0; };
  switch (c) {
    case 'q':
    case 'Q': return false;
    case 'j': as.key = TopKey::kDown; break;
    case 'k': as.key = TopKey::kUp; break;
    case '/': view.typing = true, view.filter.clear(), view.cursor = view.scroll = 0; break;
    case 's': sort(TopSort::kShare); break;
    case 'c': sort(TopSort::kCalls); break;
    case 'l': sort(TopSort::kLatency); break;
    case 'h': sort(TopSort::kHealth); break;
    case 'o': sort(TopSort::kOp); break;
    case 'n': sort(TopSort::kKernel); break;
    case 'r': view.reverse = !view.reverse; break;
    case 'e': view.events = !view.events, view.scroll = 0; break;
    case ' ': view.paused = !view.paused; break;
    case '?': view.help = true; break;
    default: break;
  }
  return true;
}

}  // namespace

bool handle_key(const TopInput& input, const TopData& data, size_t height, TopView& view) {
  if (input.key == TopKey::kNone) return true;
  if (view.help) {
    view.help = false;
    return true;
  }
  if (view.typing) {
    type(input, view);
    return true;
  }
  TopInput as = input;
  if (input.key == TopKey::kCharacter && !command(input.character, view, as)) return false;
  if (as.key == TopKey::kEnter && view.op.empty() && !view.events) {
    open_op(data, view);
  } else if (as.key == TopKey::kEscape) {
    if (view.events)
      view.events = false;
    else if (!view.filter.empty())
      view.filter.clear();
    else
      view.op.clear();
    view.scroll = 0;
  } else {
    const size_t page = height > 10 ? height - 8 : 1;
    if (view.op.empty() && !view.events)
      move(view.cursor, as, page);
    else
      move(view.scroll, as, page);
  }
  return true;
}

}  // namespace yard::tool
