// SPDX-License-Identifier: Apache-2.0
// Tables that line up, with or without colour.
//
//   Table t({{"kernel"}, {"priority", Align::kRight}});
//   t.add({{"reference.cpp"}, {"50"}});
//   print_out("{}", t.text());
#pragma once

#include <string>
#include <vector>

#include "terminal.h"

namespace yard::tool {

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

}  // namespace yard::tool
