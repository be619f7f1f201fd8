// SPDX-License-Identifier: Apache-2.0
// Colour, messages, suggestions.
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

// Insertions, deletions and replacements between two words.
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
  size_t least = word.size() < 4 ? 2 : 3;  // at this distance it is another word
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

std::string exception_message(const std::exception& e) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return "out of memory";
  const char* const what = e.what();
  return fmt::format("unexpected exception: {}",
                     what != nullptr && *what != '\0' ? printable(what) : "it has no message");
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

namespace {

// Code points, as an approximation of columns.
size_t width(const std::string& s) {
  return static_cast<size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string Table::text(size_t indent) const {
  std::vector<std::vector<Cell>> lines;
  auto& head = lines.emplace_back();
  for (const Column& c : columns_) head.push_back({c.title, Paint::kBold});
  for (const auto& row : rows_) {
    auto& line = lines.emplace_back(row);
    line.resize(columns_.size());
    for (Cell& cell : line) cell.text = printable(cell.text);  // texts of kernels are untrusted
  }
  std::vector<size_t> widths(columns_.size(), 0);
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width(line[i].text));

  std::string out;
  for (const auto& line : lines) {
    size_t last = line.size();
    while (last > 0 && line[last - 1].text.empty()) --last;
    out.append(indent, ' ');
    for (size_t i = 0; i < last; ++i) {
      const std::string blanks(widths[i] - width(line[i].text), ' ');
      if (columns_[i].align == Align::kRight) out += blanks;
      out += paint(line[i].paint, line[i].text);
      if (i + 1 == last) break;
      if (columns_[i].align == Align::kLeft) out += blanks;
      out += "  ";
    }
    out += '\n';
  }
  return out;
}

namespace {

constexpr size_t kWidth = 78;  // a line that wraps could not be erased

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
