// SPDX-License-Identifier: Apache-2.0
// Tests every kind of limit on both sides of its edge, and the flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "select/testing.h"

namespace yard::select {
namespace {

using testing::Ring;

// Adds a kernel with one limit, and checks the reason and figures of calls.
void expect_edge(yard_limit_t limit, int32_t reason, const char* inside, const char* outside,
                 int64_t found = 0) {
  Ring r;
  r.limit("default.l", limit);
  EXPECT_EQ(r.reason("default.l", inside), YARD_REASON_NONE) << inside;
  EXPECT_EQ(r.reason("default.l", outside), reason) << outside;
  EXPECT_EQ(r.note("default.l", outside).verdict.figures[1], found) << outside;
}

TEST(Limit, LeastMostAndMultiple) {
  expect_edge({YARD_LIMIT_MIN, 0, "hidden", 64, 0, 0}, YARD_REASON_DIM_TOO_SMALL, "norm(f32[4,64])",
              "norm(f32[4,63])", 63);
  expect_edge({YARD_LIMIT_MAX, 0, "rows", 6, 0, 0}, YARD_REASON_DIM_TOO_LARGE, "norm(f32[2,3,8])",
              "norm(f32[7,8])", 7);
  expect_edge({YARD_LIMIT_MULTIPLE, 0, "hidden", 8, 0, 0}, YARD_REASON_DIM_NOT_MULTIPLE,
              "norm(f32[4,0])", "norm(f32[4,12])", 12);
  expect_edge({YARD_LIMIT_MULTIPLE, 0, "groups", 4, 0, 0}, YARD_REASON_DIM_NOT_MULTIPLE,
              "norm(f32[4,8], groups=-8)", "norm(f32[4,8], groups=-6)", -6);
  expect_edge({YARD_LIMIT_MIN, 0, "groups", 1, 0, 0}, YARD_REASON_DIM_TOO_SMALL, "norm(f32[4,8])",
              "norm(f32[4,8], groups=0)", 0);
  expect_edge({YARD_LIMIT_MAX, 0, "x.rank", 2, 0, 0}, YARD_REASON_DIM_TOO_LARGE, "norm(f32[4,8])",
              "norm(f32[1,4,8])", 3);
}

TEST(Limit, DTypes) {
  const int64_t halves = YARD_DTYPE_BIT(YARD_F16) | YARD_DTYPE_BIT(YARD_BF16);
  expect_edge({YARD_LIMIT_DTYPE, 0, nullptr, halves, 0, 0}, YARD_REASON_DTYPE, "norm(bf16[4,8])",
              "norm(f32[4,8])", YARD_F32);
  expect_edge({YARD_LIMIT_DTYPE, 0, "x", halves, 0, 0}, YARD_REASON_DTYPE, "norm(f16[4,8])",
              "norm(f64[4,8])", YARD_F64);
  // An argument that is absent cannot have a wrong dtype.
  expect_edge({YARD_LIMIT_DTYPE, 0, "bias", halves, 0, 0}, YARD_REASON_DTYPE, "norm(f32[4,8])",
              "norm(f32[4,8], f32[8])", YARD_F32);
}

TEST(Limit, Layouts) {
  expect_edge({YARD_LIMIT_COMPACT, 0, "x", 0, 0, 0}, YARD_REASON_LAYOUT, "norm(f32[4,8])",
              "norm(f32[4,8;16,1])");
  expect_edge({YARD_LIMIT_COMPACT, 0, nullptr, 0, 0, 0}, YARD_REASON_LAYOUT, "norm(f32[4,8;8,1])",
              "norm(f32[4,8;16,1])");
  expect_edge({YARD_LIMIT_INNER_DENSE, 0, "x", 0, 0, 0}, YARD_REASON_LAYOUT, "norm(f32[4,8;16,1])",
              "norm(f32[4,8;16,2])");
  expect_edge({YARD_LIMIT_PLAIN, 0, "x", 0, 0, 0}, YARD_REASON_LAYOUT, "norm(f32[4,8;16,2])",
              "norm(f32[4,8;0,1])");
  Ring r;
  r.limit("default.l", {YARD_LIMIT_COMPACT, 0, nullptr, 0, 0, 0});
  // The third figure is the argument.
  EXPECT_EQ(r.note("default.l", "norm(f32[4,8], f32[8;2])").verdict.figures[2], 2);
}

TEST(Limit, Alignment) {
  expect_edge({YARD_LIMIT_ALIGN, 0, "x", 32, 0, 0}, YARD_REASON_ALIGNMENT, "norm(f32[4,8]%32)",
              "norm(f32[4,8]%16)", 16);
  expect_edge({YARD_LIMIT_ALIGN, 0, nullptr, 64, 0, 0}, YARD_REASON_ALIGNMENT, "norm(f32[4,8])",
              "norm(f32[4,8], f32[8]%4)", 4);
}

TEST(Limit, Ranks) {
  expect_edge({YARD_LIMIT_RANK, 0, "x", 2, 3, 0}, YARD_REASON_RANK, "norm(f32[1,4,8])",
              "norm(f32[8])", 1);
  expect_edge({YARD_LIMIT_RANK, 0, "x", 2, 3, 0}, YARD_REASON_RANK, "norm(f32[4,8])",
              "norm(f32[1,1,4,8])", 4);
}

TEST(Limit, ScalarsAndOptionals) {
  expect_edge({YARD_LIMIT_EQUALS, 0, "mode", 1, 0, 0}, YARD_REASON_SCALAR,
              "norm(f32[4,8], mode=exact)", "norm(f32[4,8])", 0);
  expect_edge({YARD_LIMIT_EQUALS, 0, "groups", 1, 0, 0}, YARD_REASON_SCALAR, "norm(f32[4,8])",
              "norm(f32[4,8], groups=2)", 2);
  expect_edge({YARD_LIMIT_ABSENT, 0, "bias", 0, 0, 0}, YARD_REASON_OPTIONAL_PRESENT,
              "norm(f32[4,8])", "norm(f32[4,8], f32[8])");
  expect_edge({YARD_LIMIT_PRESENT, 0, "bias", 0, 0, 0}, YARD_REASON_OPTIONAL_ABSENT,
              "norm(f32[4,8], f32[8])", "norm(f32[4,8])");
}

TEST(Limit, TheFirstThatFailsIsNamed) {
  static const yard_limit_t limits[] = {{YARD_LIMIT_MIN, 0, "hidden", 1, 0, 0},
                                        {YARD_LIMIT_MAX, 0, "hidden", 16, 0, 0},
                                        {YARD_LIMIT_COMPACT, 0, nullptr, 0, 0, 0}};
  Ring r;
  r.add("default.l", "plain", YARD_KIND_DEFAULT,
        [](yard_kernel_t& d) { d.limits = limits, d.limit_count = 3; });
  EXPECT_EQ(r.reason("default.l", "norm(f32[4,16])"), YARD_REASON_NONE);
  const auto note = r.note("default.l", "norm(f32[4,17;40,1])");
  EXPECT_EQ(note.verdict.reason, YARD_REASON_DIM_TOO_LARGE);
  EXPECT_EQ(note.verdict.figures[0], 1);
}

TEST(Flags, OfTheCallAndOfTheKernel) {
  Ring r;
  const auto with = [&](const char* id, uint32_t flags) {
    r.add(id, "plain", YARD_KIND_DEFAULT, [&](yard_kernel_t& d) { d.flags = flags; });
  };
  with("default.none", 0);
  with("default.same", YARD_KERNEL_DETERMINISTIC);
  with("default.capture", YARD_KERNEL_CAPTURE_SAFE);
  with("default.both", YARD_KERNEL_DETERMINISTIC | YARD_KERNEL_CAPTURE_SAFE);
  with("default.inference", YARD_KERNEL_INFERENCE_ONLY);
  const std::string call = "norm(f32[4,8])@cpu";
  EXPECT_EQ(r.reason("default.none", call), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.inference", call), YARD_REASON_INFERENCE_ONLY);
  EXPECT_EQ(r.reason("default.inference", call + "+inference"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.none", call + "+deterministic"), YARD_REASON_NOT_DETERMINISTIC);
  EXPECT_EQ(r.reason("default.same", call + "+deterministic"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.none", call + "+capturing"), YARD_REASON_NOT_CAPTURE_SAFE);
  EXPECT_EQ(r.reason("default.capture", call + "+capturing"), YARD_REASON_NONE);
  EXPECT_EQ(r.reason("default.same", call + "+deterministic+capturing"),
            YARD_REASON_NOT_CAPTURE_SAFE);
  EXPECT_THAT(r.order(call + "+deterministic+capturing"), ::testing::ElementsAre("default.both"));
}

}  // namespace
}  // namespace yard::select
