// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace yard::base {
namespace {

using testing::HasSubstr;

TEST(Json, ReadsEveryKindOfValue) {
  const auto r = parse_json(R"( {"a": [1, -2.5e3, true, null], "b": {"c": "x"}} )");
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(to_json(*r), R"({"a": [1, -2.5e3, true, null], "b": {"c": "x"}})");
  EXPECT_EQ(json_whole_number(r->find("a")->items[0]), 1);
  EXPECT_EQ(json_whole_number(r->find("a")->items[1]), std::nullopt);
  EXPECT_EQ(json_switch(r->find("a")->items[2]), true);
  EXPECT_STREQ(json_kind(r->find("a")->items[3]), "null");
  EXPECT_EQ(*json_text(*r->find("b")->find("c")), "x");
}

TEST(Json, ReadsEscapes) {
  const auto r = parse_json(R"("\"\\\/\b\f\n\r\t\u0041\u00e4\u20ac\ud83d\ude00")");
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_EQ(r->text, "\"\\/\b\f\n\r\tA\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(Json, RefusesWhatYamlWouldAccept) {
  for (const char* text : {"",
                           "{a: 1}",
                           "{'a': 1}",
                           "[1,]",
                           "{\"a\": 1,}",
                           "# x",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "tru",
                           "NaN",
                           "\"a",
                           "\"\\x41\"",
                           "\"\\u12g4\"",
                           "\"\\ud83d\"",
                           "\"\\ude00\"",
                           "{\"a\": 1} 2",
                           "[1 2]",
                           "\"a\nb\"",
                           "\"\xff\"",
                           "{\"a\": 1, \"a\": 2}",
                           "{\"a\"}",
                           "{1: 2}",
                           "\"\\"})
    EXPECT_EQ(parse_json(text).status().code(), Code::kParse) << text;
  EXPECT_THAT(std::string(parse_json("[1,\n tru]").status().message()),
              HasSubstr("line 2, column 2: expected a value, got \"tru]\""));
}

TEST(Json, IsBounded) {
  EXPECT_FALSE(parse_json(std::string(100, '[')).ok());
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(deep).ok());
  EXPECT_FALSE(parse_json("[" + deep + "]").ok());
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(parse_json("[1, 2, 3]", {.nodes = 3}).ok());
  EXPECT_FALSE(parse_json("[1, 2, 3]", {.bytes = 8}).ok());
}

TEST(Json, ObjectsAreWrittenKeyByKey) {
  JsonObject o;
  o.add("text", "a\"b").add("yes", true).add("n", uint64_t{18446744073709551615u});
  o.add("x", 0.5).add("nan", std::numeric_limits<double>::quiet_NaN()).add_or_null("none", "");
  o.add_json("list", json_strings({"a", "\xff"}));
  const std::string text = std::move(o).text();
  EXPECT_EQ(text,
            R"({"text": "a\"b", "yes": true, "n": 18446744073709551615, "x": 0.5, "nan": null, )"
            R"("none": null, "list": ["a", "\ufffd"]})");
  EXPECT_TRUE(parse_json(text).ok());
  EXPECT_EQ(std::move(JsonObject()).text(), "{}");
}

}  // namespace
}  // namespace yard::base
