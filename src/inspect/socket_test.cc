// SPDX-License-Identifier: Apache-2.0
#include "inspect/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing_files.h"

namespace yard::inspect {
namespace {

using testing::HasSubstr;

TEST(Place, ADirectoryIsMadeForItsUserOnly) {
  const base::TempFolder folder;
  const std::string path = folder / "yard";
  const mode_t before = ::umask(0);
  ASSERT_TRUE(make_directory(path).ok());
  ::umask(before);
  struct stat info;
  ASSERT_EQ(::lstat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  EXPECT_TRUE(make_directory(path).ok());  // is there
}

TEST(Place, WhatOthersCouldOpenIsRefused) {
  const base::TempFolder folder;
  const auto refused = [](const std::string& path) {
    return std::string(make_directory(path).message());
  };
  std::filesystem::create_directory(folder / "real");
  ::chmod((folder / "real").c_str(), 0700);
  std::filesystem::create_symlink(folder / "real", folder / "link");
  EXPECT_THAT(refused(folder / "link"), HasSubstr("got a symbolic link"));
  ::chmod((folder / "real").c_str(), 0750);
  EXPECT_THAT(refused(folder / "real"), HasSubstr("got mode 750"));
  ::chmod((folder / "real").c_str(), 0701);
  EXPECT_THAT(refused(folder / "real"), HasSubstr("got mode 701"));
  base::write_in_place(folder / "file", "");
  EXPECT_THAT(refused(folder / "file"), HasSubstr("got a file"));
  EXPECT_THAT(refused(folder / "missing/yard"), HasSubstr("cannot make directory"));
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a directory of another user";
  ASSERT_TRUE(make_directory(folder / "other").ok());
  ASSERT_EQ(::chown((folder / "other").c_str(), 65534, 65534), 0);
  EXPECT_THAT(refused(folder / "other"), HasSubstr("got one of user 65534"));
}

TEST(Place, NamesOfSocketsAreNumbers) {
  EXPECT_EQ(socket_path("/tmp/yard-0", 12), "/tmp/yard-0/12.sock");
  EXPECT_EQ(process_of("12.sock"), 12);
  for (const char* name :
       {"12", ".sock", "-1.sock", "0.sock", "1x.sock", "99999999999999999999.sock"})
    EXPECT_EQ(process_of(name), std::nullopt) << name;
}

}  // namespace
}  // namespace yard::inspect
