// SPDX-License-Identifier: Apache-2.0
// Tests the grammar of parse_expectations() and its errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/verify.h>

namespace yard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Expectations, AreReadLineByLine) {
  const auto list = parse_expectations(
      "# what we know\n"
      "\n"
      "vendor.acme softmax softmax(f16[*)@cuda:1* : unsupported : no halves : yet\r\n"
      "  default.*   rms_*\t*contents=nan :  fails :  flushes NaN  ",
      "known.txt");
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  ASSERT_EQ(list->size(), 2u);
  const Expectation &a = (*list)[0], &b = (*list)[1];
  EXPECT_EQ(a.kernel, "vendor.acme");
  EXPECT_EQ(a.op, "softmax");
  EXPECT_EQ(a.call, "softmax(f16[*)@cuda:1*");
  EXPECT_EQ(a.kind, Expectation::Kind::kUnsupported);
  EXPECT_EQ(a.reason, "no halves : yet");
  EXPECT_EQ(a.line, 3);
  EXPECT_EQ(b.call, "*contents=nan");
  EXPECT_EQ(b.kind, Expectation::Kind::kFails);
  EXPECT_EQ(b.reason, "flushes NaN");
  EXPECT_EQ(b.line, 4);
}

TEST(Expectations, ACallMayHoldBlanks) {
  const auto list =
      parse_expectations("k rms_norm rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu : fails : x", "f");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ((*list)[0].call, "rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu");
}

TEST(Expectations, EmptyTextIsValid) { EXPECT_TRUE(parse_expectations("", "f").value().empty()); }

TEST(Expectations, ErrorsHaveFileAndLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"k op call", "f:1: expected `KERNEL OP CALLSPEC : unsupported|fails : reason`"},
      {"k op call : fails", "f:1: expected `KERNEL OP"},
      {"k op call:fails:why", "with blanks around each ':'"},
      {"\n\nk op : fails : why", "f:3: expected three globs before the first ':'"},
      {" : fails : why", "f:1: expected three globs"},
      {"k op * : unsuported : why", "got 'unsuported'; did you mean 'unsupported'?"},
      {"k op * :  : why", "expected 'unsupported' or 'fails', got ''"},
      {"k op * : fails : ", "f:1: the reason is missing"},
  };
  for (const auto& [text, message] : wrong) {
    const auto list = parse_expectations(text, "f");
    ASSERT_FALSE(list.ok()) << text;
    EXPECT_EQ(list.status().code(), Code::kParse);
    EXPECT_THAT(std::string(list.status().message()), HasSubstr(message));
  }
}

TEST(Expectations, AllErrorsAreReported) {
  const auto list = parse_expectations("a\nk op * : fails : good\nb\n", "f");
  ASSERT_FALSE(list.ok());
  EXPECT_THAT(std::string(list.status().message()), StartsWith("f:1:"));
  ASSERT_EQ(list.status().notes().size(), 1u);
  EXPECT_THAT(list.status().notes()[0], StartsWith("f:3:"));
}

}  // namespace
}  // namespace yard
