// SPDX-License-Identifier: Apache-2.0
// Writing the picture: plain SVG, readable on light and dark paper.
#include "error_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg.h"

namespace yard::tool {
namespace {

// Pixels.
constexpr double kLabels = 260, kZero = 40, kScale = 480, kEndless = 60, kStrip = 26, kTop = 56;
constexpr double kBottom = 44, kDot = 2.2;
// Decades of the error, in units of the tolerance.
constexpr double kFrom = -6, kTo = 2;

constexpr const char* kGood = "#2f7d4f";
constexpr const char* kBad = "#c0392b";
constexpr const char* kInk = "#444444";
constexpr const char* kPale = "#d9d9d9";

double x_of(double error) {
  if (!(error > 0)) return kLabels + kZero / 2;
  if (std::isinf(error)) return kLabels + kZero + kScale + kEndless / 2;
  const double decades = std::clamp(std::log10(error), kFrom, kTo);
  return kLabels + kZero + kScale * (decades - kFrom) / (kTo - kFrom);
}

void axis(Svg& svg, double bottom) {
  for (double d = kFrom; d <= kTo; ++d) {
    const double x = x_of(std::pow(10, d));
    svg.line(x, kTop, x, bottom, d == 0 ? kBad : kPale);
    svg.words(x, bottom + 16, fmt::format("1e{}", static_cast<int>(d)), "middle", kInk, 10);
  }
  svg.words(x_of(0), bottom + 16, "0", "middle", kInk, 10);
  svg.words(x_of(INFINITY), bottom + 16, "no number", "middle", kInk, 10);
  svg.words(kLabels + kZero + kScale / 2, bottom + 34,
            "error in units of the tolerance; 1 is the limit", "middle", kInk, 11);
}

}  // namespace

std::string error_plot(const VerifyReport& report) {
  std::vector<const KernelReport*> kernels;
  for (const KernelReport& k : report.kernels)
    if (!k.errors.empty()) kernels.push_back(&k);
  const double bottom = kTop + kStrip * static_cast<double>(std::max<size_t>(kernels.size(), 1));
  Svg svg(kLabels + kZero + kScale + kEndless + 20, bottom + kBottom);
  svg.words(12, 26, "Kernels held against their reference", "start", kInk, 16);
  svg.words(12, 44, "one dot for each call", "start", kInk, 11);
  axis(svg, bottom);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const KernelReport& k = *kernels[i];
    const double top = kTop + kStrip * static_cast<double>(i);
    svg.line(12, top + kStrip, kLabels + kZero + kScale + kEndless, top + kStrip, kPale);
    svg.words(kLabels - 8, top + kStrip / 2 + 4, k.op + "  " + k.id, "end");
    for (size_t n = 0; n < k.errors.size(); ++n) {
      // Spread over the strip in an even, repeatable way.
      const double spread = std::fmod(static_cast<double>(n) * 0.6180339887, 1.0);
      svg.dot(x_of(k.errors[n]), top + 4 + spread * (kStrip - 8), kDot,
              k.errors[n] > 1 ? kBad : kGood);
    }
  }
  return std::move(svg).finish();
}

}  // namespace yard::tool
