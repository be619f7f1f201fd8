// SPDX-License-Identifier: Apache-2.0
// Tests the life of a plugin: it is found, opened on demand, unloaded, replaced and loaded again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <yard/abi.h>

#include <thread>

#include "dispatch/core.h"
#include "plugin/loader.h"
#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Counts the files of a folder that this process has mapped as code.
size_t mapped(const Folder& folder) {
  std::ifstream maps("/proc/self/maps");
  size_t n = 0;
  for (std::string line; std::getline(maps, line);)
    n += line.find(folder.path()) != line.npos && line.find("r-xp") != line.npos ? 1 : 0;
  return n;
}

TEST(Plugins, AreFoundWithoutBeingOpened) {
  Folder folder;
  folder.put("answer"), folder.put("old_layout");
  Runtime runtime(alone({folder.path()}));
  const auto all = runtime.plugins().list();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "answer");
  EXPECT_EQ(all[0].version, "1.0");
  EXPECT_EQ(all[0].path, folder.file("answer.so"));
  EXPECT_THAT(all[0].ops, ElementsAre("answer"));
  EXPECT_THAT(all[0].devices, ElementsAre("cpu"));
  EXPECT_EQ(all[0].state, PluginState::kFound);
  EXPECT_EQ(all[1].name, "old_layout");
  EXPECT_EQ(mapped(folder), 0u);
}

TEST(Plugins, AreOpenedByTheFirstCallOfTheirOpAndNoOther) {
  Folder folder;
  folder.put("answer"), folder.put("old_layout");
  Runtime runtime(alone({folder.path()}));
  float x[4] = {1, 2, 3, 4}, w[4] = {1, 1, 1, 1}, out[4];
  const TensorView vx(x, DType::f32, {1, 4}), vw(w, DType::f32, {4}), vo(out, DType::f32, {1, 4});
  ASSERT_TRUE(runtime.call("rms_norm", {vo, vx, vw}).ok());
  EXPECT_EQ(mapped(folder), 0u);
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(mapped(folder), 1u);
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kLoaded);
  EXPECT_EQ(info_of(runtime, "answer").sha256.size(), 64u);
  EXPECT_EQ(info_of(runtime, "old_layout").state, PluginState::kFound);
}

TEST(Plugins, EveryUseOfAnOpOpensItsPlugins) {
  Folder folder;
  folder.put("answer");
  int64_t out = 0, x = 0;
  const TensorView view(&out, DType::i64, {1}), other(&x, DType::i64, {1});
  {
    Runtime runtime(alone({folder.path()}));
    EXPECT_TRUE(runtime.resolve("answer(i64[1])@cpu").ok());
  }
  {
    Runtime runtime(alone({folder.path()}));
    EXPECT_TRUE(runtime.explain("answer", {view, other}).ok());
  }
  {
    Runtime runtime(alone({folder.path()}));
    EXPECT_TRUE(runtime.parse("answer(i64[1])").ok());
  }
  {
    Runtime runtime(alone({folder.path()}));
    Status why;
    EXPECT_NE(runtime.core().sites.attach("answer", dispatch::kPackedLetters, &why), nullptr)
        << why.to_string();
  }
}

TEST(Plugins, AKnownOpGetsTheKernelsOfAPluginAtItsFirstCall) {
  Folder first, second;
  first.put("answer");
  second.put("kernel_only");
  Runtime runtime(alone({first.path(), second.path()}));
  ASSERT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(info_of(runtime, "helper").state, PluginState::kFound);
  EXPECT_EQ(ask(runtime), 3);  // the helper's kernel has the higher priority
}

TEST(Plugins, AnOpInUseGetsThemWhenTheyAreFound) {
  Folder first, second;
  first.put("answer");
  second.put("kernel_only");
  Runtime runtime(alone({first.path()}));
  EXPECT_EQ(ask(runtime), 1);
  ASSERT_TRUE(runtime.plugins().discover({second.path()}).ok());
  EXPECT_EQ(ask(runtime), 3);
}

