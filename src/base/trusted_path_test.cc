// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include <filesystem>

#include "base/testing_files.h"
#include "base/trusted_path.h"

namespace yard::base {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr uid_t kOther = 54321;

class Untrusted : public ::testing::Test {
 protected:
  std::string why(const std::string& path) const {
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(file) << path;
    return why_untrusted(path, file);
  }
  std::string add(const std::string& name, mode_t mode = 0644) const {
    write_in_place(folder_ / name, "x");
    ::chmod((folder_ / name).c_str(), mode);
    return folder_ / name;
  }
  std::string add_folder(const std::string& name, mode_t mode) const {
    fs::create_directory(folder_ / name);
    ::chmod((folder_ / name).c_str(), mode);
    return folder_ / name;
  }
  TempFolder folder_;
};

TEST_F(Untrusted, FilesOfThisUserAreFine) {
  EXPECT_EQ(why(add("a")), "");
  add_folder("sub", 0755);
  EXPECT_EQ(why(add("sub/a", 0600)), "");
  EXPECT_EQ(why((folder_ / "sub") + "//.././sub/a"), "");
}

TEST_F(Untrusted, AFileThatEverybodyCanWriteIsNot) {
  EXPECT_EQ(why(add("a", 0666)), "can be written by everybody");
}

TEST_F(Untrusted, AFileInADirectoryThatEverybodyCanWriteIsNot) {
  const std::string sub = add_folder("sub", 0777);
  EXPECT_EQ(why(add("sub/a")), "is reached through " + sub + ", which can be written by everybody");
  fs::create_directory(folder_ / "sub/deep");
  EXPECT_THAT(why(add("sub/deep/a")), HasSubstr(sub + ", which can be written by everybody"));
}

TEST_F(Untrusted, AStickyDirectoryProtectsEntriesOfThisUser) {
  add_folder("sub", 01777);
  EXPECT_EQ(why(add("sub/a")), "");
  EXPECT_EQ(why(add("sub/b", 0666)), "can be written by everybody");
}

TEST_F(Untrusted, LinksAreFollowedAndTheirDirectoriesChecked) {
  const std::string open = add_folder("open", 0777);
  add_folder("closed", 0755);
  const std::string real = add("closed/a");
  fs::create_symlink("closed", folder_ / "through");
  EXPECT_EQ(why(folder_ / "through/a"), "");
  fs::create_symlink(real, folder_ / "open/a");
  EXPECT_THAT(why(folder_ / "open/a"), HasSubstr(open + ", which can be written by everybody"));
  fs::create_symlink("../closed", folder_ / "open/way");
  EXPECT_THAT(why(folder_ / "open/way/a"), HasSubstr("which can be written by everybody"));
}

TEST_F(Untrusted, FilesAndLinksOfOtherUsersAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chown(add("a").c_str(), kOther, kOther), 0);
  EXPECT_EQ(why(folder_ / "a"), "can be written by its owner, user 54321");
  // In a sticky directory, another user may own a link to a file of ours.
  const std::string sticky = add_folder("sticky", 01777);
  fs::create_symlink(add("b"), folder_ / "sticky/b");
  EXPECT_EQ(why(folder_ / "sticky/b"), "");
  ASSERT_EQ(::lchown((folder_ / "sticky/b").c_str(), kOther, kOther), 0);
  EXPECT_THAT(why(folder_ / "sticky/b"), HasSubstr(sticky + ", which can be written by everybody"));
  // The owner of a sticky directory can replace its entries.
  ASSERT_EQ(::chown(sticky.c_str(), kOther, kOther), 0);
  EXPECT_THAT(why(add("sticky/c")), HasSubstr("its owner, user 54321"));
}

// The group bits of a file with an access control list are its mask, and do not say who can write.
TEST_F(Untrusted, WhatAGroupCanWriteAndHasAnAccessControlListIsNot) {
  const std::string sub = add_folder("sub", 0775), file = add("sub/a", 0664);
  if (::getegid() != 0) GTEST_SKIP() << "the group must be one that is trusted";
  EXPECT_EQ(why(file), "");
  // The list has version 2: owner rwx, user 54321 rwx, group r-x, mask rwx, others r-x.
  const uint32_t none = ~uint32_t{0};
  const struct {
    uint16_t tag, permissions;
    uint32_t id;
  } entries[] = {{1, 7, none}, {2, 7, kOther}, {4, 5, none}, {16, 7, none}, {32, 5, none}};
  std::string list("\2\0\0\0", 4);
  list.append(reinterpret_cast<const char*>(entries), sizeof entries);
  const auto set = [&](const std::string& path) {
    return ::setxattr(path.c_str(), "system.posix_acl_access", list.data(), list.size(), 0) == 0;
  };
  if (!set(file)) GTEST_SKIP() << "the file system has no access control lists";
  EXPECT_EQ(why(file), "can be written by others, by its access control list");
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);  // changes the mask
  EXPECT_EQ(why(file), "");
  ASSERT_TRUE(set(sub));
  EXPECT_EQ(why(file), "is reached through " + sub +
                           ", which can be written by others, by its access control list");
}

TEST_F(Untrusted, LinksOfProcAreFollowedExceptToTheFileItself) {
  const std::string open = add_folder("open", 0777), file = add("open/a");
  const std::string way = "/proc/self/root" + file;
  EXPECT_EQ(why(way), "is reached through " + open + ", which can be written by everybody");
  const File descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(descriptor.fd());
  EXPECT_EQ(why(by_descriptor), "");
  fs::remove(file);
  EXPECT_EQ(why(by_descriptor), "");
}

TEST_F(Untrusted, AMountedConfigMapIsFine) {
  swap_data(folder_, "..v1", "rules.yaml", "x");
  EXPECT_EQ(why(folder_ / "rules.yaml"), "");
}

// Kubernetes mounts ConfigMaps read-only, in directories with all rights.
TEST_F(Untrusted, WhatIsMountedReadOnlyIsFineWhateverItsRights) {
  constexpr int kCannot = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      _exit(kCannot);
    const std::string at = add_folder("mount", 0755);
    if (::mount("none", at.c_str(), "tmpfs", 0, "mode=0777") != 0) _exit(kCannot);
    add("mount/a", 0666);
    if (why(at + "/a").empty()) _exit(1);
    if (::mount("none", at.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) != 0) _exit(kCannot);
    const bool fine = why(at + "/a").empty();
    ::umount(at.c_str());
    _exit(fine ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannot) GTEST_SKIP() << "file systems cannot be mounted here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace yard::base
