// SPDX-License-Identifier: Apache-2.0
// Plugins::replace() puts a new version in the place of a loaded one. Every call finds one of the
// two.
#include <gmock/gmock.h>
#include <unistd.h>
#include <yard/inspect.h>

#include <atomic>
#include <optional>
#include <thread>

#include "plugin_files.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

inline constexpr Op<void(Out, In)> answer_op{"answer"};

struct PluginReplace : ::testing::Test {
  Folder folder, state;
  // A separate state directory hides verification results of other tests.
  RuntimeSettings settings() const {
    RuntimeSettings s = alone();
    s.plugins.state_directory = state.path();
    return s;
  }
  size_t mapped() const {
    std::ifstream maps("/proc/self/maps");
    size_t n = 0;
    for (std::string line; std::getline(maps, line);)
      n += line.find(folder.path()) != line.npos && line.find("r-xp") != line.npos ? 1 : 0;
    return n;
  }
};

TEST_F(PluginReplace, AFileRenamedOverALoadedPluginWaitsForReplace) {
  Runtime runtime(settings());
  Plugins plugins = runtime.plugins();
  const std::string path = folder.put("answer");
  ASSERT_TRUE(plugins.load(path).ok());
  folder.put("answer_v2", "answer");
  for (const Status& s : {plugins.discover(), plugins.discover({path}), plugins.load(path),
                          plugins.load("answer"), plugins.discover({folder.path()})})
    EXPECT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kLoaded);
  EXPECT_EQ(info_of(runtime, "answer").version, "1.0");
  EXPECT_EQ(ask(runtime), 1);

  const auto old = plugins.replace("answer");
  ASSERT_TRUE(old.ok()) << old.status().to_string();
  EXPECT_EQ(ask(runtime), 2);
  ASSERT_TRUE(old->wait(std::chrono::seconds(60)).ok());
  EXPECT_EQ(mapped(), 1u);
  EXPECT_EQ(info_of(runtime, "answer").version, "2.0");
  EXPECT_EQ(info_of(runtime, "answer").detail, "");
  EXPECT_TRUE(plugins.discover().ok());
  EXPECT_TRUE(plugins.load(path).ok());
  EXPECT_EQ(plugins.list().size(), 1u);
}

TEST_F(PluginReplace, TheSameContentsAreNoOtherFile) {
  Runtime runtime(settings());
  const std::string path = folder.put("answer");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  folder.put("answer");  // another inode
  EXPECT_TRUE(runtime.plugins().load(path).ok());
  const auto none = runtime.plugins().replace("answer");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->done());
  EXPECT_EQ(ask(runtime), 1);
  fs::remove(path);
  EXPECT_TRUE(runtime.plugins().load("answer").ok()) << "it is loaded, and no other file is there";
  folder.put("answer_v2", "answer");
  EXPECT_TRUE(runtime.plugins().load("answer").ok()) << "replace() takes another file";
  EXPECT_EQ(ask(runtime), 1);
}

