// SPDX-License-Identifier: Apache-2.0
// Loads a plugin, replaces its file and unloads it in a loop while threads call in several ways. No
// call fails or runs code of a closed library, and after each load the code of the current file
// runs.
#include <atomic>
#include <thread>

#include "plugin_files.h"
#include "test_scale.h"

namespace yard::testing {
namespace {

constexpr int64_t kOwn = 7;  // the answer of the program's own kernel

int32_t own_answer(yard_call_t*, const yard_value_t* args, uint32_t) {
  *static_cast<int64_t*>(args[0].u.tensor->data) = kOwn;
  return YARD_OK;
}

void add_own_kernel(Runtime& runtime) {
  yard_op_t op{};
  op.size = sizeof op, op.schema = "answer(out!: i64[n], x: i64[n])";
  yard_backend_t backend{};
  backend.size = sizeof backend, backend.name = "own";
  yard_kernel_t kernel{};
  kernel.size = sizeof kernel, kernel.op = "answer", kernel.id = "default.own";
  kernel.backend = "own", kernel.kind = YARD_KIND_DEFAULT, kernel.run = own_answer;
  Changes c;
  c.add_op(op).add_backend(backend).add_kernel(kernel);
  runtime.apply(std::move(c)).or_throw();
}

inline constexpr Op<void(Out, In)> answer{"answer"};

int rounds() { return scaled(fewer(1000)); }

TEST(PluginStress, LoadReplaceUnloadWhileThreadsCall) {
  Folder folder;
  Runtime runtime(alone());
  add_own_kernel(runtime);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> calls{0}, of_plugins{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      int64_t out = 0, x = 0;
      const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
      const auto typed = answer.on(runtime);
      while (!stop.load(std::memory_order_relaxed)) {
        out = -1;
        const Status s = t == 0 ? runtime.call("answer", {vo, vx}) : typed(vo, vx);
        ASSERT_TRUE(s.ok()) << s.to_string();
        ASSERT_TRUE(out == kOwn || out == 3 || out == 4) << out;
        calls.fetch_add(1, std::memory_order_relaxed);
        if (out != kOwn) of_plugins.fetch_add(1, std::memory_order_relaxed);
        if (t == 2) std::this_thread::yield();
      }
    });
  const std::string versions[] = {read_file(built_plugin("kernel_only")),
                                  read_file(built_plugin("kernel_only_v2"))};
  std::string path = folder.put_bytes(versions[0], "helper.so");
  for (int round = 0; round < rounds(); ++round) {
    const Status loaded = runtime.plugins().load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    ASSERT_EQ(ask(runtime), 3 + round % 2);
    // The file is replaced while its plugin is in use.
    folder.put_bytes(versions[(round + 1) % 2], "helper.so");
    ASSERT_EQ(ask(runtime), 3 + round % 2);
    const auto ticket = runtime.plugins().unload("helper");
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    if (round % 3 == 0) {
      ASSERT_TRUE(ticket->wait(std::chrono::seconds(60)).ok());
      ASSERT_EQ(info_of(runtime, "helper").state, PluginState::kUnloaded)
          << info_of(runtime, "helper").detail;
      ASSERT_EQ(ask(runtime), kOwn);
    }
  }
  stop = true;
  for (auto& t : threads) t.join();
  EXPECT_GT(calls.load(), 0u);
  EXPECT_GT(of_plugins.load(), 0u);
  // No library of these rounds is still mapped.
  Changes nothing;
  runtime.apply(std::move(nothing)).or_throw();
  const std::string maps = read_file("/proc/self/maps");
  EXPECT_EQ(maps.find(folder.path()), maps.npos);
}

TEST(PluginStress, TheFirstCallsOfManyThreadsLoadOnce) {
  Folder folder;
  folder.put("answer"), folder.put("kernel_only"), folder.put("old_layout");
  for (int round = 0; round < 50; ++round) {
    RuntimeSettings settings = alone({folder.path()});
    settings.builtin_backends = false;
    Runtime runtime(settings);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        if (t == 3)
          EXPECT_EQ(ask(runtime, "old"), 41);
        else
          EXPECT_EQ(ask(runtime), 3);
        runtime.plugins().list();
      });
    for (auto& t : threads) t.join();
  }
}

}  // namespace
}  // namespace yard::testing
