// SPDX-License-Identifier: Apache-2.0
// Writing the picture: plain SVG, readable on light and dark paper.
#include "error_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg.h"

namespace yard::tool {
namespace {

class ErrorPicture {
 public:
  explicit ErrorPicture(size_t strips)
      : bottom_(kTop + kStrip * static_cast<double>(std::max<size_t>(strips, 1))),
        svg_(kEnd + 20, bottom_ + kBottom) {
    svg_.words(12, 26, "Kernels held against their reference", "start", kInk, 16);
    svg_.words(12, 44, "one dot for each call", "start", kInk, 11);
    axis();
  }

  void strip(size_t index, const KernelReport& k) {
    const double top = kTop + kStrip * static_cast<double>(index);
    svg_.line(12, top + kStrip, kEnd, top + kStrip, kPale);
    svg_.words(kLabels - 8, top + kStrip / 2 + 4, k.op + "  " + k.id, "end");
    for (size_t n = 0; n < k.errors.size(); ++n) {
      // Spread over the strip in an even, repeatable way.
      const double spread = std::fmod(static_cast<double>(n) * 0.6180339887, 1.0);
      svg_.dot(x_of(k.errors[n]), top + 4 + spread * (kStrip - 8), kDot,
               k.errors[n] > 1 ? kBad : kGood);
    }
  }

  std::string finish() && { return std::move(svg_).finish(); }

 private:
  // Pixels.
  static constexpr double kLabels = 260, kZero = 40, kScale = 480, kEndless = 60, kStrip = 26;
  static constexpr double kTop = 56, kBottom = 44, kDot = 2.2;
  static constexpr double kEnd = kLabels + kZero + kScale + kEndless;
  // Of the error, in units of the tolerance.
  static constexpr Decades kDecades = {-6, 2, kLabels + kZero, kScale};
  static constexpr const char *kGood = "#2f7d4f", *kBad = "#c0392b";
  static constexpr const char *kInk = "#444444", *kPale = "#d9d9d9";

  static double x_of(double error) {
    if (!(error > 0)) return kLabels + kZero / 2;
    if (std::isinf(error)) return kEnd - kEndless / 2;
    return kDecades.x_of(error);
  }

  void axis() {
    for (double d = kDecades.from; d <= kDecades.to; ++d) {
      const double x = x_of(std::pow(10, d));
      svg_.line(x, kTop, x, bottom_, d == 0 ? kBad : kPale);
      svg_.words(x, bottom_ + 16, fmt::format("1e{}", static_cast<int>(d)), "middle", kInk, 10);
    }
    svg_.words(x_of(0), bottom_ + 16, "0", "middle", kInk, 10);
    svg_.words(x_of(INFINITY), bottom_ + 16, "no number", "middle", kInk, 10);
    svg_.words(kLabels + kZero + kScale / 2, bottom_ + 34,
               "error in units of the tolerance; 1 is the limit", "middle", kInk, 11);
  }

  const double bottom_;
  Svg svg_;
};

}  // namespace

std::string error_plot(const VerifyReport& report) {
  std::vector<const KernelReport*> kernels;
  for (const KernelReport& k : report.kernels)
    if (!k.errors.empty()) kernels.push_back(&k);
  ErrorPicture picture(kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) picture.strip(i, *kernels[i]);
  return std::move(picture).finish();
}

}  // namespace yard::tool