TEST_F(PluginReplace, NoCallIsWithoutThePluginWhileItIsReplaced) {
  Runtime runtime(settings());
  const std::string path = folder.put("answer");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls[3] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      int64_t out = 0, x = 0;
      const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
      const auto typed = answer_op.on(runtime);
      Policy policy;
      policy.prefer = Kind::kDefault;
      while (!stop.load(std::memory_order_relaxed)) {
        out = -1;
        Status s;
        if (t == 0) {
          s = typed(vo, vx);
        } else if (t == 1) {
          s = runtime.call("answer", {vo, vx});
        } else {
          const ScopedPolicy scope(policy);
          s = typed(vo, vx);
          if (s.ok()) s = runtime.resolve("answer(i64[1])@cpu").status();
        }
        ASSERT_TRUE(s.ok()) << s.to_string();
        ASSERT_TRUE(out == 1 || out == 2) << out;
        calls[out].fetch_add(1, std::memory_order_relaxed);
        std::this_thread::yield();
      }
    });
  const std::string versions[] = {read_file(built_plugin("answer")),
                                  read_file(built_plugin("answer_v2"))};
  for (int round = 1; round <= scaled(50); ++round) {
    folder.put_bytes(versions[round % 2], "answer.so");
    const auto old = runtime.plugins().replace("answer");
    ASSERT_TRUE(old.ok()) << old.status().to_string();
    ASSERT_EQ(ask(runtime), 1 + round % 2);
    if (round % 5 != 0) continue;
    ASSERT_TRUE(old->wait(std::chrono::seconds(60)).ok());
  }
  while (calls[1] == 0 || calls[2] == 0) {  // until each version has served some calls
    const int64_t now = ask(runtime);
    folder.put_bytes(versions[now % 2], "answer.so");
    ASSERT_TRUE(runtime.plugins().replace("answer").ok());
    std::this_thread::yield();
  }
  stop = true;
  for (auto& t : threads) t.join();
  Changes nothing;
  runtime.apply(std::move(nothing)).or_throw();
  EXPECT_EQ(mapped(), 1u);
}

TEST_F(PluginReplace, ARefusedVersionLeavesTheOldOneRunning) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  const struct {
    const char *plugin, *reason;
  } bad[] = {{"start_fails", "start_failed: no licence"},
             {"bad_schema", "bad_descriptor"},
             {"unlisted_op", "manifest_differs"},
             {"abi_too_new", "abi_too_new"},
             {"kernel_only", "its name is 'helper'; expected 'answer'"}};
  for (const auto& b : bad) {
    folder.put(b.plugin, "answer");
    const auto s = runtime.plugins().replace("answer");
    EXPECT_THAT(s.status().to_string(),
                AllOf(HasSubstr(b.reason), HasSubstr("plugin 'answer' 1.0 stays loaded")));
    EXPECT_EQ(ask(runtime), 1);
    EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kLoaded);
    EXPECT_EQ(info_of(runtime, "answer").version, "1.0");
    EXPECT_EQ(mapped(), 1u);
  }
  folder.put("answer_v2", "answer");
  EXPECT_TRUE(runtime.plugins().replace("answer").ok());
  EXPECT_EQ(ask(runtime), 2);
  EXPECT_EQ(runtime.plugins().replace("nobody").status().code(), Code::kNotFound);
  ASSERT_TRUE(runtime.plugins().unload("answer").ok());
  EXPECT_EQ(runtime.plugins().replace("answer").status().code(), Code::kNotFound);
}

TEST_F(PluginReplace, ALockFileMustListTheNewVersion) {
  const std::string path = folder.put("answer");
  Runtime runtime(settings());
  ASSERT_TRUE(write_plugin_lock(folder.file("yard.lock"), {runtime.plugins().inspect(path)}).ok());
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  folder.put("answer_v2", "answer");
  EXPECT_THAT(runtime.plugins().replace("answer").status().to_string(),
              HasSubstr("not_in_lock_file"));
  EXPECT_EQ(ask(runtime), 1);
  ASSERT_TRUE(write_plugin_lock(folder.file("yard.lock"), {runtime.plugins().inspect(path)}).ok());
  EXPECT_TRUE(runtime.plugins().replace("answer").ok());
  EXPECT_EQ(ask(runtime), 2);
}

