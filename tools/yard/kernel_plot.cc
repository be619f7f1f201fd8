// SPDX-License-Identifier: Apache-2.0
// The picture of speeds: calls from top to bottom, speed over a copy from left to right.
#include <algorithm>
#include <cmath>

#include "kernel_figures.h"
#include "svg.h"

namespace yard::tool {
namespace {

class SpeedPicture {
 public:
  explicit SpeedPicture(const std::vector<CallFigures>& figures)
      : bottom_(kTop + kLine * static_cast<double>(figures.size())),
        svg_(kLabels + kScale + kRight, bottom_ + kBottom) {
    for (const CallFigures& f : figures)
      for (const KernelFigure& k : f.kernels)
        if (std::find(ids_.begin(), ids_.end(), k.id) == ids_.end()) ids_.push_back(k.id);
    svg_.words(16, 26, "Speed of kernels over a plain copy of the same bytes", "start", "#444444",
               16);
    legend();
    axis();
    double y = kTop;
    for (const CallFigures& f : figures) call(f, y += kLine);
  }

  std::string finish() && { return std::move(svg_).finish(); }

 private:
  // Pixels.
  static constexpr double kLabels = 240, kScale = 560, kRight = 40, kLine = 22, kTop = 84;
  static constexpr double kBottom = 44, kDot = 4.5;
  // Of the speed, over the copy's.
  static constexpr Decades kDecades = {-3, 1, kLabels, kScale};
  // Colours that people who see few still tell apart; used again when there are more kernels.
  static constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73",
                                             "#cc79a7", "#e69f00", "#56b4e9"};
  static constexpr const char *kPale = "#dddddd", *kCopy = "#888888";

  const char* colour_of(const std::string& id) const {
    const auto at = std::find(ids_.begin(), ids_.end(), id) - ids_.begin();
    return kColours[static_cast<size_t>(at) % std::size(kColours)];
  }

  void legend() {
    double at = 16;
    for (const std::string& id : ids_) {
      svg_.dot(at + kDot, 48, kDot, colour_of(id));
      svg_.words(at + 14, 52, id, "start");
      at += 34 + 7 * static_cast<double>(id.size());
    }
  }

  void axis() {
    for (double d = kDecades.from; d <= kDecades.to; ++d) {
      const double x = kDecades.x_of(std::pow(10, d));
      svg_.line(x, kTop - 8, x, bottom_, d == 0 ? kCopy : kPale);
      svg_.words(x, bottom_ + 18, d == 0 ? "1 (copy)" : fmt::format("{:g}", std::pow(10, d)),
                 "middle");
    }
  }

  // In the line that ends at `y`.
  void call(const CallFigures& f, double y) {
    svg_.line(kLabels, y - kLine / 2, kLabels + kScale, y - kLine / 2, kPale);
    svg_.words(kLabels - 10, y - kLine / 2 + 4, fmt::format("{} {} x{}", f.op, f.dtype, f.rows),
               "end");
    for (const KernelFigure& k : f.kernels)
      svg_.dot(kDecades.x_of(std::max(k.over_copy, 1e-9)), y - kLine / 2, kDot, colour_of(k.id));
  }

  const double bottom_;
  Svg svg_;
  std::vector<std::string> ids_;  // of all kernels, each once
};

}  // namespace

std::string kernel_plot(const std::vector<CallFigures>& figures) {
  return SpeedPicture(figures).finish();
}

}  // namespace yard::tool
