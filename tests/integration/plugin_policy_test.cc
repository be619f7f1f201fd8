// SPDX-License-Identifier: Apache-2.0
// Tests which plugins are found and may be loaded, as lock files and the environment say.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;
using Reason = PluginReason;

std::string line(const PluginInfo& p, const std::string& version = {}) {
  return p.name + " " + (version.empty() ? p.version : version) + " sha256:" + p.sha256 + "\n";
}

class Locked : public ::testing::Test {
 protected:
  Locked() : path_(folder_.put("answer")) {
    info_ = Runtime(alone()).plugins().inspect(path_);
    folder_.put("old_layout");
  }
  void lock(const std::string& text) { folder_.put_bytes(text, "yard.lock"); }
  Folder folder_;
  std::string path_;
  PluginInfo info_;
};

TEST_F(Locked, OnlyWhatIsListedLoads) {
  lock("# ours\n" + line(info_));
  Runtime runtime(alone({folder_.path()}));
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(info_of(runtime, "old_layout").reason, Reason::kNotInLockFile);
  EXPECT_EQ(ask(runtime, "old"), -1);
}

TEST_F(Locked, LinksDoNotLeadAroundALock) {
  Folder elsewhere;
  const std::string soft = elsewhere.file("soft.so"), hard = elsewhere.file("hard.so");
  fs::create_symlink(path_, soft);
  fs::create_hard_link(path_, hard);
  PluginInfo other = info_;
  other.sha256 = std::string(64, '0');
  lock(line(other));
  {
    Runtime runtime(alone());
    EXPECT_EQ(runtime.plugins().would_load(soft).reason, Reason::kDigestDiffers);
    EXPECT_FALSE(runtime.plugins().load(soft).ok());
    EXPECT_EQ(info_of(runtime, soft).reason, Reason::kDigestDiffers);
  }
  Runtime runtime(alone({elsewhere.path(), folder_.path()}));
  EXPECT_FALSE(runtime.plugins().load(hard).ok());
  for (const PluginInfo& p : runtime.plugins().list())
    EXPECT_NE(p.state, PluginState::kLoaded) << p.path;
  EXPECT_EQ(ask(runtime), -1);
  lock(line(info_));
  EXPECT_TRUE(runtime.plugins().load(hard).ok());
}

TEST_F(Locked, ALockFileBehindALinkThatOthersCanChangeIsRefused) {
  Folder open, trusted;
  trusted.put_bytes(line(info_), "ours.lock");
  fs::create_symlink(trusted.file("ours.lock"), open.file("link"));
  fs::create_symlink(open.file("link"), folder_.file("yard.lock"));
  ASSERT_EQ(::chmod(open.path().c_str(), 0777), 0);
  {
    Runtime runtime(alone({folder_.path()}));
    EXPECT_FALSE(runtime.plugins().load("answer").ok());
    EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kBadLockFile);
    EXPECT_THAT(info_of(runtime, "answer").detail,
                HasSubstr(open.path() + ", which can be written by everybody"));
  }
  ASSERT_EQ(::chmod(open.path().c_str(), 0755), 0);
  Runtime runtime(alone({folder_.path()}));
  EXPECT_TRUE(runtime.plugins().load("answer").ok());
}

TEST_F(Locked, AnotherVersionOrDigestIsRefused) {
  lock(line(info_, "9.9"));
  Runtime runtime(alone({folder_.path()}));
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kNotInLockFile);
  EXPECT_THAT(info_of(runtime, "answer").detail, HasSubstr("9.9"));
  PluginInfo other = info_;
  other.sha256 = std::string(64, '0');
  lock(line(other));
  EXPECT_EQ(runtime.plugins().load("answer").code(), Code::kInvalidArgument);
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kDigestDiffers);
  lock(line(info_));
  EXPECT_TRUE(runtime.plugins().load("answer").ok());
}

TEST_F(Locked, AFileThatWasChangedIsRefused) {
  lock(line(info_));
  Runtime runtime(alone({folder_.path()}));
  // The copy has the same manifest but other code.
  std::string bytes = read_file(path_);
  bytes.back() = static_cast<char>(bytes.back() + 1);
  folder_.put_bytes(bytes, "answer.so");
  EXPECT_FALSE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kDigestDiffers);
}

