// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yard/log.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>

#include "json.h"
#include "output.h"

namespace yard::tool {
namespace {

bool g_json = false;

bool decide_colour() {
  const char* no = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no != nullptr && *no != '\0') return false;
  return output_is_terminal() && term != nullptr && std::string_view(term) != "dumb";
}

const char* code_of(Paint p) {
  switch (p) {
    case Paint::kBold: return "1";
    case Paint::kGood: return "32";
    case Paint::kWarning: return "33";
    case Paint::kBad: return "31";
    case Paint::kDim: return "2";
    case Paint::kPlain: break;
  }
  return nullptr;
}

// Returns the number of insertions, deletions and replacements that turn one word into the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

bool colour() {
  static const bool on = decide_colour();
  return on;
}

std::string paint(Paint p, std::string_view text) {
  const char* code = code_of(p);
  if (code == nullptr || !colour() || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t least = word.size() < 4 ? 2 : 3;  // words at this distance or more are not similar
  for (const std::string& k : known)
    if (const size_t d = distance(word, k); d < least) least = d, best = &k;
  return best != nullptr ? fmt::format("; did you mean '{}'?", *best) : "";
}

void set_json_output(bool json) { g_json = json; }
bool json_output() { return g_json; }

int fail(int code, std::string_view message) {
  return fail(code, Status(Code::kInvalidArgument, std::string(message)));
}

int fail(int code, const Status& status) {
  if (json_output()) {
    print_json({{"error", status.message()}, {"notes", status.notes()}, {"exit_code", code}});
    return code;
  }
  print_err("yard: {}\n", message_lines(status.message()));
  for (const std::string& note : status.notes()) print_err("  {}\n", message_lines(note));
  return code;
}

int exit_code(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return kOk;
    case Code::kInvalidArgument:
    case Code::kParse:
    case Code::kUnknownOp:
    case Code::kNotFound:
    case Code::kUnsupported: return kUsage;
    default: return kFailed;
  }
}

void need(const Status& status, int code) {
  if (!status.ok()) throw Failure{code != kOk ? code : exit_code(status), status};
}

int run_action(const std::function<int()>& action) {
  try {
    return action();
  } catch (const Failure& f) {
    return fail(f.code, f.status);
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory");
  } catch (const std::exception& e) {
    const std::string what = printable(e.what());
    return fail(kFailed, "unexpected exception: " + (what.empty() ? "it has no message" : what));
  } catch (...) {
    return fail(kFailed, "unexpected exception that is not a std::exception");
  }
}

std::string duration(double ns) {
  const auto text = [](double v, const char* unit) {
    return fmt::format("{:.{}f} {}", v, v < 10 ? 2 : v < 100 ? 1 : 0, unit);
  };
  if (ns < 1e3) return text(ns, "ns");
  if (ns < 1e6) return text(ns / 1e3, "us");
  if (ns < 1e9) return text(ns / 1e6, "ms");
  return text(ns / 1e9, "s");
}

std::string age_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds < 0 ? 0 : seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{:.0f} h", seconds / 3600);
  return fmt::format("{:.0f} days", seconds / 86400);
}

size_t columns_of(std::string_view s) {
  return static_cast<size_t>(std::ranges::count_if(s, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string clipped(std::string_view text, size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  if (width == 0) return {};
  size_t at = 0;  // becomes the end of the first width - 1 code points
  for (size_t n = 0; at < text.size(); ++at)
    if ((text[at] & 0xc0) != 0x80 && n++ == width - 1) break;
  return std::string(text.substr(0, at)) + '~';
}

Table::Table(std::string_view columns) {
  for (bool more = true; more;) {
    std::string_view title = columns.substr(0, columns.find('|'));
    more = title.size() < columns.size();
    columns.remove_prefix(title.size() + (more ? 1 : 0));
    right_.push_back(title.ends_with('>'));
    if (right_.back()) title.remove_suffix(1);
    head_.push_back({std::string(title), Paint::kBold});
  }
}

std::vector<Line> Table::lines(size_t width, size_t least) const {
  constexpr size_t kLeastName = 10;
  std::vector<Line> all = {head_};
  std::vector<size_t> widths(head_.size());
  for (const Line& row : rows_) {
    all.push_back(row);
    all.back().resize(head_.size());
    for (Cell& c : all.back())
      c.text = printable(c.text, SIZE_MAX);  // texts of kernels are untrusted
  }
  for (const Line& line : all)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], columns_of(line[i].text));
  const auto sum = [&] { return std::accumulate(widths.begin(), widths.end(), 2 * widths.size()); };
  while (widths.size() > least && sum() > width) widths.pop_back();
  while (sum() > width) {
    size_t& widest = widths[widths.size() > 1 && widths[1] > widths[0] ? 1 : 0];
    if (widest <= kLeastName) break;
    --widest;
  }
  for (Line& line : all) {
    size_t last = widths.size();
    while (last > 0 && line[last - 1].text.empty()) --last;
    Line aligned;
    for (size_t i = 0; i < last; ++i) {
      std::string text = clipped(line[i].text, widths[i]);
      const std::string blanks(widths[i] - columns_of(text), ' ');
      if (right_[i]) aligned.push_back({blanks});
      aligned.push_back({std::move(text), line[i].paint});
      if (i + 1 < last) aligned.push_back({(right_[i] ? "" : blanks) + "  "});
    }
    line = std::move(aligned);
  }
  return all;
}

std::string Table::text(size_t indent) const {
  std::string to;
  for (const Line& line : lines()) {
    to.append(indent, ' ');
    for (const Cell& piece : line) to += paint(piece.paint, piece.text);
    to += '\n';
  }
  return to;
}

namespace {

constexpr size_t kWidth = 78;  // a longer line could wrap, and then it could not be erased

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

}  // namespace

Progress::Progress() : shown_(is_terminal()) {}

void Progress::say(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (dirty_ && now - last_ < std::chrono::milliseconds(100))) return;
  write_err("\r\x1b[K" + printable(std::string_view(line).substr(0, kWidth)));
  dirty_ = true, last_ = now;
}

void Progress::clear() {
  if (!dirty_) return;
  write_err("\r\x1b[K");
  dirty_ = false;
}

}  // namespace yard::tool
