// SPDX-License-Identifier: Apache-2.0
#include "plugin/results.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/version.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace yard::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Of = Results::Of;

std::string digest(int i) { return fmt::format("{:064x}", i); }

class Remembered : public ::testing::Test {
 protected:
  Remembered() {
    std::string name = (fs::temp_directory_path() / "yard_results_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Remembered() override { fs::remove_all(folder_); }
  std::string content() const {
    std::ifstream in(results().path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Results results() const { return Results(folder_ + "/state/yard"); }
  std::string why() const {
    std::string to;
    EXPECT_FALSE(results().find(Of::kProbe, digest(1), &to));
    return to;
  }
  std::string folder_;
};

TEST_F(Remembered, WhatWasSaidLastCounts) {
  const Results r = results();
  EXPECT_FALSE(r.find(Of::kProbe, digest(1)));
  ASSERT_TRUE(r.remember(Of::kProbe, digest(1), {false, "died of \"SIGSEGV\"\nin its query"}).ok());
  ASSERT_TRUE(r.remember(Of::kVerify, digest(1), {true, ""}).ok());
  EXPECT_EQ(r.find(Of::kProbe, digest(1)), (Verdict{false, "died of \"SIGSEGV\"\nin its query"}));
  EXPECT_EQ(r.find(Of::kVerify, digest(1)), (Verdict{true, ""}));
  EXPECT_FALSE(r.find(Of::kProbe, digest(2)));
  ASSERT_TRUE(r.remember(Of::kProbe, digest(1), {true, ""}).ok());
  EXPECT_EQ(r.find(Of::kProbe, digest(1)), (Verdict{true, ""}));
  EXPECT_EQ(Results::parse(content()).size(), 2u);
}

TEST_F(Remembered, AnotherVersionOfTheLibraryFindsNothing) {
  fs::create_directories(folder_ + "/state/yard");
  std::ofstream(results().path()) << "probe 0.0.0 " << digest(1) << " passed\n";
  EXPECT_FALSE(results().find(Of::kProbe, digest(1)));
  std::ofstream(results().path()) << "probe " YARD_VERSION " " << digest(1) << " passed\n";
  EXPECT_TRUE(results().find(Of::kProbe, digest(1)));
}

TEST_F(Remembered, ItDoesNotGrowForever) {
  std::vector<Results::Entry> entries;
  for (int i = 0; i < 1500; ++i)
    entries.push_back({Of::kProbe, YARD_VERSION, digest(i), {false, std::string(400, '\x01')}});
  fs::create_directories(folder_ + "/state/yard");
  entries.erase(entries.begin(), entries.end() - Results::kMost);
  std::ofstream(results().path()) << Results::text(entries);
  ASSERT_TRUE(results().remember(Of::kProbe, digest(5000), {false, std::string(9999, 'x')}).ok());
  EXPECT_EQ(Results::parse(content()).size(), Results::kMost);
  EXPECT_FALSE(results().find(Of::kProbe, digest(500))) << "the oldest";
  EXPECT_TRUE(results().find(Of::kProbe, digest(501)));
  EXPECT_EQ(results().find(Of::kProbe, digest(5000))->detail.size(), Results::kLongestDetail);
}

TEST_F(Remembered, WhatOthersCanWriteIsNotBelieved) {
  ASSERT_TRUE(results().remember(Of::kProbe, digest(1), {true, ""}).ok());
  ASSERT_EQ(::chmod(results().path().c_str(), 0666), 0);
  EXPECT_THAT(why(), HasSubstr("can be written by everybody"));
  EXPECT_FALSE(results().remember(Of::kProbe, digest(1), {true, ""}).ok());
  ASSERT_EQ(::chmod(results().path().c_str(), 0600), 0);
  EXPECT_TRUE(results().find(Of::kProbe, digest(1)));
  ASSERT_EQ(::chmod((folder_ + "/state").c_str(), 0777), 0);
  EXPECT_THAT(why(), HasSubstr("can be written by everybody"));
}

TEST_F(Remembered, WhatIsNoSuchFileIsNotBelieved) {
  fs::create_directories(folder_ + "/state/yard");
  EXPECT_THAT(why(), HasSubstr("No such file"));
  fs::create_directory(results().path());
  EXPECT_THAT(why(), HasSubstr("not a regular file"));
  fs::remove(results().path());
  std::ofstream(results().path()) << std::string(Results::kLargest + 1, 'x');
  EXPECT_THAT(why(), HasSubstr("too large"));
}

TEST_F(Remembered, WithoutAPlaceNothingIsRemembered) {
  const Results nowhere{""};
  EXPECT_FALSE(nowhere.find(Of::kProbe, digest(1)));
  EXPECT_THAT(std::string(nowhere.remember(Of::kProbe, digest(1), {true, ""}).message()),
              HasSubstr("XDG_STATE_HOME"));
  EXPECT_FALSE(Results("relative").remember(Of::kProbe, digest(1), {true, ""}).ok());
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FALSE(Results(folder_ + "/file/yard").remember(Of::kProbe, digest(1), {true, ""}).ok());
  EXPECT_THAT(std::string(results().remember(Of::kProbe, "abc", {true, ""}).message()),
              HasSubstr("no SHA-256"));
}

TEST_F(Remembered, ThePlaceComesFromTheEnvironment) {
  const char* home = std::getenv("HOME");
  const std::string before = home != nullptr ? home : "";
  ::setenv("XDG_STATE_HOME", "/x/state", 1);
  EXPECT_EQ(Results::default_directory(), "/x/state/yard");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  ::setenv("HOME", "/x", 1);
  EXPECT_EQ(Results::default_directory(), "/x/.local/state/yard");
  ::unsetenv("XDG_STATE_HOME"), ::unsetenv("HOME");
  EXPECT_EQ(Results::default_directory(), "");
  if (home != nullptr) ::setenv("HOME", before.c_str(), 1);
}

TEST_F(Remembered, ManyWritersLoseNothing) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      for (int i = 0; i < 3; ++i)
        results().remember(Of::kProbe, digest(100 * t + i), {true, ""}).or_throw();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(Results::parse(content()).size(), 12u);
}

TEST(Results, LinesThatCannotBeReadAreSkipped) {
  const std::string good = "probe 1.0 " + digest(1) + " passed\n";
  for (const std::string& bad : std::vector<std::string>{
           "probe", "probe 1.0 abc passed", "probe 1.0 " + digest(2) + " maybe",
           "probe 1.0 " + digest(2) + " failed", "probe 1.0 " + digest(2) + " failed \"x",
           "probe 1.0 " + digest(2) + " passed more", "watch 1.0 " + digest(2) + " passed",
           "probe 1/0 " + digest(2) + " passed", std::string("\0\xff", 2)})
    EXPECT_EQ(Results::parse(bad + "\n" + good).size(), 1u) << bad;
}

RC_GTEST_PROP(ResultsProperty, WhatIsWrittenReadsBack, (const std::string& detail, bool verify)) {
  const std::vector<Results::Entry> entries = {
      {verify ? Of::kVerify : Of::kProbe, "1.2.3", digest(7), {false, detail}}};
  RC_ASSERT(Results::parse(Results::text(entries)) == entries);
}

}  // namespace
}  // namespace yard::plugin
