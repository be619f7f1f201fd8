// SPDX-License-Identifier: Apache-2.0
// The index is one: the enum of plugins.h, the table and the page say the same.
#include "plugin/refusal.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace yard::plugin {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(YARD_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "kOtherSanitizer" of "other_sanitizer".
std::string enumerator(const char* name) {
  std::string to = "k";
  for (bool large = true; *name != '\0'; ++name) {
    if (*name == '_')
      large = true;
    else
      to += large ? static_cast<char>(std::toupper(static_cast<unsigned char>(*name))) : *name,
          large = false;
  }
  return to;
}

TEST(PluginReasons, TheTableHoldsEveryEnumeratorInOrder) {
  const std::string header = text_of("include/yard/plugins.h");
  size_t at = header.find("enum class PluginReason {");
  ASSERT_NE(at, header.npos);
  const size_t end = header.find('}', at);
  std::set<std::string> meanings;
  for (size_t i = 0; i < reasons().size(); ++i) {
    const ReasonInfo& r = reasons()[i];
    EXPECT_EQ(static_cast<size_t>(r.reason), i);
    EXPECT_STREQ(to_string(r.reason), r.name);
    EXPECT_TRUE(meanings.insert(r.meaning).second) << r.name;
    EXPECT_EQ(std::string(r.meaning).back(), '.') << r.name;
    at = header.find("  " + enumerator(r.name), at);
    ASSERT_LT(at, end) << r.name;
  }
  size_t count = 0;
  for (size_t k = header.find("enum class PluginReason {"); (k = header.find("\n  k", k)) < end;
       ++k)
    ++count;
  EXPECT_EQ(count, reasons().size());
  EXPECT_STREQ(to_string(static_cast<PluginReason>(4711)), "unknown");
}

TEST(PluginReasons, ThePageListsEachOnceWithItsMeaning) {
  std::istringstream page(text_of("docs/reference/plugin_reasons.md"));
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `")) rows.push_back(line);
  ASSERT_EQ(rows.size(), reasons().size() - 1);  // all but none
  for (size_t i = 1; i < reasons().size(); ++i) {
    const ReasonInfo& r = reasons()[i];
    const std::string begin = "| `" + std::string(r.name) + "` | " + r.meaning + " | ";
    EXPECT_EQ(rows[i - 1].substr(0, begin.size()), begin);
    EXPECT_GT(rows[i - 1].size(), begin.size() + 8) << "what to do: " << r.name;
  }
}

TEST(PluginReasons, AStatusNamesPathReasonAndDetail) {
  const Status s = to_status("/a.so", {PluginReason::kDuplicateName, "twice"});
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_EQ(s.message(), "plugin /a.so is refused: duplicate_name: twice");
}

}  // namespace
}  // namespace yard::plugin
