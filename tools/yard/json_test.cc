// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <gtest/gtest.h>

#include <ctime>

namespace yard::tool {
namespace {

TEST(ParseJson, ReadsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-7", "18446744073709551615", "1.5e3", R"("a\u00e9\n")", "[]", "{}",
        R"({"b": [1, {"a": null}, "x"], "a": {"c": {}}, "d": [[], [[]]]})"}) {
    const Json read = parse_json(text);
    EXPECT_EQ(read, Json::parse(text)) << text;
    EXPECT_EQ(read.dump(), Json::parse(text).dump()) << text;
  }
  for (const char* text : {"", "[", "{\"a\": }", "[1] 2", "nul", "\"\xff\""})
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
}

TEST(ParseJson, LeavesOutWhatIsTooDeep) {
  const size_t levels = 1'000'000;
  const Json read = parse_json(R"({"deep": )" + std::string(levels, '[') +
                               std::string(levels, ']') + R"(, "after": 1})");
  EXPECT_EQ(count_at(read, "after"), 1u);
  EXPECT_LT(read.dump().size(), 200u);
}

// Each of these texts would take ten seconds or more in quadratic time.
TEST(ParseJson, SomeMegabytesTakeLinearTime) {
  std::string objects = "[", keys = "{";
  for (int i = 0; i < 100'000; ++i) {
    objects += R"({"a": {}},)";
    keys += "\"" + std::to_string(i) + "\": {},";
  }
  const std::clock_t start = std::clock();
  EXPECT_EQ(parse_json(objects + "0]").size(), 100'001u);
  EXPECT_EQ(parse_json(keys + "\"\": 0}").size(), 100'001u);
  EXPECT_LT(std::clock() - start, 5 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace yard::tool
