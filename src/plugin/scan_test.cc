// SPDX-License-Identifier: Apache-2.0
#include "plugin/scan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/trusted_path.h"

namespace yard::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Search : public ::testing::Test {
 protected:
  Search() {
    std::string path = (fs::temp_directory_path() / "yard_search_XXXXXX").string();
    root_ = ::mkdtemp(path.data());
  }
  ~Search() override { fs::remove_all(root_); }
  std::string touch(const std::string& name) {
    std::ofstream(root_ + "/" + name) << name;
    return root_ + "/" + name;
  }
  std::string root_;
  TrustedFolders directories_{false};
};

TEST_F(Search, TrustedFoldersNameTheirLibrariesInOrder) {
  touch("b.so"), touch("a.so"), touch("notes.txt"), touch("c.so.1");
  const Found found = search({root_}, directories_);
  EXPECT_THAT(found.files, ElementsAre(root_ + "/a.so", root_ + "/b.so"));
  EXPECT_THAT(found.folders, ElementsAre(root_));
  EXPECT_THAT(found.refused, IsEmpty());
}

TEST_F(Search, FilesKeepTheirOrder) {
  const std::string b = touch("b.so"), a = touch("a.bin");
  const Found found = search({b, a}, directories_);
  EXPECT_THAT(found.files, ElementsAre(b, a));
  EXPECT_THAT(found.folders, ElementsAre(root_));
}

TEST_F(Search, UnusableEntriesAreRefusedWithAReason) {
  const Found found = search({"", "relative", root_ + "/nothing"}, directories_);
  ASSERT_EQ(found.refused.size(), 3u);
  EXPECT_EQ(found.refused[0].refusal.reason, PluginReason::kRelativePath);
  EXPECT_EQ(found.refused[1].refusal.reason, PluginReason::kRelativePath);
  EXPECT_THAT(found.refused[1].refusal.detail, HasSubstr("relative"));
  EXPECT_EQ(found.refused[2].refusal.reason, PluginReason::kNotFound);
}

TEST_F(Search, ParentTrustedFoldersAreCheckedToo) {
  fs::create_directories(root_ + "/open/inner");
  fs::permissions(root_ + "/open", fs::perms::all);
  EXPECT_EQ(directories_.check(root_ + "/open/inner").reason, PluginReason::kWritableByOthers);
  // Nobody can rename in a sticky one, but anybody can put files into it.
  fs::permissions(root_ + "/open", fs::perms::all | fs::perms::sticky_bit);
  EXPECT_FALSE(TrustedFolders(false).check(root_ + "/open/inner").refused());
  EXPECT_TRUE(TrustedFolders(false).check(root_ + "/open").refused());
  EXPECT_FALSE(TrustedFolders(true).check(root_ + "/open").refused());
  // Through a link it is still the same place.
  fs::permissions(root_ + "/open", fs::perms::all);
  fs::create_symlink(root_ + "/open/inner", root_ + "/link");
  EXPECT_TRUE(TrustedFolders(false).check(root_ + "/link").refused());
}

// A writer of the directory could make the link lead elsewhere.
TEST_F(Search, TrustedFoldersWithLinksOnTheWayAreChecked) {
  fs::create_directories(root_ + "/good/plugins");
  fs::create_directory(root_ + "/open");
  std::ofstream(root_ + "/good/plugins/a.so") << "x";
  fs::create_symlink("../good/plugins", root_ + "/open/link");
  fs::create_symlink(root_ + "/good/plugins/a.so", root_ + "/open/a.so");
  const std::string ways[] = {root_ + "/open/link/a.so", root_ + "/open/a.so"};
  for (const std::string& way : ways) {
    std::string real;
    EXPECT_FALSE(TrustedFolders(false).check_file(way, &real).refused());
    EXPECT_EQ(real, root_ + "/good/plugins");
  }
  for (const auto mode : {fs::perms::all, fs::perms::all | fs::perms::sticky_bit}) {
    fs::permissions(root_ + "/open", mode);
    for (const std::string& way : ways) {
      const Refusal r = TrustedFolders(false).check_file(way);
      EXPECT_EQ(r.reason, PluginReason::kWritableByOthers) << way;
      EXPECT_THAT(r.detail, HasSubstr("directory " + root_ + "/open can be written by everybody"));
    }
    EXPECT_TRUE(TrustedFolders(false).check(root_ + "/open/link").refused());
    EXPECT_FALSE(TrustedFolders(true).check_file(ways[0]).refused());
  }
  EXPECT_FALSE(TrustedFolders(false).check(root_ + "/good/../good/./plugins").refused());
}

