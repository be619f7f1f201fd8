// SPDX-License-Identifier: Apache-2.0
// Laying out tables.
#include "table.h"

#include <yard/log.h>

#include <algorithm>

namespace yard::tool {
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

}  // namespace yard::tool
