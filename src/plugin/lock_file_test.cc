// SPDX-License-Identifier: Apache-2.0
#include "plugin/lock_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace yard::plugin {
namespace {

using ::testing::HasSubstr;

const std::string kOne(64, '1'), kTwo(64, 'a');

TEST(LockFile, RoundTrips) {
  LockFile file;
  file.add({"beta", "2.0", kTwo});
  file.add({"acme", "1.0", kOne});
  file.add({"acme", "1.1", kTwo});
  file.add({"acme", "1.0", kOne});
  EXPECT_EQ(file.entries().size(), 3u);
  const auto again = LockFile::parse(file.text(), "yard.lock").value();
  EXPECT_EQ(again.entries(), file.entries());
  EXPECT_EQ(again.text(), file.text());

  std::string folder = (std::filesystem::temp_directory_path() / "yard_lock_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/yard.lock";
  ASSERT_TRUE(file.write(path).ok());
  EXPECT_EQ(LockFile::read(path).value().entries(), file.entries());
  EXPECT_FALSE(file.write(folder + "/no/such/folder").ok());
  EXPECT_FALSE(LockFile::read(folder).ok());
  std::filesystem::remove_all(folder);
  EXPECT_EQ(LockFile::read(path).status().code(), Code::kNotFound);
}

TEST(LockFile, AllowsWhatItLists) {
  LockFile file;
  file.add({"acme", "1.0", kOne});
  file.add({"acme", "1.1", kTwo});
  EXPECT_FALSE(file.allows("acme", "1.0", kOne).refused());
  EXPECT_FALSE(file.allows("acme", "1.1", kTwo).refused());
  EXPECT_FALSE(file.allows("acme", "1.0").refused());
  EXPECT_EQ(file.allows("acme", "1.0", kTwo).reason, PluginReason::kDigestDiffers);
  EXPECT_EQ(file.allows("acme", "2.0", kOne).reason, PluginReason::kNotInLockFile);
  EXPECT_THAT(file.allows("acme", "2.0").detail, HasSubstr("1.0, 1.1"));
  EXPECT_EQ(file.allows("other", "1.0", kOne).reason, PluginReason::kNotInLockFile);
  EXPECT_TRUE(LockFile().allows("acme", "1.0").refused());
}

TEST(LockFile, ErrorsHaveTheLine) {
  const std::string good = "# comment\n\n  acme   1.0 sha256:" + kOne + "\n";
  EXPECT_EQ(LockFile::parse(good, "x").value().entries().size(), 1u);
  const std::vector<std::string> wrong = {
      "acme 1.0",
      "acme 1.0 md5:" + kOne,
      "acme 1.0 sha256:12",
      "acme 1.0 sha256:" + std::string(64, 'G'),
      "a/b 1.0 sha256:" + kOne,
      "acme 1.0 sha256:" + kOne + " more",
  };
  for (const std::string& bad : wrong) {
    const auto r = LockFile::parse(good + bad + "\n", "yard.lock");
    ASSERT_FALSE(r.ok()) << bad;
    EXPECT_THAT(std::string(r.status().message()), HasSubstr("yard.lock:4"));
  }
}

}  // namespace
}  // namespace yard::plugin
