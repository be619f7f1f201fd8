// SPDX-License-Identifier: Apache-2.0
// The parts of the command that the built-in kernels cannot put to the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "error_plot.h"

namespace yard::tool {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(ErrorPlot, HasAStripForEachKernelAndADotForEachCase) {
  VerifyReport report;
  auto& good = report.kernels.emplace_back();
  good.op = "softmax", good.id = "default.<fast>", good.errors = {0, 1e-3, 0.5};
  auto& bad = report.kernels.emplace_back();
  bad.op = "softmax", bad.id = "vendor.acme";
  bad.errors = {3, 1e9, std::numeric_limits<double>::infinity()};
  report.kernels.emplace_back().id = "idle";
  const std::string svg = error_plot(report);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_EQ(count(svg, "<circle"), 6u);
  EXPECT_EQ(count(svg, "fill=\"#c0392b\""), 3u);
  EXPECT_THAT(svg, HasSubstr("default.&lt;fast&gt;"));
  EXPECT_THAT(svg, HasSubstr("vendor.acme"));
  EXPECT_THAT(svg, Not(HasSubstr("idle")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(ErrorPlot, OfNothing) { EXPECT_THAT(error_plot({}), HasSubstr("</svg>")); }

}  // namespace
}  // namespace yard::tool
