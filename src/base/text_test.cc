// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <yard/status.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

namespace yard::base {
namespace {

TEST(Text, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("wieght", "weight"), 1u) << "a swap counts once";
  EXPECT_EQ(edit_distance(std::string(100000, 'a'), "a"), 127u) << "long words are cut";
}

TEST(Text, ClosestIsNearOrNothing) {
  const std::vector<std::string> names = {"weight", "hidden", "eps", "f32"};
  EXPECT_EQ(closest("wieght", names), "weight");
  EXPECT_EQ(closest("hiden", names), "hidden");
  EXPECT_EQ(closest("f23", names), "f32");
  EXPECT_EQ(closest("bananas", names), "");
  EXPECT_EQ(closest("x", names), "");
  EXPECT_EQ(did_you_mean("esp", names), "; did you mean 'eps'?");
  EXPECT_EQ(did_you_mean("zzz", names), "");
}

TEST(Text, OneOf) {
  EXPECT_EQ(one_of({}), "");
  EXPECT_EQ(one_of({"a"}), "a");
  EXPECT_EQ(one_of({"a", "b", "c"}), "a, b or c");
}

TEST(Text, PrintableIsOneLineWithoutControlCharacters) {
  EXPECT_EQ(printable("plain ä \"x\" \\n"), "plain ä \"x\" \\n") << "stays as it is";
  EXPECT_EQ(printable("b\tc\rd\x1b[31m\x7f\n"), "b\\tc\\rd\\x1b[31m\\x7f");
  EXPECT_EQ(printable("\nwrong:\n  first\n\n  second\n"), "wrong: first; second");
  EXPECT_EQ(printable("column 5: got the end\n  op(x\n      ^"), "column 5: got the end; op(x");
  EXPECT_EQ(printable("\xff \xc2\x9b \u2028"), "\\xff \\xc2\\x9b \\xe2\\x80\\xa8");
  EXPECT_EQ(printable("\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u0080"),
            "\\xd8\\x9c\\xe2\\x80\\x8e\\xe2\\x80\\x8f\\xe2\\x80\\xaa\\xe2\\x80\\xae\\xe2\\x81\\xa6"
            "\\xe2\\x81\\xa9"
            "\\xc2\\x80")
      << "marks of direction";
  EXPECT_EQ(printable("\u061b\u200d\u2010\u202f\u2065\u206a\u00a0\U0001f600"),
            "\u061b\u200d\u2010\u202f\u2065\u206a\u00a0\U0001f600")
      << "their neighbours stay";
  EXPECT_EQ(printable(std::string(3000, 'x')), std::string(2048, 'x') + " ... 952 bytes more");
  EXPECT_EQ(printable(printable("a\nb")), printable("a\nb"));
  EXPECT_EQ(printable_lines("a\n  b\nc\x1b\n", 100), "a\n  b\n  c\\x1b");
}

struct NoWhat : std::exception {
  const char* what() const noexcept override { return nullptr; }
};

TEST(Text, EveryExceptionHasAText) {
  EXPECT_EQ(exception_text(std::runtime_error("boom\nforged")), "boom; forged");
  EXPECT_EQ(exception_text(std::bad_alloc()), "out of memory");
  EXPECT_NE(exception_text(NoWhat()).find("without a message"), std::string::npos);
  EXPECT_NE(exception_text(std::runtime_error("")).find("without a message"), std::string::npos);
  EXPECT_EQ(exception_text(Error(Status(Code::kNoKernel, "none").note("a: denied"))),
            "no_kernel: none; a: denied");
  try {
    throw 1;
  } catch (...) {
    EXPECT_EQ(current_exception_text(), "an exception that is not a std::exception");
  }
}

TEST(Text, Quote) {
  EXPECT_EQ(quote("a b"), "\"a b\"");
  EXPECT_EQ(quote("\u202eab\u009b\xff"), R"("\xe2\x80\xaeab\xc2\x9b\xff")");
  EXPECT_EQ(quote("\"\\\n\t\r\x01"), R"("\"\\\n\t\r\x01")");
  size_t pos = 3;
  EXPECT_EQ(unquote("x =\"a\\x41\" y", pos), "aA");
  EXPECT_EQ(pos, 10u);
}

TEST(Text, UnquoteStopsWhereItIsWrong) {
  for (const auto& [text, where] : {std::pair{"\"abc", 4u},
                                    {"\"a\\q\"", 2u},
                                    {"\"a\\x4g\"", 2u},
                                    {"\"a\nb\"", 2u},
                                    {"abc", 0u}}) {
    size_t pos = 0;
    EXPECT_FALSE(unquote(text, pos)) << text;
    EXPECT_EQ(pos, where) << text;
  }
}

RC_GTEST_PROP(Text, QuoteRoundTrips, (const std::string& text)) {
  const std::string quoted = quote(text);
  size_t pos = 0;
  RC_ASSERT(unquote(quoted, pos) == text);
  RC_ASSERT(pos == quoted.size());
}

TEST(Text, Doubles) {
  EXPECT_EQ(format_double(1e-6), "1e-6");
  EXPECT_EQ(format_double(10000.0), "10000.0");
  EXPECT_EQ(format_double(1e20), "1e20");
  EXPECT_EQ(format_double(-0.0), "-0.0");
  EXPECT_EQ(format_double(0.1), "0.1");
  EXPECT_EQ(format_double(1.5e-300), "1.5e-300");
  EXPECT_EQ(format_double(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(format_double(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(format_double(std::nan("")), "nan");
}

RC_GTEST_PROP(Text, DoublesRoundTrip, (double value)) {
  const std::string text = format_double(value);
  double back = 0;
  std::from_chars(text.data(), text.data() + text.size(), back);
  RC_ASSERT(back == value);
}

TEST(Text, PlacesAndCarets) {
  EXPECT_EQ(place_of("abc", 1), "column 2");
  EXPECT_EQ(place_of("abc\ndef", 5), "line 2, column 2");
  EXPECT_EQ(caret_at("abc\ndef\nghi", 5), "  def\n   ^");
  EXPECT_EQ(caret_at("a\tb", 99), "  a b\n     ^");
}

TEST(Text, BareWords) {
  EXPECT_TRUE(is_bare_word("a-b.C_9"));
  EXPECT_FALSE(is_bare_word(""));
  EXPECT_FALSE(is_bare_word("a b"));
}

TEST(Text, Excerpt) {
  EXPECT_EQ(excerpt("a\n\x1b"), R"("a\n\x1b")");
  EXPECT_EQ(excerpt("\xc3\xa4\xff\xc3"), "\"\xc3\xa4\\xff\\xc3\"")
      << "what is not UTF-8 is escaped";
  EXPECT_EQ(excerpt("\xc2\x9b"), R"("\xc2\x9b")") << "a terminal would obey it";
  EXPECT_EQ(excerpt("abcdef", 3), "\"abc\"...");
  EXPECT_EQ(excerpt("ab\xc3\xa4", 3), "\"ab\"...") << "cut between characters";
  EXPECT_EQ(excerpt(""), "\"\"");
}

TEST(Text, TrimSplitAndCase) {
  EXPECT_EQ(trim(" \ta b\t "), "a b");
  EXPECT_EQ(trim("\t "), "");
  EXPECT_EQ(split(" a, ,b ", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
  EXPECT_EQ(lower("aB\xc4Z_9"), "ab\xc4z_9");
  EXPECT_EQ(upper("aB_z9"), "AB_Z9");
  EXPECT_TRUE(same_word("TrUe", "true"));
  EXPECT_FALSE(same_word("tru", "true"));
}

TEST(JsonString, PassesPlainTextAndUtf8) {
  EXPECT_EQ(json_string(""), "\"\"");
  EXPECT_EQ(json_string("vendor.acme"), "\"vendor.acme\"");
  EXPECT_EQ(json_string("größer → ∞ 😀"), "\"größer → ∞ 😀\"");
}

TEST(JsonString, EscapesWhatJsonCannotHold) {
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\t\x01\x1b"), R"("\u000a\u0009\u0001\u001b")");
  EXPECT_EQ(json_string("\x7f \xc2\x9b"), R"("\u007f \u009b")") << "a terminal would obey them";
  EXPECT_EQ(json_string(std::string_view("a\0b", 3)), R"("a\u0000b")");
}

TEST(JsonString, ReplacesBytesThatAreNotUtf8) {
  const char* const bad = "\\ufffd";
  const auto in = [&](const char* s) { return json_string(s); };
  EXPECT_EQ(in("\xff"), std::string("\"") + bad + "\"");
  EXPECT_EQ(in("a\x80z"), std::string("\"a") + bad + "z\"");
  // A sequence may be cut short at the end and in the middle.
  EXPECT_EQ(in("\xe2\x82"), std::string("\"") + bad + bad + "\"");
  EXPECT_EQ(in("\xe2\x82x"), std::string("\"") + bad + bad + "x\"");
  // These are overlong forms, surrogates, and a code beyond the last code point.
  EXPECT_EQ(in("\xc0\xaf"), std::string("\"") + bad + bad + "\"");
  EXPECT_EQ(in("\xe0\x80\xaf"), std::string("\"") + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xed\xa0\x80"), std::string("\"") + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xf4\x90\x80\x80"), std::string("\"") + bad + bad + bad + bad + "\"");
  EXPECT_EQ(in("\xf0\x80\x80\x80"), std::string("\"") + bad + bad + bad + bad + "\"");
}

// For any input, the output is one quoted string without raw control characters.
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
