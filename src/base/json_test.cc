// SPDX-License-Identifier: Apache-2.0
// JSON strings: escapes, UTF-8, and bytes that are neither.
#include "base/json.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>

namespace yard::base {
namespace {

TEST(JsonString, PassesPlainTextAndUtf8) {
  EXPECT_EQ(json_string(""), "\"\"");
  EXPECT_EQ(json_string("vendor.acme"), "\"vendor.acme\"");
  EXPECT_EQ(json_string("größer → ∞ 😀"), "\"größer → ∞ 😀\"");
  EXPECT_EQ(json_string("\x7f"), "\"\x7f\"");
}

TEST(JsonString, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\t\x01\x1b"), R"("\u000a\u0009\u0001\u001b")");
  EXPECT_EQ(json_string(std::string_view("a\0b", 3)), R"("a\u0000b")");
}

TEST(JsonString, ReplacesBytesThatAreNotUtf8) {
  const char* const bad = "\\ufffd";
  const auto in = [&](const char* s) { return json_string(s); };
  EXPECT_EQ(in("\xff"), std::string("\"") + bad + "\"");
  EXPECT_EQ(in("a\x80z"), std::string("\"a") + bad + "z\"");
  // Cut short at the end and in the middle.
  EXPECT_EQ(in("\xe2\x82"), std::string("\"") + bad + bad + "\"");
  EXPECT_EQ(in("\xe2\x82x"), std::string("\"") + bad + bad + "x\"");
  // Overlong forms, surrogates, beyond the last code point.
  EXPECT_EQ(in("\xc0\xaf"), std::string("\"") + bad + bad + "\"");
  EXPECT_EQ(in("\xe0\x80\xaf"), std::string("\"") + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xed\xa0\x80"), std::string("\"") + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xf4\x90\x80\x80"), std::string("\"") + bad + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xf0\x80\x80\x80"), std::string("\"") + bad + bad + bad + bad + "\"");
}

// Whatever goes in, what comes out is one quoted string without raw control characters.
TEST(JsonString, IsWellFormedForAnyBytes) {
  EXPECT_TRUE(rc::check("any bytes", [](const std::string& text) {
    const std::string out = json_string(text);
    RC_ASSERT(out.size() >= 2u);
    RC_ASSERT(out.front() == '"' && out.back() == '"');
    for (size_t i = 1; i + 1 < out.size(); ++i) {
      const auto c = static_cast<unsigned char>(out[i]);
      RC_ASSERT(c >= 0x20u && c != '"');
      if (c != '\\') continue;
      const char next = out[++i];
      RC_ASSERT(next == '"' || next == '\\' || next == 'u');
      if (next == 'u') i += 4;
      RC_ASSERT(i + 1 < out.size());
    }
  }));
}

}  // namespace
}  // namespace yard::base
