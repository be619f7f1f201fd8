// SPDX-License-Identifier: Apache-2.0
#include "inspect/socket.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
  EXPECT_TRUE(make_directory(path).ok());  // exists already
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

TEST(Place, AFolderOfAnotherUserDoesNotTurnLiveControlOff) {
  const base::TempFolder folder;
  const Roots roots{folder / "run", folder / "tmp"};
  std::filesystem::create_directory(roots.temporary);
  const std::string usual = fmt::format("{}/yard-{}", roots.temporary, ::geteuid());
  std::string why_not;
  EXPECT_EQ(own_directory(why_not, roots).value(), usual);
  EXPECT_EQ(why_not, "");
  // The mode makes the folder as unusable as one of another user, which only root can make.
  ::chmod(usual.c_str(), 0777);
  const std::string made = own_directory(why_not, roots).value();
  EXPECT_THAT(made, testing::StartsWith(usual + "-"));
  EXPECT_THAT(why_not, HasSubstr("got mode 777"));
  EXPECT_TRUE(make_directory(made).ok());
  EXPECT_EQ(own_directory(why_not, roots).value(), made) << "the next process uses it, too";
  EXPECT_THAT(directories(::geteuid(), roots), testing::ElementsAre(usual, made));
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(made.c_str(), 65534, 65534), 0);
  EXPECT_THAT(directories(::geteuid(), roots), testing::ElementsAre(usual));
  EXPECT_NE(own_directory(why_not, roots).value(), made);
}

TEST(Place, SocketsOfProcessesThatAreGoneAreRemoved) {
  const base::TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const base::File socket = make_socket();
    ::_exit(bind_to(socket, socket_path(folder / "", ::getpid())));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const base::File own = make_socket();  // its process runs, but does not listen yet
  ASSERT_EQ(bind_to(own, socket_path(folder / "", ::getpid())), 0);
  base::write_in_place(folder / "notes", "");
  ASSERT_TRUE(std::filesystem::exists(socket_path(folder / "", child)));
  remove_stale(folder / "");
  EXPECT_FALSE(std::filesystem::exists(socket_path(folder / "", child)));
  EXPECT_TRUE(std::filesystem::exists(socket_path(folder / "", ::getpid())));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes"));
}

}  // namespace
}  // namespace yard::inspect
