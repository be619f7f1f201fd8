// SPDX-License-Identifier: Apache-2.0
#include "plugin/admission.h"

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

using ::testing::HasSubstr;

const std::string kOne(64, '1'), kTwo(64, 'a');

TEST(LockFile, RoundTrips) {
  const LockLines lines{{"beta", "2.0", kTwo}, {"acme", "1.0", kOne}, {"acme", "1.1", kTwo}};
  const auto again = parse_lock_file(to_text(lines) + to_text(lines), "yard.lock").value();
  EXPECT_EQ(again, lines);
  EXPECT_EQ(to_text(again), to_text(lines));
}

TEST(LockFile, AllowsWhatItLists) {
  const LockFiles file{.present = true, .lines = {{"acme", "1.0", kOne}, {"acme", "1.1", kTwo}}};
  const auto allows = [&](const char* name, const char* version, const std::string& sha256 = "") {
    Manifest m;
    m.name = name, m.version = version;
    return file.allows(m, sha256);
  };
  EXPECT_FALSE(allows("acme", "1.0", kOne).refused());
  EXPECT_FALSE(allows("acme", "1.1", kTwo).refused());
  EXPECT_FALSE(allows("acme", "1.0").refused());
  EXPECT_EQ(allows("acme", "1.0", kTwo).reason, PluginReason::kDigestDiffers);
  EXPECT_EQ(allows("acme", "2.0", kOne).reason, PluginReason::kNotInLockFile);
  EXPECT_THAT(allows("acme", "2.0").detail, HasSubstr("1.0, 1.1"));
  EXPECT_EQ(allows("other", "1.0", kOne).reason, PluginReason::kNotInLockFile);
  EXPECT_TRUE(LockFiles{.present = true}.allows(Manifest()).refused());
  EXPECT_FALSE(LockFiles().allows(Manifest()).refused());
}

TEST(LockFile, ErrorsHaveTheLine) {
  const std::string good = "# comment\n\n  acme   1.0 sha256:" + kOne + "\n";
  EXPECT_EQ(parse_lock_file(good, "x").value().size(), 1u);
  const std::vector<std::string> wrong = {
      "acme 1.0",
      "acme 1.0 md5:" + kOne,
      "acme 1.0 sha256:12",
      "acme 1.0 sha256:" + std::string(64, 'G'),
      "a/b 1.0 sha256:" + kOne,
      "acme 1.0 sha256:" + kOne + " more",
  };
  for (const std::string& bad : wrong) {
    const auto r = parse_lock_file(good + bad + "\n", "yard.lock");
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_THAT(std::string(r.status().message()), HasSubstr("yard.lock:4"));
  }
}

}  // namespace
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string digest(int i) { return fmt::format("{:064x}", i); }

