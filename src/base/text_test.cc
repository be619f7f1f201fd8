// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <charconv>
#include <cmath>
#include <limits>

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

TEST(Text, Quote) {
  EXPECT_EQ(quote("a b"), "\"a b\"");
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

}  // namespace
}  // namespace yard::base
