// SPDX-License-Identifier: Apache-2.0
#include "op/bind.h"

#include <gtest/gtest.h>

#include "op/testing.h"

namespace yard::op {
namespace {

std::string error_of_binding(const Program& p, std::vector<Given> given,
                             Positional positional = Positional::kAll) {
  const auto result = op::bind(p, given, positional);
  if (result.ok()) return "";
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(Bind, PositionsNamesAndDefaults) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t o = v.f32({2, 4}), x = v.f32({2, 4}), w = v.f32({4});
  const std::vector<Given> given = {{"", o}, {"weight", w}, {"x", x}};
  const Arguments a = op::bind(p, given).value();
  ASSERT_EQ(a.count, 4u);
  EXPECT_EQ(a.values[0].u.tensor, o.u.tensor);
  EXPECT_EQ(a.values[1].u.tensor, x.u.tensor);
  EXPECT_EQ(a.values[2].u.tensor, w.u.tensor);
  EXPECT_EQ(a.values[3].tag, static_cast<uint32_t>(YARD_TAG_FLOAT));
  EXPECT_EQ(a.values[3].u.f, 1e-6);
  EXPECT_EQ(p.fits(a.values), 0);
}

TEST(Bind, InputsOnly) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t x = v.f32({2, 4}), w = v.f32({4});
  const std::vector<Given> given = {{"", x}, {"", w}, {"", integer(2)}};
  const Arguments a = op::bind(p, given, Positional::kInputs).value();
  EXPECT_EQ(a.values[0].tag, static_cast<uint32_t>(YARD_TAG_NONE));
  EXPECT_EQ(a.values[1].u.tensor, x.u.tensor);
  EXPECT_EQ(a.values[3].u.f, 2.0) << "an integer for a float";
}

TEST(Bind, ScalarsOfEveryKind) {
  const Program p = compiled(
      R"(f(i: int = 3, f: float = 0.5, b: bool = true, s: string = "hi",
           e: enum{none, tanh} = tanh))");
  const Arguments a = op::bind(p, {}).value();
  EXPECT_EQ(a.values[0].u.i, 3);
  EXPECT_EQ(a.values[1].u.f, 0.5);
  EXPECT_EQ(a.values[2].u.i, 1);
  EXPECT_EQ(std::string_view(a.values[3].u.string, a.values[3].count), "hi");
  EXPECT_EQ(a.values[4].u.i, 1);
  const std::vector<Given> by_name = {{"e", text("none")}};
  EXPECT_EQ(op::bind(p, by_name)->values[4].u.i, 0);
  const std::vector<Given> absent = {{"e", none()}};
  EXPECT_EQ(op::bind(p, absent)->values[4].u.i, 0) << "none is the enumerator here";
  const std::vector<Given> index = {{"e", integer(1)}};
  EXPECT_EQ(op::bind(p, index)->values[4].u.i, 1);
}

TEST(Bind, Optionals) {
  const Program p = compiled("f(x: T[n], y?: T[n], z?: T[n])");
  Values v;
  const yard_value_t x = v.f32({4}), z = v.f32({4});
  const std::vector<Given> given = {{"", x}, {"z", z}};
  const Arguments a = op::bind(p, given).value();
  EXPECT_EQ(a.values[1].tag, static_cast<uint32_t>(YARD_TAG_NONE));
  EXPECT_EQ(a.values[2].u.tensor, z.u.tensor);
}

TEST(Bind, Errors) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const yard_value_t o = v.f32({2, 4}), x = v.f32({2, 4}), w = v.f32({4});
  EXPECT_EQ(error_of_binding(p, {{"", o}, {"", x}, {"wieght", w}}),
            "rms_norm: has no parameter 'wieght'; did you mean 'weight'?");
  EXPECT_EQ(error_of_binding(p, {{"", o}, {"", x}}),
            "rms_norm: argument 'weight' (T[hidden]) is missing");
  EXPECT_EQ(error_of_binding(p, {{"", o}, {"", x}, {"", w}, {"x", x}}),
            "rms_norm: argument 'x' is given twice");
  EXPECT_EQ(error_of_binding(p, {{"", o}, {"", x}, {"", w}, {"", number(0)}, {"", number(0)}}),
            "rms_norm: too many arguments: takes (out, x, weight, eps), got 5 by position");
  EXPECT_EQ(error_of_binding(p, {{"", x}, {"", w}, {"", number(0)}, {"", number(0)}},
                             Positional::kInputs),
            "rms_norm: too many arguments: takes (x, weight, eps), got 4 by position");
  const Program gelu = compiled(kGeluAndMul);
  EXPECT_EQ(error_of_binding(gelu, {{"", o}, {"", x}, {"", text("tahn")}}),
            "gelu_and_mul: invalid argument 'approximate': expected none or tanh, got 'tahn'; did "
            "you mean "
            "'tanh'?");
}

}  // namespace
}  // namespace yard::op
