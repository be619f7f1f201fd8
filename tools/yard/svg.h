// SPDX-License-Identifier: Apache-2.0
// Just enough SVG for the pictures of this command: plain, readable on paper and screen.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

namespace yard::tool {

class Svg {
 public:
  Svg(double width, double height) {
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
        "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
        width, height);
  }
  void line(double x1, double y1, double x2, double y2, std::string_view colour) {
    text_ += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1,
        x2, y2, colour);
  }
  void dot(double x, double y, double radius, std::string_view colour) {
    text_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y,
                         radius, colour);
  }
  // `anchor` is start, middle or end.
  void words(double x, double y, std::string_view text, std::string_view anchor,
             std::string_view colour = "#444444", int size = 12) {
    text_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" "
        "fill=\"{}\">{}</text>\n",
        x, y, anchor, size, colour, escape(text));
  }
  std::string finish() && { return std::move(text_) + "</svg>\n"; }

 private:
  static std::string escape(std::string_view text) {
    std::string to;
    for (const char c : text) {
      switch (c) {
        case '<': to += "&lt;"; break;
        case '>': to += "&gt;"; break;
        case '&': to += "&amp;"; break;
        case '"': to += "&quot;"; break;
        default: to += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
      }
    }
    return to;
  }
  std::string text_;
};

// A logarithmic axis: the decades 10^from to 10^to, on `width` pixels from `left` on.
struct Decades {
  double from, to, left, width;

  // Of a value above 0; beyond an end is at the end.
  double x_of(double value) const {
    return left + width * (std::clamp(std::log10(value), from, to) - from) / (to - from);
  }
};

}  // namespace yard::tool
