// SPDX-License-Identifier: Apache-2.0
// The picture of speeds: calls from top to bottom, speed over a copy from left to right.
#include <algorithm>
#include <cmath>

#include "kernel_figures.h"
#include "svg.h"

namespace yard::tool {
namespace {

// Pixels.
constexpr double kLabels = 240, kScale = 560, kRight = 40, kLine = 22, kTop = 84, kBottom = 44;
constexpr double kDot = 4.5;
// Decades of the speed, over the copy's.
constexpr double kFrom = -3, kTo = 1;
// Colours that people who see few still tell apart; used again when there are more kernels.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                    "#cc79a7", "#e69f00", "#56b4e9"};
constexpr const char *kPale = "#dddddd", *kCopy = "#888888";

double x_of(double over_copy) {
  const double decades = std::clamp(std::log10(std::max(over_copy, 1e-9)), kFrom, kTo);
  return kLabels + kScale * (decades - kFrom) / (kTo - kFrom);
}

std::vector<std::string> ids_of(const std::vector<CallFigures>& figures) {
  std::vector<std::string> ids;
  for (const CallFigures& f : figures)
    for (const KernelFigure& k : f.kernels)
      if (std::find(ids.begin(), ids.end(), k.id) == ids.end()) ids.push_back(k.id);
  return ids;
}

}  // namespace

std::string kernel_plot(const std::vector<CallFigures>& figures) {
  const std::vector<std::string> ids = ids_of(figures);
  const auto colour = [&](const std::string& id) {
    const auto at = std::find(ids.begin(), ids.end(), id) - ids.begin();
    return kColours[static_cast<size_t>(at) % std::size(kColours)];
  };
  const double bottom = kTop + kLine * static_cast<double>(figures.size());
  Svg svg(kLabels + kScale + kRight, bottom + kBottom);
  svg.words(16, 26, "Speed of kernels over a plain copy of the same bytes", "start", "#444444", 16);
  double at = 16;
  for (const std::string& id : ids) {
    svg.dot(at + kDot, 48, kDot, colour(id));
    svg.words(at + 14, 52, id, "start");
    at += 34 + 7 * static_cast<double>(id.size());
  }
  for (double d = kFrom; d <= kTo; ++d) {
    const double x = x_of(std::pow(10, d));
    svg.line(x, kTop - 8, x, bottom, d == 0 ? kCopy : kPale);
    svg.words(x, bottom + 18, d == 0 ? "1 (copy)" : fmt::format("{:g}", std::pow(10, d)), "middle");
  }
  double y = kTop;
  for (const CallFigures& f : figures) {
    y += kLine;
    svg.line(kLabels, y - kLine / 2, kLabels + kScale, y - kLine / 2, kPale);
    svg.words(kLabels - 10, y - kLine / 2 + 4, fmt::format("{} {} x{}", f.op, f.dtype, f.rows),
              "end");
    for (const KernelFigure& k : f.kernels)
      svg.dot(x_of(k.over_copy), y - kLine / 2, kDot, colour(k.id));
  }
  return std::move(svg).finish();
}

}  // namespace yard::tool