TEST_F(PluginReplace, ByAFileAtAnotherPath) {
  Runtime runtime(settings());
  Folder elsewhere;
  const std::string first = folder.put("answer"), second = elsewhere.put("answer_v2");
  ASSERT_TRUE(runtime.plugins().load(first).ok());
  EXPECT_THAT(runtime.plugins().load(second).to_string(),
              AllOf(HasSubstr("duplicate_name"), HasSubstr("Plugins::replace()")));
  ASSERT_TRUE(runtime.plugins().replace("answer", second)->wait(std::chrono::seconds(60)).ok());
  EXPECT_EQ(ask(runtime), 2);
  EXPECT_EQ(mapped(), 0u);
  EXPECT_EQ(info_of(runtime, first).state, PluginState::kUnloaded);
  EXPECT_EQ(info_of(runtime, second).state, PluginState::kLoaded);
  EXPECT_TRUE(runtime.plugins().discover().ok());
  EXPECT_EQ(ask(runtime), 2);
  // The middle version is still in use, and does not prevent the next one.
  int64_t out = 0, x = 0;
  const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
  const auto frozen = freeze(answer_op.on(runtime), vo, vx);
  ASSERT_TRUE(runtime.plugins().replace("answer", first).ok());
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(info_of(runtime, second).state, PluginState::kUnloading);
  Folder third;
  ASSERT_TRUE(runtime.plugins().replace("answer", third.put("answer_v2")).ok());
  ASSERT_TRUE(runtime.plugins().replace("answer", first).ok());
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_FALSE(runtime.plugins().replace("answer", "relative.so").ok());
  EXPECT_FALSE(runtime.plugins().replace("answer", elsewhere.file("missing.so")).ok());
  EXPECT_EQ(ask(runtime), 1);
}

TEST_F(PluginReplace, KernelsOfOthersOnItsOpStay) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  ASSERT_TRUE(runtime.plugins().load(folder.put("kernel_only")).ok());
  EXPECT_EQ(ask(runtime), 3);
  folder.put("answer_v2", "answer");
  ASSERT_TRUE(runtime.plugins().replace("answer")->wait(std::chrono::seconds(60)).ok());
  EXPECT_EQ(ask(runtime), 3) << "the helper's kernel has the higher priority";
  EXPECT_EQ(runtime.list().find_op("answer")->kernels.size(), 2u);
  for (const char* without : {"answer_other_op", "answer_other_schema"}) {
    folder.put(without, "answer");
    EXPECT_THAT(runtime.plugins().replace("answer").status().to_string(),
                AllOf(HasSubstr("in the replacement"), HasSubstr("'default.helper'")));
    EXPECT_EQ(ask(runtime), 3);
  }
  ASSERT_TRUE(runtime.plugins().unload("helper").ok());
  EXPECT_EQ(ask(runtime), 2);
}

TEST_F(PluginReplace, AVersionThatDoesNotServeAnOpInUseIsRefused) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  EXPECT_EQ(ask(runtime), 1);
  const struct {
    const char *plugin, *why;
  } bad[] = {{"answer_other_op", "calls would fail: op 'answer' is missing"},
             {"answer_other_schema",
              "op 'answer' has the schema answer(out!: i64[n], x: i64[n], y: int = 1) instead of "
              "answer(out!: i64[n], x: i64[n])"}};
  for (const auto& b : bad) {
    folder.put(b.plugin, "answer");
    const auto s = runtime.plugins().replace("answer");
    EXPECT_EQ(s.status().code(), Code::kConflict);
    EXPECT_THAT(s.status().to_string(), AllOf(HasSubstr(b.why), HasSubstr("1.0 stays loaded")));
    EXPECT_EQ(ask(runtime), 1);
  }
  folder.put("answer_other_op", "answer");
  ASSERT_TRUE(runtime.plugins().replace("answer", {}, KeptOps::kNone).ok());
  EXPECT_EQ(ask(runtime, "other_answer"), 1);
  EXPECT_EQ(ask(runtime), -1) << "the new version has no such op";
}