TEST(Plugins, KernelsForAnOpOfAnotherPluginLoadThatPlugin) {
  Folder folder;
  folder.put("kernel_only", "a_helper"), folder.put("answer", "b_answer");
  Runtime runtime(alone({folder.path()}));
  const Status s = runtime.plugins().load("helper");
  ASSERT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kLoaded);
  EXPECT_EQ(ask(runtime), 3);
}

// Otherwise a plugin could define what is right for the kernels of another plugin.
TEST(Plugins, TheReferenceOfAnOpBelongsToThePluginThatDefinesIt) {
  Folder folder;
  folder.put("answer"), folder.put("reference_only");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);  // loads both plugins
  const PluginInfo oracle = info_of(runtime, "oracle");
  EXPECT_EQ(oracle.state, PluginState::kRefused);
  EXPECT_EQ(oracle.reason, PluginReason::kConflict);
  EXPECT_THAT(oracle.detail, HasSubstr("kernel 'default.oracle' of plugin 'oracle' has kind "
                                       "reference, and op 'answer' is defined by plugin 'answer'"));
  Policy careful;
  careful.reference_only = true;
  ASSERT_TRUE(runtime.set_policy(careful).ok());
  EXPECT_EQ(ask(runtime), -1);  // the op has no reference kernel
}

TEST(Plugins, AreOpenedForTheGroupsTheyServe) {
  Folder folder;
  folder.put("of_a_group");
  Runtime runtime(alone({folder.path()}));
  plugin::Loader& loader = runtime.plugins().loader();
  ASSERT_TRUE(loader.need(registry::PluginOffer::kGroup, "nobody's"));
  EXPECT_EQ(info_of(runtime, "of_a_group").state, PluginState::kFound);
  ASSERT_TRUE(loader.need(registry::PluginOffer::kGroup, "kda"));
  EXPECT_EQ(info_of(runtime, "of_a_group").state, PluginState::kLoaded);
}

TEST(Plugins, LoadingTwiceIsAccepted) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime runtime(alone());
  EXPECT_TRUE(runtime.plugins().load(path).ok());
  EXPECT_TRUE(runtime.plugins().load(path).ok());
  EXPECT_TRUE(runtime.plugins().load("answer").ok());
  fs::create_symlink(path, folder.file("link.so"));
  EXPECT_TRUE(runtime.plugins().load(folder.file("link.so")).ok());
  EXPECT_EQ(runtime.plugins().list().size(), 1u);
  EXPECT_EQ(runtime.list().find_op("answer")->kernels.size(), 1u);
}

TEST(Plugins, UnloadRemovesTheCodeAndTheNewFileRuns) {
  Folder folder;
  folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  const Ticket ticket = runtime.plugins().unload("answer").value();
  ASSERT_TRUE(ticket.wait(std::chrono::seconds(10)).ok());
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kUnloaded);
  EXPECT_EQ(mapped(folder), 0u);
  Status why;
  EXPECT_EQ(ask(runtime, "answer", &why), -1);  // it was unloaded on purpose
  EXPECT_EQ(why.code(), Code::kUnknownOp);
  folder.put("answer_v2", "answer");
  ASSERT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime), 2);
  EXPECT_EQ(info_of(runtime, "answer").version, "2.0");
  EXPECT_EQ(mapped(folder), 1u);
}

TEST(Plugins, StartAndStopComeInPairsAndOnce) {
  Folder folder;
  folder.put("answer");
  const std::string diary = folder.file("diary");
  ::setenv("PLUGIN_DIARY", diary.c_str(), 1);
  {
    Runtime runtime(alone({folder.path()}));
    ask(runtime), ask(runtime);
    runtime.plugins().unload("answer").value().wait().or_throw();
    runtime.plugins().load("answer").or_throw();
  }
  ::unsetenv("PLUGIN_DIARY");
  EXPECT_EQ(read_file(diary),
            "start answer 1.0\nstop answer 1.0\nstart answer 1.0\nstop answer 1.0\n");
}

