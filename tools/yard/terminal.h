// SPDX-License-Identifier: Apache-2.0
// Output of the command: colour on terminals only, errors on stderr, suggestions for misspelt words.
#pragma once

#include <yard/status.h>

#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace yard::tool {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // the operation failed: no kernel, a mismatch
inline constexpr int kUsage = 2;   // invalid input

// Whether stdout takes colour: a terminal that is not dumb, and NO_COLOR is not set.
bool colour();

enum class Paint { kPlain, kBold, kGood, kWarning, kBad, kDim };
// The text in colour where stdout takes it.
std::string paint(Paint p, std::string_view text);

// "; did you mean 'list'?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// Whether the command was called with --json: then errors are JSON on stdout.
void set_json_output(bool json);
bool json_output();

// One message on stderr, `yard: ...`, or the object {"schema", "error", "notes", "exit_code"}; returns `code`.
int fail(int code, std::string_view message);
// The status with its notes.
int fail(int code, const Status& status);

// "unexpected exception: ..." for an exception that no command expects.
std::string exception_message(const std::exception& e);

// 2 for invalid input (unknown op, text that does not parse), 1 for other failures.
int exit_code(const Status& status);

// "830 ns", "1.24 us", "3.1 ms": three figures.
std::string duration(double ns);
// "12 s", "3 min", "2 h", "5 days".
std::string age_text(double seconds);

// Tables that line up, with or without colour.
//
//   Table t({{"kernel"}, {"priority", Align::kRight}});
//   t.add({{"reference.cpp"}, {"50"}});
//   print_out("{}", t.text());
enum class Align { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

struct Cell {
  std::string text;
  Paint paint = Paint::kPlain;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // Missing cells are empty.
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Each line indented by `indent` and without blanks at its end.
  std::string text(size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
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
