// SPDX-License-Identifier: Apache-2.0
// How the command writes text: colour on terminals only, tables, errors, suggestions for misspelt
// words.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::tool {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // the operation failed, for example because results differ
inline constexpr int kUsage = 2;   // invalid input

// Whether stdout takes colour: it is a terminal that is not dumb, and NO_COLOR is not set.
bool colour();

enum class Paint { kPlain, kBold, kGood, kWarning, kBad, kDim };
// The text in colour where stdout takes it.
std::string paint(Paint p, std::string_view text);

// "; did you mean 'list'?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Whether the command was called with --json, so that errors are JSON on stdout.
void set_json_output(bool json);
bool json_output();

// Writes a message with its notes to stderr, `yard: ...`, or as the JSON object {"schema", "error",
// "notes", "exit_code"}. Returns `code`.
int fail(int code, std::string_view message);
int fail(int code, const Status& status);

// 2 for invalid input (unknown op, text that does not parse), 1 for other failures.
int exit_code(const Status& status);

// Thrown to end the command with an error.
struct Failure {
  int code;
  Status status;
};
// Throws a Failure if there is an error. The default code is the result of exit_code().
void need(const Status& status, int code = kOk);
// The same, and returns the value.
template <class T>
T need(Result<T> result, int code = kOk) {
  need(result.status(), code);
  return *std::move(result);
}
// Runs an action and returns its exit code. Reports every exception, and returns its exit code.
int run_action(const std::function<int()>& action);

// "830 ns", "1.24 us", "3.1 ms": three figures.
std::string duration(double ns);
// "12 s", "3 min", "2 h", "5 days".
std::string age_text(double seconds);

struct Cell {
  std::string text;
  Paint paint = Paint::kPlain;
};
// The pieces of a line, from left to right.
using Line = std::vector<Cell>;

// Code points, as an approximation of columns.
size_t columns_of(std::string_view text);
// At most `width` columns. The end of a longer text is replaced by `~`.
std::string clipped(std::string_view text, size_t width);

// Tables that line up, with or without colour. Bars separate the titles of the columns, and a `>`
// after a title aligns its column to the right.
//
//   Table t("kernel|priority>");
//   t.add({{"reference.cpp"}, {"50"}});
//   print_out("{}", t.text());
class Table {
 public:
  explicit Table(std::string_view columns);
  // Missing cells are empty.
  void add(Line row) { rows_.push_back(std::move(row)); }
  // The head and the rows, without blanks at their ends. Tables that are wider than `width` lose
  // columns at the right, down to `least` columns. Then the first two columns are clipped.
  std::vector<Line> lines(size_t width = SIZE_MAX, size_t least = 0) const;
  // The lines in colour, each indented by `indent`.
  std::string text(size_t indent = 0) const;

 private:
  Line head_;
  std::vector<bool> right_;
  std::vector<Line> rows_;
};

// A line on stderr that shows the progress of a long command; on terminals only.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether it is shown.
  bool shown() const noexcept { return shown_; }
  // Replaces the previous line; at most ten times a second.
  void say(const std::string& line);
  // Before other output.
  void clear();

 private:
  const bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace yard::tool
