// SPDX-License-Identifier: Apache-2.0
// Defects of op plugins in other systems, each with a test that it does not exist here.
#include <gmock/gmock.h>

#include <thread>

#include "installation.h"
#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

TEST(PeersPlugin, VersionFieldIsNeverChecked) {
  Folder folder;
  Runtime runtime(alone());
  EXPECT_THAT(runtime.plugins().load(folder.put("abi_too_new")).to_string(),
              HasSubstr("abi_too_new"));
  EXPECT_THAT(runtime.plugins().load(folder.put("query_descriptor_abi")).to_string(),
              HasSubstr("ABI 7"));
}

// "Fixed 256 x 256-byte arrays, misaligned pointers": counts are unlimited. A name may have 128
// characters, and a longer name is refused with a message rather than cut or written past an end.
// Misaligned pointers are refused as well.
TEST(PeersPlugin, FixedArraysAndMisalignedPointers) {
  Folder folder;
  Runtime runtime(alone());
  EXPECT_THAT(runtime.plugins().load(folder.put("query_misaligned")).to_string(),
              HasSubstr("not aligned"));
  // Use more than 256 kernels with ids of the maximum length, and then an id that is one character
  // too long.
  yard_plugin_t plugin{};
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "many";
  std::vector<std::string> ids;
  std::vector<yard_kernel_t> kernels(300);
  std::vector<const yard_kernel_t*> list;
  for (size_t i = 0; i < kernels.size(); ++i)
    ids.push_back("default." + std::string(117, 'k') + std::to_string(100 + i));
  for (size_t i = 0; i < kernels.size(); ++i) {
    kernels[i].size = sizeof kernels[i], kernels[i].op = "rms_norm", kernels[i].id = ids[i].c_str();
    kernels[i].kind = YARD_KIND_DEFAULT;
    kernels[i].run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
    list.push_back(&kernels[i]);
  }
  const yard_backend_t* backends[] = {&backend};
  plugin.size = sizeof plugin, plugin.name = "many", plugin.version = "1";
  plugin.backends = backends, plugin.backend_count = 1;
  plugin.kernels = list.data(), plugin.kernel_count = static_cast<uint32_t>(list.size());
  Changes c;
  c.add_plugin(plugin);
  EXPECT_TRUE(runtime.apply(std::move(c)).ok());
  EXPECT_GE(runtime.list().find_op("rms_norm")->kernels.size(), 300u);
  EXPECT_EQ(runtime.list().find_kernels(ids[299]).size(), 1u);
  ASSERT_EQ(ids[299].size(), 128u);
  for (const size_t length : {129u, 256u, 70000u}) {
    const std::string endless(length, 'k');
    kernels[0].id = endless.c_str();
    Changes wrong;
    wrong.add_plugin(plugin);
    EXPECT_THAT(runtime.apply(std::move(wrong)).status().to_string(), HasSubstr("longer than"));
  }
}

// "C++ vtables, shared_ptr, std::string across the boundary": a plugin in C with other sizes of the
// structs works.
TEST(PeersPlugin, CppTypesCrossTheBoundary) {
  Folder folder;
  folder.put("old_layout"), folder.put("new_layout");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime, "old"), 41);
  EXPECT_EQ(ask(runtime, "new"), 43);
}