class ResultStoreTest : public ::testing::Test {
 protected:
  ResultStoreTest() {
    std::string name = (fs::temp_directory_path() / "yard_results_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~ResultStoreTest() override { fs::remove_all(folder_); }
  std::string content() const {
    std::ifstream in(results().path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t count() const {
    const std::string all = content();
    return static_cast<size_t>(std::count(all.begin(), all.end(), '\n')) - 1;  // but the comment
  }
  void put(const std::string& text) const {
    fs::create_directories(folder_ + "/state/yard");
    std::ofstream(results().path()) << text;
  }
  ResultStore results() const { return ResultStore(folder_ + "/state/yard"); }
  std::string why() const {
    std::string to;
    EXPECT_FALSE(results().find(digest(1), &to));
    return to;
  }
  std::string folder_;
};

TEST_F(ResultStoreTest, TheLastResultCounts) {
  const ResultStore r = results();
  EXPECT_FALSE(r.find(digest(1)));
  ASSERT_TRUE(r.save(digest(1), false).ok());
  EXPECT_EQ(r.find(digest(1)), false);
  EXPECT_FALSE(r.find(digest(2)));
  ASSERT_TRUE(r.save(digest(1), true).ok());
  EXPECT_EQ(r.find(digest(1)), true);
  EXPECT_EQ(count(), 1u);
}

TEST_F(ResultStoreTest, AnotherVersionOfTheLibraryFindsNothing) {
  put("verify 0.0.0 " + digest(1) + " passed\n");
  EXPECT_FALSE(results().find(digest(1)));
  put("verify " YARD_VERSION " " + digest(1) + " passed\n");
  EXPECT_TRUE(results().find(digest(1)));
}

TEST_F(ResultStoreTest, ItsSizeIsBounded) {
  std::string lines;
  for (int i = 500; i < 1500; ++i) lines += "verify " YARD_VERSION " " + digest(i) + " failed\n";
  put(lines);
  ASSERT_TRUE(results().save(digest(5000), false).ok());
  EXPECT_EQ(count(), ResultStore::kMost);
  EXPECT_FALSE(results().find(digest(500))) << "the oldest";
  EXPECT_TRUE(results().find(digest(501)));
  EXPECT_TRUE(results().find(digest(5000)));
}

TEST_F(ResultStoreTest, FilesThatOthersCanWriteAreNotTrusted) {
  ASSERT_TRUE(results().save(digest(1), true).ok());
  ASSERT_EQ(::chmod(results().path().c_str(), 0666), 0);
  EXPECT_THAT(why(), HasSubstr("can be written by everybody"));
  EXPECT_FALSE(results().save(digest(1), true).ok());
  ASSERT_EQ(::chmod(results().path().c_str(), 0600), 0);
  EXPECT_TRUE(results().find(digest(1)));
  ASSERT_EQ(::chmod((folder_ + "/state").c_str(), 0777), 0);
  EXPECT_THAT(why(), HasSubstr("can be written by everybody"));
}

TEST_F(ResultStoreTest, OtherKindsOfFilesAreNotTrusted) {
  fs::create_directories(folder_ + "/state/yard");
  EXPECT_THAT(why(), HasSubstr("No such file"));
  fs::create_directory(results().path());
  EXPECT_THAT(why(), HasSubstr("not a regular file"));
  fs::remove(results().path());
  std::ofstream(results().path()) << std::string(kLargestList + 1, 'x');
  EXPECT_THAT(why(), HasSubstr("too large"));
}

TEST_F(ResultStoreTest, WithoutADirectoryNothingIsStored) {
  const ResultStore nowhere{""};
  EXPECT_FALSE(nowhere.find(digest(1)));
  EXPECT_THAT(std::string(nowhere.save(digest(1), true).message()), HasSubstr("XDG_STATE_HOME"));
  EXPECT_FALSE(ResultStore("relative").save(digest(1), true).ok());
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_FALSE(ResultStore(folder_ + "/file/yard").save(digest(1), true).ok());
  EXPECT_THAT(std::string(results().save("abc", true).message()), HasSubstr("not a SHA-256"));
}

TEST_F(ResultStoreTest, TheDirectoryComesFromTheEnvironment) {
  const char* home = std::getenv("HOME");
  const std::string before = home != nullptr ? home : "";
  ::setenv("XDG_STATE_HOME", "/x/state", 1);
  EXPECT_EQ(ResultStore::default_folder(), "/x/state/yard");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  ::setenv("HOME", "/x", 1);
  EXPECT_EQ(ResultStore::default_folder(), "/x/.local/state/yard");
  ::unsetenv("XDG_STATE_HOME"), ::unsetenv("HOME");
  EXPECT_EQ(ResultStore::default_folder(), "");
  if (home != nullptr) ::setenv("HOME", before.c_str(), 1);
}

TEST_F(ResultStoreTest, ManyWritersLoseNothing) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      for (int i = 0; i < 3; ++i) results().save(digest(100 * t + i), true).or_throw();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(count(), 12u);
}

TEST_F(ResultStoreTest, InvalidLinesAreSkipped) {
  const std::string version = "verify " YARD_VERSION " ";
  for (const std::string& bad : std::vector<std::string>{
           "verify", version + "abc passed", version + digest(2) + " maybe", version + digest(2),
           version + digest(2) + " passed more", "watch " YARD_VERSION " " + digest(2) + " passed",
           std::string("\0\xff", 2)}) {
    put(bad + "\n" + version + digest(1) + " passed\n");
    EXPECT_EQ(results().find(digest(1)), true) << bad;
    EXPECT_FALSE(results().find(digest(2))) << bad;
  }
}

}  // namespace
}  // namespace yard::plugin