// By its descriptor a file is where its name is, as long as it has one.
TEST_F(Search, FilesByDescriptorAreInTheDirectoryOfTheirName) {
  const base::File file(::open(touch("a.so").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string way = "/proc/self/fd/" + std::to_string(file.fd());
  const std::string descriptors = "/proc/" + std::to_string(::getpid()) + "/fd";
  std::string real;
  EXPECT_FALSE(TrustedFolders(false).check_file(way, &real).refused());
  EXPECT_EQ(real, root_);
  fs::permissions(root_, fs::perms::all);
  EXPECT_EQ(TrustedFolders(false).check_file(way).reason, PluginReason::kWritableByOthers);
  fs::remove(root_ + "/a.so");
  EXPECT_FALSE(TrustedFolders(false).check_file(way, &real).refused());
  EXPECT_EQ(real, descriptors);
  touch("a.so (deleted)");  // the name that the link then has
  EXPECT_FALSE(TrustedFolders(false).check_file(way, &real).refused());
  EXPECT_EQ(real, descriptors);
}

// In a sticky directory its owner can rename everything.
TEST_F(Search, StickyTrustedFoldersOfOthersDoNotCount) {
  fs::create_directories(root_ + "/open/inner");
  if (::chown((root_ + "/open").c_str(), 54321, 0) != 0) GTEST_SKIP() << "only root can";
  fs::permissions(root_ + "/open", fs::perms::owner_all | fs::perms::sticky_bit);
  EXPECT_THAT(TrustedFolders(false).check(root_ + "/open/inner").detail,
              HasSubstr("its owner, user 54321"));
}

TEST(WhoElseCanWrite, IsAnyUserButRootAndOurs) {
  struct stat info {};
  info.st_uid = ::geteuid(), info.st_gid = ::getegid(), info.st_mode = 0755;
  EXPECT_EQ(base::who_else_can_write(info, ""), "");
  info.st_gid = 0, info.st_mode = 0775;
  EXPECT_EQ(base::who_else_can_write(info, ""), "");
  info.st_gid = ::getegid() + 1;
  EXPECT_THAT(base::who_else_can_write(info, ""), HasSubstr("group"));
  info.st_mode = 0757;
  EXPECT_EQ(base::who_else_can_write(info, ""), "everybody");
  info.st_uid = ::geteuid() + 1, info.st_mode = 0700;
  EXPECT_THAT(base::who_else_can_write(info, ""), HasSubstr("owner"));
  info.st_uid = 0;
  EXPECT_EQ(base::who_else_can_write(info, ""), "");
}

// That the process is in a group does not mean that nobody else is.
TEST(WhoElseCanWrite, IncludesTheGroupOfTheProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be in any group";
  constexpr gid_t kGroup = 54321;
  const gid_t before = ::getegid();
  ASSERT_EQ(::setegid(kGroup), 0);
  struct stat info {};
  info.st_uid = ::geteuid(), info.st_gid = kGroup, info.st_mode = 0775;
  const std::string who = base::who_else_can_write(info, "");
  ASSERT_EQ(::setegid(before), 0);
  EXPECT_EQ(who, "group 54321");
}

TEST(Privileged, IsFalseInATest) { EXPECT_FALSE(privileged()); }

}  // namespace
}  // namespace yard::plugin