// "The documented search path does not exist": each documented place is searched in that order. The
// fourth place is found relative to an installed library, so a separate program stands in for an
// installation.
TEST(PeersPlugin, DocumentedSearchPathDoesNotExist) {
  Folder in_code, named, path;
  in_code.put("new_layout"), named.put("answer"), path.put("answer_v2"), path.put("old_layout");
  ::setenv("YARD_PLUGINS", named.file("answer.so").c_str(), 1);
  ::setenv("YARD_PLUGIN_PATH", path.path().c_str(), 1);
  RuntimeSettings settings = alone({in_code.path()});
  settings.environment = true;
  Runtime runtime(settings);
  ::unsetenv("YARD_PLUGINS"), ::unsetenv("YARD_PLUGIN_PATH");
  const auto all = runtime.plugins().list();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].path, in_code.file("new_layout.so"));
  EXPECT_EQ(all[1].path, named.file("answer.so"));
  EXPECT_EQ(all[2].path, path.file("answer_v2.so"));
  EXPECT_EQ(all[2].reason, PluginReason::kDuplicateName);
  EXPECT_EQ(all[3].path, path.file("old_layout.so"));
  EXPECT_EQ(ask(runtime, "old"), 41);
  EXPECT_EQ(ask(runtime), 1);

  Folder prefix;
  const Installation installation(prefix);
  fs::copy_file(built_plugin("kernel_only"), installation.plugins + "/kernel_only.so");
  const std::string said = installation.run(
      {"YARD_PLUGINS=" + named.file("answer.so"), "YARD_PLUGIN_PATH=" + path.path()});
  const size_t first = said.find(named.file("answer.so")), second = said.find(path.path()),
               third = said.find(installation.plugins + "/kernel_only.so: found");
  EXPECT_NE(third, said.npos) << said;
  EXPECT_TRUE(first < second && second < third) << said;
}

TEST(PeersPlugin, DuplicateUnknownOrMissingAborts) {
  Folder folder;
  Runtime runtime(alone());
  EXPECT_EQ(runtime.plugins().load("nobody").code(), Code::kNotFound);
  EXPECT_EQ(runtime.plugins().load(folder.file("missing.so")).code(), Code::kNotFound);
  EXPECT_EQ(runtime.plugins().load(folder.put("other_schema")).code(), Code::kConflict);
  ASSERT_TRUE(runtime.plugins().load(folder.put("answer")).ok());
  EXPECT_EQ(runtime.plugins().load(folder.put("answer_v2")).code(), Code::kConflict);
  EXPECT_EQ(runtime.plugins().unload("nobody").status().code(), Code::kNotFound);
  Status why;
  EXPECT_EQ(ask(runtime, "nothing", &why), -1);
  EXPECT_EQ(why.code(), Code::kUnknownOp);
}

TEST(PeersPlugin, LoadingTwiceAborts) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime runtime(alone());
  EXPECT_TRUE(runtime.plugins().load(path).ok());
  EXPECT_TRUE(runtime.plugins().load(path).ok());
  EXPECT_EQ(ask(runtime), 1);
}

// "No rollback": if the second part of a plugin is wrong, nothing of the first part stays.
TEST(PeersPlugin, NoRollback) {
  Folder folder;
  Runtime runtime(alone());
  const auto before = runtime.list();
  EXPECT_FALSE(runtime.plugins().load(folder.put("query_unknown_field")).ok());
  EXPECT_FALSE(runtime.plugins().load(folder.put("start_fails")).ok());
  const auto after = runtime.list();
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.ops.size(), before.ops.size());
  EXPECT_EQ(after.backends.size(), before.backends.size());
}

TEST(PeersPlugin, DlerrorTextIsLost) {
  Folder folder;
  const std::string path = folder.put("needs_more");
  Runtime runtime(alone());
  const std::string said = runtime.plugins().load(path).to_string();
  EXPECT_THAT(said, HasSubstr("cannot_open"));
  EXPECT_THAT(said, HasSubstr("a_function_nobody_has"));
  EXPECT_THAT(said, HasSubstr(path));
  EXPECT_THAT(said, ::testing::Not(HasSubstr("/proc/self/fd")));
}

