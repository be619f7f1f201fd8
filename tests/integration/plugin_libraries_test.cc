// SPDX-License-Identifier: Apache-2.0
// Libraries that a plugin needs. A user who can write them, or the folders of its run path, can run
// code in the process.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;
using Reason = PluginReason;

class Libraries : public ::testing::TestWithParam<const char*> {
 protected:
  Libraries() : library_(put("libyard_helper", libraries_, "/usr/lib")) {
    path_ = put(std::string("needs_helper_") + GetParam(), folder_, libraries_.path());
  }
  // Copies the plugin with this directory as its run path. The path is padded with slashes, which
  // do not change it.
  static std::string put(const std::string& name, const Folder& to, std::string directory) {
    std::string bytes = read_file(built_plugin(name));
    const std::string old = "/" + std::string(150, 'x');
    const size_t at = bytes.find(old);
    EXPECT_NE(at, bytes.npos) << name;
    EXPECT_LE(directory.size(), old.size());
    directory.resize(old.size(), '/');
    bytes.replace(at, old.size(), directory);
    return to.put_bytes(bytes, name + ".so");
  }
  void expect_refused(Reason reason, const std::string& detail,
                      RuntimeSettings settings = alone()) {
    Runtime runtime(settings);
    EXPECT_FALSE(runtime.plugins().load(path_).ok());
    const PluginInfo info = info_of(runtime, path_);
    EXPECT_STREQ(to_string(info.reason), to_string(reason));
    EXPECT_THAT(info.detail, HasSubstr(detail));
    if (reason != Reason::kCannotOpen) {  // only the dynamic loader finds this error
      EXPECT_EQ(runtime.plugins().would_load(path_).reason, reason);
    }
    const std::string maps = read_file("/proc/self/maps");
    EXPECT_EQ(maps.find(libraries_.path()), maps.npos) << "it was opened";
  }
  void expect_loaded(RuntimeSettings settings = alone()) {
    Runtime runtime(settings);
    const Status s = runtime.plugins().load(path_);
    EXPECT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(ask(runtime, "helped"), 71);
    runtime.plugins().unload("needs_helper").value().wait().or_throw();
  }

  Folder folder_, libraries_;
  std::string library_, path_;
};

TEST_P(Libraries, AreCheckedAsPluginsAre) {
  expect_loaded();
  ASSERT_EQ(::chmod(library_.c_str(), 0666), 0);
  expect_refused(Reason::kWritableByOthers, "it can be written by everybody");
  ASSERT_EQ(::chmod(library_.c_str(), 0755), 0);
  // If others can write a directory of the run path, the plugin is refused, even if the library is
  // missing.
  ASSERT_EQ(::chmod(libraries_.path().c_str(), 0777), 0);
  expect_refused(Reason::kWritableByOthers, "it looks for libraries in " + libraries_.path());
  fs::remove(library_);
  expect_refused(Reason::kWritableByOthers, "it looks for libraries in " + libraries_.path());
  ASSERT_EQ(::chmod(libraries_.path().c_str(), 0700), 0);
  expect_refused(Reason::kCannotOpen, "libyard_helper.so");
}

TEST_P(Libraries, MustNotBeLookedForWhereOthersCanMakeThem) {
  ASSERT_EQ(::chmod(libraries_.path().c_str(), 01777), 0);
  path_ =
      put(std::string("needs_helper_") + GetParam(), folder_, libraries_.path() + "/missing/lib");
  expect_refused(Reason::kWritableByOthers, "directory " + libraries_.path());
  for (const char* relative : {"lib", "./lib", "$LIB/x", "/usr/lib::/usr", "/usr/lib:lib"}) {
    path_ = put(std::string("needs_helper_") + GetParam(), folder_, relative);
    expect_refused(Reason::kRelativePath, "expected an absolute path");
  }
  for (const char* origin : {"$ORIGIN/lib", "/usr/lib:${ORIGIN}"}) {
    path_ = put(std::string("needs_helper_") + GetParam(), folder_, origin);
    expect_refused(Reason::kRelativePath, "$ORIGIN is not its folder");
  }
}

TEST_P(Libraries, MustNotBeLookedForBehindALinkThatLeadsNowhere) {
  const std::string link = folder_.file("link");
  fs::create_symlink("/tmp/yard_no_such_directory", link);
  path_ = put(std::string("needs_helper_") + GetParam(), folder_, link);
  expect_refused(Reason::kNotFound, "it looks for libraries in " + link);
}

INSTANTIATE_TEST_SUITE_P(All, Libraries, ::testing::Values("enable", "disable"));

}  // namespace
}  // namespace yard::testing
