// SPDX-License-Identifier: Apache-2.0
// Tests which texts match, which patterns are refused, and that no pattern is slow.
#include "policy/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace yard::policy {
namespace {

bool matches(std::string_view pattern, std::string_view text) {
  const auto r = Regex::compile(pattern);
  EXPECT_TRUE(r.ok()) << pattern << ": " << r.status().to_string();
  return r.ok() && r->matches(text);
}

TEST(Regex, TheWholeTextMustMatch) {
  struct Row {
    const char *pattern, *yes, *no;
  };
  const Row rows[] = {
      {"abc", "abc", "abcd"},
      {"a.c", "axc", "ac"},
      {"a*", "aaa", "aab"},
      {"a+", "a", ""},
      {"ab?c", "ac", "abbc"},
      {"a|b|cd", "cd", "c"},
      {"(ab|c)+", "abcab", "abca"},
      {"(?:x|y)z", "yz", "z"},
      {"[a-c]+", "abc", "abd"},
      {"[^a-c]", "d", "b"},
      {"[]x]", "]", "y"},
      {"[a-]", "-", "b"},
      {"\\d{2}", "42", "4"},
      {"a{2,}", "aaa", "a"},
      {"a{1,2}b", "aab", "aaab"},
      {"a{0}b", "b", "ab"},
      {"\\w+\\s\\w+", "two words", "two"},
      {"\\D\\S\\W", "xy-", "1y-"},
      {"[\\d_]+", "1_2", "1-2"},
      {"\\.\\*", ".*", "xx"},
      {"^abc$", "abc", "xabc"},
      {"cash\\$", "cash$", "cash"},
      {"", "", "x"},
      {"(a*)*", "aaaa", "b"},
      {"(a|)b", "b", "c"},
      {"tenant-(a|b)[0-9]*", "tenant-b12", "tenant-c"},
      {"((a?)?)?", "a", "aa"},
      {"(ab){2}", "abab", "ab"},
      {"ä+", "ä", "a"},
  };
  for (const Row& r : rows) {
    EXPECT_TRUE(matches(r.pattern, r.yes)) << r.pattern;
    EXPECT_FALSE(matches(r.pattern, r.no)) << r.pattern;
  }
}

TEST(Regex, WhatIsWrongIsSaidWithItsPlace) {
  const std::pair<const char*, const char*> rows[] = {
      {"(a", "')' is missing at character 3"},
      {"a)", "no '(' before this ')' at character 2"},
      {"[a", "']' is missing at character 3"},
      {"*a", "nothing to repeat at character 1"},
      {"a**", "a repetition of a repetition at character 3"},
      {"a{2", "'}' is missing at character 4"},
      {"a{x}", "a number is missing at character 3"},
      {"a{3,2}", "a repetition from more to less at character 6"},
      {"a{101}", "a repetition of more than 100 times at character 6"},
      {"\\", "a '\\' at the end at character 2"},
      {"\\q", "an unknown escape at character 2"},
      {"a^b", "'^' and '$' stand only at the ends at character 2"},
      {"(?=a)", "only (?: may follow '(' at character 2"},
      {"[z-a]", "a range from more to less at character 3"},
      {"[ä]", "only ASCII in a class at character 2"},
  };
  for (const auto& [pattern, message] : rows) {
    const auto r = Regex::compile(pattern);
    ASSERT_FALSE(r.ok()) << pattern;
    EXPECT_EQ(r.status().message(), message) << pattern;
  }
  EXPECT_THAT(std::string(Regex::compile(std::string(300, 'a')).status().message()),
              ::testing::HasSubstr("300 bytes; expected at most 256"));
  EXPECT_THAT(std::string(Regex::compile("((a{100}){100}){100}").status().message()),
              ::testing::HasSubstr("the pattern is too large"));
  std::string nested = "a";
  for (int i = 0; i < 60; ++i) nested = "(" + nested + ")?";
  EXPECT_FALSE(Regex::compile(nested).ok());
}

// Backtracking engines take very long for such patterns. Here only the text's length counts.
TEST(Regex, NoPatternIsSlow) {
  std::string text(2000, 'a');
  text += 'b';
  for (const char* pattern : {"(a+)+", "(a|a)*", "(a*)*c", "(a|aa)+", "(.*)*x"})
    EXPECT_FALSE(matches(pattern, text)) << pattern;
  std::string nested = "a";
  for (int i = 0; i < 40; ++i) nested = "(" + nested + ")?";
  EXPECT_TRUE(matches(nested, "a"));
}

}  // namespace
}  // namespace yard::policy