TEST_F(Locked, AnUntrustedLockFileAdmitsNoPlugin) {
  lock("nonsense\n");
  Runtime runtime(alone({folder_.path()}));
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kBadLockFile);
  EXPECT_THAT(info_of(runtime, "answer").detail, HasSubstr("yard.lock:1"));
  lock(line(info_));
  ASSERT_EQ(::chmod(folder_.file("yard.lock").c_str(), 0666), 0);
  runtime.plugins().discover().ignore();
  EXPECT_EQ(info_of(runtime, "answer").reason, Reason::kBadLockFile);
  EXPECT_THAT(info_of(runtime, "answer").detail, HasSubstr("everybody"));
}

TEST_F(Locked, TheFileGivenInCodeIsTheOneThatCounts) {
  Folder elsewhere;
  elsewhere.put_bytes(line(info_), "ours.lock");
  lock("");  // an empty lock file allows no plugin
  RuntimeSettings settings = alone({folder_.path()});
  settings.plugins.lock_file = elsewhere.file("ours.lock");
  Runtime runtime(settings);
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(ask(runtime, "old"), -1);
  settings.plugins.lock_file = elsewhere.file("missing.lock");
  Runtime other(settings);
  EXPECT_EQ(info_of(other, "answer").reason, Reason::kBadLockFile);
}

TEST_F(Locked, APluginFromAnotherDirectoryMustBeListedToo) {
  lock(line(info_));
  Folder elsewhere;
  const std::string path = elsewhere.put("new_layout");
  Runtime runtime(alone({folder_.path()}));
  EXPECT_FALSE(runtime.plugins().load(path).ok());
  EXPECT_EQ(info_of(runtime, "new_layout").reason, Reason::kNotInLockFile);
}

class FromEnvironment : public ::testing::Test {
 protected:
  ~FromEnvironment() override { set(nullptr, nullptr); }
  static void set(const char* plugins, const char* path) {
    ::unsetenv("YARD_PLUGINS"), ::unsetenv("YARD_PLUGIN_PATH");
    if (plugins != nullptr) ::setenv("YARD_PLUGINS", plugins, 1);
    if (path != nullptr) ::setenv("YARD_PLUGIN_PATH", path, 1);
  }
  static RuntimeSettings settings() {
    RuntimeSettings s = alone();
    s.environment = true;
    return s;
  }
};

TEST_F(FromEnvironment, DirectoriesAndFilesAreSearched) {
  Folder one, two;
  one.put("answer"), two.put("old_layout");
  set(nullptr, (one.path() + ":" + two.path()).c_str());
  Runtime runtime(settings());
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(ask(runtime, "old"), 41);
  EXPECT_TRUE(runtime.problems().empty());
  set(one.file("answer.so").c_str(), nullptr);
  Runtime other(settings());
  EXPECT_EQ(other.plugins().list().size(), 1u);
}

TEST_F(FromEnvironment, NamesMeanFilesOfTheDirectories) {
  Folder one, two;
  one.put("answer"), two.put("answer_v2", "libsecond");
  set("second, nobody", (one.path() + ":" + two.path()).c_str());
  Runtime runtime(settings());
  EXPECT_EQ(ask(runtime), 2);  // a plugin that YARD_PLUGINS names comes before those of the path
  EXPECT_EQ(info_of(runtime, one.file("answer.so")).reason, Reason::kDuplicateName);
  EXPECT_EQ(info_of(runtime, "nobody").reason, Reason::kNotFound);
}

TEST_F(FromEnvironment, EmptyAndRelativeEntriesAreRefusedOneByOne) {
  Folder folder;
  folder.put("answer");
  set("./x.so", (":plugins:" + folder.path()).c_str());
  Runtime runtime(settings());
  EXPECT_EQ(info_of(runtime, "plugins").reason, Reason::kRelativePath);
  EXPECT_EQ(info_of(runtime, "./x.so").reason, Reason::kRelativePath);
  size_t refused = 0;
  for (const PluginInfo& p : runtime.plugins().list()) refused += p.reason == Reason::kRelativePath;
  EXPECT_EQ(refused, 3u);
  EXPECT_EQ(ask(runtime), 1);
}

TEST_F(FromEnvironment, IsReadAgainOnRequest) {
  Folder folder;
  folder.put("answer");
  Runtime runtime(settings());
  EXPECT_EQ(ask(runtime), -1);
  set(nullptr, folder.path().c_str());
  ASSERT_TRUE(runtime.rules().reload_environment().ok());
  EXPECT_EQ(ask(runtime), 1);
}

TEST_F(FromEnvironment, IsIgnoredWhereItIsNotRead) {
  Folder folder;
  folder.put("answer");
  set(nullptr, folder.path().c_str());
  Runtime runtime(alone());
  EXPECT_TRUE(runtime.plugins().list().empty());
}

}  // namespace
}  // namespace yard::testing
