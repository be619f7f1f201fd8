// SPDX-License-Identifier: Apache-2.0
// The catalogue is one: the enum of plugin.h, the table and the page say the same.
#include "select/reasons.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace yard::select {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(YARD_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Reasons, TableHoldsEveryCodeInOrder) {
  ASSERT_EQ(reasons().size(), static_cast<size_t>(YARD_REASON_COUNT));
  std::set<std::string_view> names, meanings;
  for (size_t i = 0; i < reasons().size(); ++i) {
    const ReasonInfo& r = reasons()[i];
    EXPECT_EQ(r.code, static_cast<int32_t>(i));
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_TRUE(meanings.insert(r.meaning).second) << r.meaning;
    EXPECT_EQ(r.meaning.back(), '.') << r.name;
    EXPECT_EQ(reason_name(r.code), r.name);
    EXPECT_EQ(is_policy_reason(r.code), r.by_policy);
  }
}

TEST(Reasons, CodesBeyondTheTable) {
  EXPECT_EQ(reason_name(YARD_REASON_OWN), "own");
  EXPECT_EQ(reason_name(INT32_MAX), "own");
  for (int32_t code : {-1, INT32_MIN, static_cast<int32_t>(YARD_REASON_COUNT), YARD_REASON_OWN - 1}) {
    EXPECT_EQ(reason_name(code), "unknown") << code;
    EXPECT_FALSE(is_policy_reason(code));
  }
}

TEST(Reasons, NamesAreThoseOfTheEnum) {
  const std::string header = text_of("include/yard/plugin.h");
  const std::regex row(R"(YARD_REASON_([A-Z_]+) = (\d+),)");
  std::map<int, std::string> declared;
  for (std::sregex_iterator it(header.begin(), header.end(), row), end; it != end; ++it) {
    std::string name = (*it)[1];
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_TRUE(declared.emplace(std::stoi((*it)[2]), name).second) << name;
  }
  EXPECT_EQ(declared[YARD_REASON_OWN], "own");
  declared.erase(YARD_REASON_OWN);
  ASSERT_EQ(declared.size(), reasons().size());
  for (const ReasonInfo& r : reasons()) EXPECT_EQ(declared[r.code], r.name);
}

TEST(Reasons, ThePageListsEachOnceWithItsMeaning) {
  const std::string page = text_of("docs/reference/reasons.md");
  const std::regex row(R"(\n\| (\d+) \| `([a-z_]+)` \| ([^|]+) \| ([^|]+) \|(?=\n))");
  std::map<int, std::string> listed;
  size_t rows = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it, ++rows) {
    const int code = std::stoi((*it)[1]);
    EXPECT_TRUE(listed.emplace(code, (*it)[2]).second) << "twice: " << code;
    ASSERT_LT(static_cast<size_t>(code), reasons().size());
    EXPECT_EQ((*it)[3].str(), reasons()[static_cast<size_t>(code)].meaning);
    EXPECT_GT((*it)[4].length(), 5) << code;
  }
  EXPECT_EQ(rows, reasons().size());
  for (const ReasonInfo& r : reasons()) EXPECT_EQ(listed[r.code], r.name);
}

}  // namespace
}  // namespace yard::select