TEST_F(PluginReplace, LiveControlPutsAnIncompatibleVersionOnlyWhereItIsAllowed) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  EXPECT_EQ(ask(runtime), 1);
  folder.put("answer_other_op", "answer");
  const auto replace = [](const std::string& more) {
    return InspectClient::connect(::getpid())
        .value()
        .request(R"({"v": 1, "command": "plugin.replace", "args": {"plugin": "answer")" + more +
                 "}}")
        .value();
  };
  EXPECT_THAT(replace(""), HasSubstr("op 'answer' is missing"));
  EXPECT_THAT(replace(R"(, "allow_incompatible": false)"), HasSubstr("op 'answer' is missing"));
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_THAT(replace(R"(, "allow_incompatible": true)"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(ask(runtime, "other_answer"), 1);
}

TEST_F(PluginReplace, AnOpThatNobodyHasCalledMayGo) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  folder.put("answer_other_op", "answer");
  EXPECT_THAT(runtime.plugins().replace("answer", {}, KeptOps::kAll).status().to_string(),
              HasSubstr("op 'answer' is missing"));
  ASSERT_TRUE(runtime.plugins().replace("answer").ok());
  EXPECT_EQ(ask(runtime, "other_answer"), 1);
}

TEST_F(PluginReplace, TheLastKernelOfAnOpInUseStays) {
  Runtime runtime(settings());
  ASSERT_TRUE(runtime.plugins().load(folder.put("op_only")).ok());
  ASSERT_TRUE(runtime.plugins().load(folder.put("kernel_only")).ok());
  EXPECT_EQ(ask(runtime), 3);
  folder.put("nothing_for_answer", "kernel_only");
  EXPECT_THAT(runtime.plugins().replace("helper").status().to_string(),
              HasSubstr("op 'answer' has no kernel left"));
  EXPECT_EQ(ask(runtime), 3);
}

TEST_F(PluginReplace, ItsFunctionsAreNeverMissing) {
  Runtime& runtime = Runtime::shared();
  const Function<int64_t(int64_t)> plugged{"active_group", "plugged"};
  const std::string path = folder.put("plugged");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  ASSERT_TRUE(runtime.functions().activate("plugged").ok());
  const auto ask = [&] { return plugged.call_or([] { return int64_t{-1}; }, 4); };
  std::atomic<bool> stop{false};
  std::thread caller([&] {
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t got = ask();
      ASSERT_TRUE(got == 41 || got == 42) << got;
    }
  });
  for (int round = 1; round <= 20; ++round) {
    folder.put(round % 2 == 0 ? "plugged" : "plugged_v2", "plugged");
    const auto old = runtime.plugins().replace("plugged");
    EXPECT_TRUE(old.ok()) << old.status().to_string();
    EXPECT_EQ(ask(), round % 2 == 0 ? 41 : 42);
  }
  stop = true;
  caller.join();
  ASSERT_TRUE(runtime.reset().ok());
  runtime.plugins().forget(path).ignore();
}

TEST_F(PluginReplace, AHandleKeepsTheOldVersionAndTheFileCanComeBack) {
  Runtime runtime(settings());
  const std::string path = folder.put("answer"), kept = folder.file("kept");
  ASSERT_TRUE(runtime.plugins().load(path).ok());
  int64_t out = 0, x = 0;
  const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
  std::optional frozen(freeze(answer_op.on(runtime), vo, vx).value());
  fs::create_hard_link(path, kept);
  folder.put("answer_v2", "answer");
  const auto old = runtime.plugins().replace("answer");
  ASSERT_TRUE(old.ok());
  EXPECT_FALSE(old->done());
  EXPECT_TRUE((*frozen)(vo, vx).ok());
  EXPECT_EQ(out, 1);
  EXPECT_EQ(ask(runtime), 2);
  // The library of this file is still open, so the plugin is not started again.
  fs::rename(kept, path);
  ASSERT_TRUE(runtime.plugins().replace("answer").ok());
  EXPECT_EQ(ask(runtime), 1);
  frozen.reset();
  EXPECT_TRUE(old->wait(std::chrono::seconds(60)).ok());
  EXPECT_EQ(ask(runtime), 1);
}

}  // namespace
}  // namespace yard::testing