// "Factories leak": a hundred rounds of load, make state and unload leave no state, no mapped
// memory and no open files. Each state is destroyed by the kernel that made it before its library
// closes.
TEST(PeersPlugin, FactoriesLeak) {
  Folder folder;
  folder.put("stateful");
  ::setenv("PLUGIN_DIARY", folder.file("diary").c_str(), 1);
  const auto open_files = [] {
    const fs::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime, "stateful"), 1);
  runtime.plugins().unload("stateful").value().wait().or_throw();
  const auto before = open_files();
  for (int i = 0; i < 100; ++i) {
    runtime.plugins().load("stateful").or_throw();
    EXPECT_EQ(ask(runtime, "stateful"), 1);
    runtime.plugins().unload("stateful").value().wait().or_throw();
  }
  ::unsetenv("PLUGIN_DIARY");
  EXPECT_EQ(open_files(), before);
  EXPECT_EQ(info_of(runtime, "stateful").state, PluginState::kUnloaded);
  std::ifstream diary(folder.file("diary"));
  std::string what, rest;
  std::vector<std::string> order;
  while (diary >> what && std::getline(diary, rest)) order.push_back(what);
  ASSERT_EQ(order.size(), 4u * 101);
  for (size_t i = 0; i < order.size(); i += 4)
    EXPECT_THAT(
        std::vector(order.begin() + static_cast<long>(i), order.begin() + static_cast<long>(i) + 4),
        ::testing::ElementsAre("start", "create", "destroy", "stop"));
}

// "dlclose while ops live": a library stays open until its last user releases it.
inline constexpr Op<void(Out, In)> answer{"answer"};
TEST(PeersPlugin, DlcloseWhileOpsLive) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime& runtime = Runtime::shared();
  runtime.plugins().load(path).or_throw();
  int64_t out = 0, x = 0;
  const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
  auto bound = bind(answer, vo, vx).value();
  std::optional frozen = freeze(answer, vo, vx).value();
  const Ticket ticket = runtime.plugins().unload("answer").value();
  EXPECT_FALSE(ticket.done());
  EXPECT_TRUE((*frozen)(vo, vx).ok());  // frozen handles keep their plugin open
  EXPECT_EQ(out, 1);
  EXPECT_FALSE(bound().ok());  // bound handles find another kernel, or report that there is none
  frozen.reset();
  EXPECT_TRUE(ticket.wait(std::chrono::seconds(10)).ok());
  EXPECT_EQ(info_of(runtime, "answer").state, PluginState::kUnloaded);
  runtime.plugins().load("answer").or_throw();
  EXPECT_TRUE(bound().ok());
  runtime.plugins().unload("answer").value().wait().or_throw();
}

// File systems reuse the inode number of a removed file for the next one.
TEST(PeersPlugin, AFileWithTheNumberOfARemovedOneIsANewPlugin) {
  Runtime runtime(alone({}));
  for (int i = 0; i < 8; ++i) {
    Folder folder;
    const Status loaded = runtime.plugins().load(folder.put("answer"));
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    runtime.plugins().unload("answer").value().wait().or_throw();
  }
}

// "The same op on two devices gets two ids": a name and a schema identify an op. Kernels of several
// backends and devices share the op, and the device of a call decides between them.
TEST(PeersPlugin, SameOpOnTwoDevicesGetsTwoIds) {
  Folder folder;
  folder.put("answer"), folder.put("other_device");
  Runtime runtime(alone({folder.path()}));
  EXPECT_EQ(ask(runtime), 1);
  EXPECT_EQ(runtime.resolve("answer(i64[4])@cpu").value().kernel, "default.answer");
  EXPECT_EQ(runtime.resolve("answer(i64[4])@cuda").value().kernel, "default.elsewhere");
  const Listing all = runtime.list();
  EXPECT_EQ(all.find_op("answer")->kernels.size(), 2u);
  EXPECT_EQ(std::count_if(all.ops.begin(), all.ops.end(),
                          [](const OpInfo& o) { return o.name == "answer"; }),
            1);
}

TEST(PeersPlugin, NoLocks) {
  Folder folder;
  folder.put("answer"), folder.put("kernel_only");
  Runtime runtime(alone({folder.path()}));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        if (t == 0) runtime.plugins().load("helper").ignore();
        if (t == 1) runtime.plugins().unload("helper").status().ignore();
        if (t == 2) runtime.plugins().discover().ignore();
        if (t == 3) {
          EXPECT_GT(ask(runtime), 0);
        }
      }
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace yard::testing
