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
  static Found search(const std::vector<std::string>& places, bool allow_writable = false) {
    PluginSettings settings;
    settings.installed = false, settings.allow_writable = allow_writable;
    return find_plugins(places, {}, settings);
  }
  std::string root_;
};

TEST_F(Search, FoldersNameTheirLibrariesInOrder) {
  touch("b.so"), touch("a.so"), touch("notes.txt"), touch("c.so.1");
  const Found found = search({root_});
  EXPECT_THAT(found.files, ElementsAre(root_ + "/a.so", root_ + "/b.so"));
  EXPECT_THAT(found.folders, ElementsAre(root_));
  EXPECT_THAT(found.refused, IsEmpty());
}

TEST_F(Search, FilesKeepTheirOrder) {
  const std::string b = touch("b.so"), a = touch("a.bin");
  const Found found = search({b, a});
  EXPECT_THAT(found.files, ElementsAre(b, a));
  EXPECT_THAT(found.folders, ElementsAre(root_));
}

TEST_F(Search, UnusableEntriesAreRefusedWithAReason) {
  const Found found = search({"", "relative", root_ + "/nothing"});
  ASSERT_EQ(found.refused.size(), 3u);
  EXPECT_EQ(found.refused[0].refusal.reason, PluginReason::kRelativePath);
  EXPECT_EQ(found.refused[1].refusal.reason, PluginReason::kRelativePath);
  EXPECT_THAT(found.refused[1].refusal.detail, HasSubstr("relative"));
  EXPECT_EQ(found.refused[2].refusal.reason, PluginReason::kNotFound);
}

TEST_F(Search, ParentFoldersAreCheckedToo) {
  fs::create_directories(root_ + "/open/inner");
  fs::permissions(root_ + "/open", fs::perms::all);
  EXPECT_EQ(check_trusted(root_ + "/open/inner").reason, PluginReason::kWritableByOthers);
  // Nobody can rename files in a sticky folder, but everybody can put files into it.
  fs::permissions(root_ + "/open", fs::perms::all | fs::perms::sticky_bit);
  EXPECT_FALSE(check_trusted(root_ + "/open/inner").refused());
  EXPECT_TRUE(check_trusted(root_ + "/open").refused());
  EXPECT_EQ(search({root_ + "/open"}).refused.size(), 1u);
  EXPECT_THAT(search({root_ + "/open"}, true).refused, IsEmpty());
  // A link leads to the folder, which stays untrusted.
  fs::permissions(root_ + "/open", fs::perms::all);
  fs::create_symlink(root_ + "/open/inner", root_ + "/link");
  EXPECT_TRUE(check_trusted(root_ + "/link").refused());
}

// Whoever can write to the folder could make the link lead elsewhere.
TEST_F(Search, FoldersWithLinksOnTheWayAreChecked) {
  fs::create_directories(root_ + "/good/plugins");
  fs::create_directory(root_ + "/open");
  std::ofstream(root_ + "/good/plugins/a.so") << "x";
  fs::create_symlink("../good/plugins", root_ + "/open/link");
  fs::create_symlink(root_ + "/good/plugins/a.so", root_ + "/open/a.so");
  const std::string ways[] = {root_ + "/open/link", root_ + "/open/link/a.so",
                              root_ + "/open/a.so"};
  for (const std::string& way : ways) EXPECT_FALSE(check_trusted(way).refused());
  fs::permissions(root_ + "/open", fs::perms::all);
  for (const std::string& way : ways) {
    const Refusal r = check_trusted(way);
    EXPECT_EQ(r.reason, PluginReason::kWritableByOthers) << way;
    EXPECT_THAT(r.detail, HasSubstr(root_ + "/open, which can be written by everybody"));
  }
  // In a sticky directory others cannot replace links of this user.
  fs::permissions(root_ + "/open", fs::perms::all | fs::perms::sticky_bit);
  for (const std::string& way : ways) EXPECT_FALSE(check_trusted(way).refused());
  EXPECT_FALSE(check_trusted(root_ + "/good/../good/./plugins").refused());
}

TEST_F(Search, APluginIsInTheFolderThatItsPathLeadsTo) {
  fs::create_directory(root_ + "/good");
  touch("good/a.so");
  fs::create_symlink(root_ + "/good/a.so", root_ + "/link.so");
  EXPECT_EQ(open_plugin_file(root_ + "/link.so", {}, {}).folder, root_ + "/good");
  fs::permissions(root_ + "/good", fs::perms::all | fs::perms::sticky_bit);
  EXPECT_EQ(open_plugin_file(root_ + "/link.so", {}, {}).refusal.reason,
            PluginReason::kWritableByOthers);
  // A file that is named by its descriptor counts as being in that folder, too.
  const base::File file(::open((root_ + "/good/a.so").c_str(), O_RDONLY | O_CLOEXEC));
  const std::string way = "/proc/self/fd/" + std::to_string(file.fd());
  EXPECT_EQ(open_plugin_file(way, {}, {}).refusal.reason, PluginReason::kWritableByOthers);
  fs::permissions(root_ + "/good", fs::perms::owner_all);
  EXPECT_EQ(open_plugin_file(way, {}, {}).refusal.reason, PluginReason::kNotElf);
}

// The owner of a sticky folder can rename everything in it.
TEST_F(Search, StickyFoldersOfOthersDoNotCount) {
  fs::create_directories(root_ + "/open/inner");
  if (::chown((root_ + "/open").c_str(), 54321, 0) != 0) GTEST_SKIP() << "only root can";
  fs::permissions(root_ + "/open", fs::perms::owner_all | fs::perms::sticky_bit);
  EXPECT_THAT(check_trusted(root_ + "/open/inner").detail, HasSubstr("its owner, user 54321"));
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

// Other users may be in the group of the process.
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