TEST(Plugins, AKernelInUseIsKeptAndLoadingAgainSharesTheLibrary) {
  Folder folder;
  folder.put("answer");
  ::setenv("PLUGIN_DIARY", folder.file("diary").c_str(), 1);
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  // A call in flight or a frozen handle would hold a snapshot as well.
  auto held = runtime.core().snapshot();
  const Ticket first = runtime.plugins().unload("answer").value();
  EXPECT_FALSE(first.done());
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kUnloading);
  EXPECT_EQ(runtime.plugins().forget("answer").code(), Code::kConflict);
  ASSERT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime), 1);
  held.reset();
  EXPECT_TRUE(first.wait(std::chrono::seconds(10)).ok());
  EXPECT_EQ(ask(runtime), 1);
  runtime.plugins().unload("answer").value().wait().or_throw();
  ::unsetenv("PLUGIN_DIARY");
  EXPECT_EQ(read_file(folder.file("diary")), "start answer 1.0\nstop answer 1.0\n");
}

TEST(Plugins, CannotBeUnloadedWhileOthersDependOnThem) {
  Folder folder;
  folder.put("answer"), folder.put("kernel_only");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 3);
  const auto refused = runtime.plugins().unload("answer");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kConflict);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("default.helper"));
  EXPECT_EQ(ask(runtime), 3);
  EXPECT_TRUE(runtime.plugins().unload("helper").ok());
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_TRUE(runtime.plugins().unload("answer").ok());
}

TEST(Plugins, ThatCannotBeClosedArePinnedWithTheCause) {
  Folder folder;
  folder.put("pinned_thread");
#if defined(__GNUC__) && !defined(__clang__)
  folder.put("pinned_unique");
#endif
  Runtime runtime(alone({folder.path()}));
#if defined(__GNUC__) && !defined(__clang__)
  EXPECT_EQ(ask(runtime, "unique"), 51);
  runtime.plugins().unload("unique").value().wait().or_throw();
  EXPECT_EQ(info_of(runtime, "unique").state, PluginState::kPinned);
  EXPECT_THAT(info_of(runtime, "unique").detail, HasSubstr("-fno-gnu-unique"));
  ASSERT_TRUE(runtime.plugins().load("unique").ok());
  EXPECT_EQ(ask(runtime, "unique"), 51);
#endif
  std::thread([&] {
    EXPECT_EQ(ask(runtime, "lasting"), 51);
    runtime.plugins().unload("lasting").value().wait().or_throw();
    EXPECT_EQ(info_of(runtime, "lasting").state, PluginState::kPinned);
    // If libstdc++ is linked into the plugin, its symbols also pin the library and are named first.
    EXPECT_THAT(info_of(runtime, "lasting").detail,
                AnyOf(HasSubstr("thread_local"), HasSubstr("_ZNSs4nposE")));
  }).join();
}

// Closes descriptors of a file without telling the library, as closefrom() does.
void close_descriptors_of(const std::string& path) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone) == path)
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int fd : found) ::close(fd);
}

// The next file gets the number of the closed descriptor, and the dynamic loader could take it for
// the pinned library.
TEST(Plugins, APinnedLibraryIsNotTakenForTheNextFileWithItsDescriptor) {
  Folder first, second;
  const std::string pinned = first.put("pinned_thread"), next = second.put("pinned_thread_v2");
  Runtime runtime(alone({first.path()}));
  std::thread([&] {
    EXPECT_EQ(ask(runtime, "lasting"), 51);
    runtime.plugins().unload("lasting").value().wait().or_throw();
    EXPECT_EQ(info_of(runtime, pinned).state, PluginState::kPinned);
    close_descriptors_of(pinned);
    const Status s = runtime.plugins().load(next);
    EXPECT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(ask(runtime, "lasting"), 52);
  }).join();
}

// The number of the plugin's descriptor may now belong to another file, which must stay open.
TEST(Plugins, UnloadingDoesNotCloseADescriptorThatGotAnotherFile) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  close_descriptors_of(path);
  std::vector<int> others;
  for (int i = 0; i < 64; ++i) others.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  runtime.plugins().unload("answer").value().wait().or_throw();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kUnloaded);
  for (const int fd : others) EXPECT_EQ(::close(fd), 0) << fd;
  ASSERT_TRUE(runtime.plugins().load("answer").ok());
  EXPECT_EQ(ask(runtime), 1);
}

