// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <yard/call_spec.h>
#include <yard/runtime.h>

namespace yard {
namespace {

ParsedCall parse(std::string_view text) { return Runtime::shared().parse(text).value(); }

const ParsedTensor& tensor(const ParsedArg& a) { return std::get<ParsedTensor>(a.value); }

TEST(ParsedCall, FillsInOutputsAndDefaults) {
  const ParsedCall c = parse("rms_norm(f32[8,64], f32[64])");
  EXPECT_EQ(c.op, "rms_norm");
  EXPECT_EQ(c.text, "rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu");
  ASSERT_EQ(c.args.size(), 4u);
  EXPECT_EQ(c.args[0].name, "out");
  EXPECT_FALSE(c.args[0].read);
  EXPECT_TRUE(c.args[0].written);
  EXPECT_EQ(tensor(c.args[0]).shape, (std::vector<int64_t>{8, 64}));
  EXPECT_EQ(tensor(c.args[0]).strides, (std::vector<int64_t>{64, 1}));
  EXPECT_EQ(tensor(c.args[0]).align, 64u);
  EXPECT_TRUE(c.args[1].read);
  EXPECT_FALSE(c.args[1].written);
  EXPECT_EQ(std::get<double>(c.args[3].value), 1e-6);
}

TEST(ParsedCall, KeepsStridesAlignmentFlagsAndLabels) {
  const ParsedCall c = parse("softmax(f16[4,8;16,1]%2)@cpu+deterministic{model=llama}");
  EXPECT_EQ(tensor(c.args[1]).dtype, DType::f16);
  EXPECT_EQ(tensor(c.args[1]).strides, (std::vector<int64_t>{16, 1}));
  EXPECT_EQ(tensor(c.args[1]).align, 2u);
  EXPECT_EQ(c.flags, YARD_CALL_DETERMINISTIC);
  EXPECT_EQ(c.labels.at("model"), "llama");
}

TEST(ParsedCall, OutputsThatAreInputs) {
  const ParsedCall c = parse("rms_norm(f32[8,64], f32[64], out=&x)");
  EXPECT_EQ(c.args[0].same_as, "x");
  EXPECT_EQ(c.args[1].same_as, "");
  EXPECT_NE(c.flags & YARD_CALL_ALIASED, 0u);
  EXPECT_EQ(parse("rms_norm(f32[8,64], f32[64])").args[0].same_as, "");
}

TEST(ParsedCall, AbsentOptionalsEnumsAndInOut) {
  const ParsedCall c = parse("rotary_embedding(f32[5,8,64], positions=i64[5], style=interleaved)");
  EXPECT_TRUE(c.args[0].read && c.args[0].written);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(c.args[1].value));
  EXPECT_EQ(tensor(c.args[2]).dtype, DType::i64);
  EXPECT_EQ(std::get<int64_t>(c.args[5].value), 0);
  EXPECT_EQ(std::get<std::string>(c.args[7].value), "interleaved");
}

TEST(ParsedCall, ItsTextParsesToTheSame) {
  const ParsedCall c = parse("layer_norm(bf16[2,3,16;96,32,1], bias=bf16[16])@cpu+inference");
  EXPECT_EQ(parse(c.text).text, c.text);
  EXPECT_EQ(tensor(parse(c.text).args[1]).strides, tensor(c.args[1]).strides);
}

TEST(ParsedCall, Failures) {
  const Runtime& r = Runtime::shared();
  EXPECT_EQ(r.parse("softmax(f32[4,8]").status().code(), Code::kParse);
  EXPECT_EQ(r.parse("sofmax(f32[4,8])").status().code(), Code::kUnknownOp);
  EXPECT_NE(r.parse("sofmax(f32[4,8])").status().message().find("'softmax'"),
            std::string_view::npos);
  EXPECT_EQ(r.parse("softmax(i32[4,8])").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace yard
