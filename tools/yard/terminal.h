// SPDX-License-Identifier: Apache-2.0
// Formats text for people: colours (on terminals only), tables, errors, and suggestions for
// misspelt words.
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

// Returns whether stdout takes colour: it must be a terminal that is not dumb, and NO_COLOR must be
// unset.
bool colour();

enum class Paint { kPlain, kBold, kGood, kWarning, kBad, kDim };
std::string paint(Paint p, std::string_view text);

// Returns "; did you mean 'list'?", or an empty text if no word is similar.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Set when the command has --json. Errors are then printed as JSON on stdout.
void set_json_output(bool json);
bool json_output();

// Writes `yard: ...` and the notes to stderr, or with --json the object {"schema", "error",
// "notes", "exit_code"} to stdout. Returns `code`.
int fail(int code, std::string_view message);
int fail(int code, const Status& status);

// Returns 2 for invalid input (unknown op, text that does not parse) and 1 for other failures.
int exit_code(const Status& status);

// This exception ends the command with an error.
struct Failure {
  int code;
  Status status;
};
// Throws a Failure if there is an error. If `code` is 0, exit_code() selects the exit code.
void need(const Status& status, int code = kOk);
// Throws a Failure for an error; otherwise returns the value.
template <class T>
T need(Result<T> result, int code = kOk) {
  need(result.status(), code);
  return *std::move(result);
}
// Runs an action and returns its exit code. Reports any exception and returns the exit code for it.
int run_action(const std::function<int()>& action);

// Formats a duration with three figures: "830 ns", "1.24 us", "3.1 ms".
std::string duration(double ns);
// Formats an age: "12 s", "3 min", "2 h", "5 days".
std::string age_text(double seconds);

struct Cell {
  std::string text;
  Paint paint = Paint::kPlain;
};
using Line = std::vector<Cell>;

// Counts code points, as an approximation of the columns that the text takes.
size_t columns_of(std::string_view text);
// Cuts the text to `width` columns. A `~` replaces the end of a longer text.
std::string clipped(std::string_view text, size_t width);

// A table with aligned columns. Bars separate the titles, and a `>` after a title aligns its column
// to the right.
//
//   Table t("kernel|priority>");
//   t.add({{"reference.cpp"}, {"50"}});
//   print_out("{}", t.text());
class Table {
 public:
  explicit Table(std::string_view columns);
  // A row may have fewer cells than the table has columns.
  void add(Line row) { rows_.push_back(std::move(row)); }
  // Returns the title and the rows without trailing blanks. If the table is wider than `width`,
  // drops columns at the right until `least` columns are left, and then clips the first two.
  std::vector<Line> lines(size_t width = SIZE_MAX, size_t least = 0) const;
  std::string text(size_t indent = 0) const;

 private:
  Line head_;
  std::vector<bool> right_;
  std::vector<Line> rows_;
};

// Shows the progress of a long command in a line on stderr, on terminals only.
class Progress {
 public:
  Progress();
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool shown() const noexcept { return shown_; }
  // Replaces the line, at most ten times a second.
  void say(const std::string& line);
  // Erases the line. Call it before any other output.
  void clear();

 private:
  const bool shown_;
  bool dirty_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace yard::tool