// Work on a device may outlast the call that started it.
TEST(Plugins, AreQuiescedBeforeTheyAreClosed) {
  Folder folder;
  folder.put("quiet");
  folder.put("restless");
  const std::string diary = folder.file("diary");
  ::setenv("PLUGIN_DIARY", diary.c_str(), 1);
  Runtime runtime(alone({folder.path()}));
  for (const char* name : {"quiet", "restless"}) {
    EXPECT_EQ(ask(runtime, name), 1);
    runtime.plugins().unload(name).value().wait().or_throw();
  }
  ::unsetenv("PLUGIN_DIARY");
  EXPECT_EQ(info_of(runtime, "quiet").state, PluginState::kUnloaded);
  EXPECT_EQ(info_of(runtime, "restless").state, PluginState::kPinned);
  EXPECT_THAT(info_of(runtime, "restless").detail,
              HasSubstr("backend 'restless' cannot be quiesced: it returned"));
  EXPECT_EQ(read_file(diary),
            "start quiet 1.0\nquiesce quiet 1.0\nstop quiet 1.0\n"
            "start restless 1.0\nquiesce restless 1.0\n");
}

TEST(Plugins, OfTwoRuntimesAreIndependent) {
  Folder folder;
  folder.put("answer");
  Runtime one(alone({folder.path()}));
  {
    Runtime two(alone({folder.path()}));
    EXPECT_EQ(ask(one), 1);
    EXPECT_EQ(ask(two), 1);
    one.plugins().unload("answer").value().wait().or_throw();
    EXPECT_EQ(info_of(one, "answer").state, PluginState::kUnloaded);
    EXPECT_EQ(ask(two), 1);
  }
  EXPECT_EQ(mapped(folder), 0u);
}

TEST(Plugins, AfterAResetTheyAreFoundAgain) {
  Folder folder;
  folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  ASSERT_TRUE(runtime.reset().ok());
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kFound);
  EXPECT_EQ(ask(runtime), 1);
}

TEST(Plugins, CanBeForgottenAndFoundAgain) {
  Folder folder;
  folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  ASSERT_TRUE(runtime.plugins().forget("answer").ok());
  EXPECT_THAT(runtime.plugins().list(), IsEmpty());
  EXPECT_EQ(ask(runtime), -1);
  ASSERT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(runtime.plugins().forget("nobody").code(), Code::kNotFound);
  EXPECT_THAT(std::string(runtime.plugins().load("anser").message()),
              HasSubstr("did you mean 'answer'"));
}

TEST(Plugins, LoadFromAnyThreadOnceEach) {
  Folder folder;
  folder.put("answer");
  const std::string diary = folder.file("diary");
  ::setenv("PLUGIN_DIARY", diary.c_str(), 1);
  {
    Runtime runtime(alone({folder.path()}));
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        if (i % 2 == 0)
          EXPECT_TRUE(runtime.plugins().load("answer").ok());
        else
          EXPECT_EQ(ask(runtime), 1);
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(read_file(diary), "start answer 1.0\n");
  }
  ::unsetenv("PLUGIN_DIARY");
}

#if !defined(YARD_UNDER_TSAN)
TEST(Plugins, StayLoadedInAForkedChildWhichCanLoadMore) {
  Folder folder;
  folder.put("answer"), folder.put("old_layout");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = ask(runtime) == 1 && ask(runtime, "old") == 41 &&
                      runtime.plugins().unload("old_layout").ok();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

TEST(Plugins, OfOlderAndNewerLayoutsWork) {
  Folder folder;
  folder.put("old_layout"), folder.put("new_layout");
  Runtime runtime(alone({folder.path()}));
  Status why;
  EXPECT_EQ(ask(runtime, "old", &why), 41) << why.to_string();
  EXPECT_EQ(ask(runtime, "new", &why), 43) << why.to_string();
}

}  // namespace
}  // namespace yard::testing
