// SPDX-License-Identifier: Apache-2.0
// Checks that the enum of plugin.h, the table of reasons and the page agree.
#include "select/reasons.h"

#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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
    EXPECT_TRUE(names.insert(r.name).second) << r.name;
    EXPECT_TRUE(meanings.insert(r.meaning).second) << r.meaning;
    EXPECT_EQ(r.meaning.back(), '.') << r.name;
    EXPECT_EQ(reason_name(static_cast<int32_t>(i)), r.name);
  }
}

TEST(Reasons, CodesBeyondTheTable) {
  EXPECT_EQ(reason_name(YARD_REASON_OWN), "own");
  EXPECT_EQ(reason_name(INT32_MAX), "own");
  for (int32_t code : {-1, INT32_MIN, static_cast<int32_t>(YARD_REASON_COUNT), YARD_REASON_OWN - 1})
    EXPECT_EQ(reason_name(code), "unknown") << code;
}

// Splits a line at separators and trims blanks.
std::vector<std::string> cells(const std::string& line, char separator) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, separator);) {
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    out.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
  }
  return out;
}

TEST(Reasons, NamesAreThoseOfTheEnum) {
  const std::string header = text_of("include/yard/plugin.h");
  const std::regex enumerator("YARD_REASON_([A-Z_]+) = ([0-9]+)");
  std::map<int, std::string> declared;
  for (std::sregex_iterator i(header.begin(), header.end(), enumerator), end; i != end; ++i) {
    std::string name = (*i)[1];
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_TRUE(declared.emplace(std::stoi((*i)[2]), name).second) << name;
  }
  EXPECT_EQ(declared[YARD_REASON_OWN], "own");
  declared.erase(YARD_REASON_OWN);
  ASSERT_EQ(declared.size(), reasons().size());
  for (size_t i = 0; i < reasons().size(); ++i)
    EXPECT_EQ(declared[static_cast<int32_t>(i)], reasons()[i].name);
}

TEST(Reasons, ThePageListsEachOnceWithItsMeaning) {
  std::istringstream page(text_of("docs/reference/reasons.md"));
  std::map<int, std::string> listed;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ") || std::isdigit(static_cast<unsigned char>(line[2])) == 0) continue;
    const auto row = cells(line, '|');  // "", code, name, meaning, what to do
    ASSERT_EQ(row.size(), 5u) << line;
    const int code = std::stoi(row[1]);
    EXPECT_TRUE(listed.emplace(code, row[2]).second) << "twice: " << line;
    ASSERT_LT(static_cast<size_t>(code), reasons().size()) << line;
    EXPECT_EQ(row[3], reasons()[static_cast<size_t>(code)].meaning);
    EXPECT_GT(row[4].size(), 5u) << line;
  }
  ASSERT_EQ(listed.size(), reasons().size());
  for (size_t i = 0; i < reasons().size(); ++i)
    EXPECT_EQ(listed[static_cast<int32_t>(i)], "`" + std::string(reasons()[i].name) + "`");
}

}  // namespace
}  // namespace yard::select
