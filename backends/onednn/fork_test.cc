// SPDX-License-Identifier: Apache-2.0
// A forked child never enters oneDNN, which would wait for threads that do not exist there. The
// tests try the inherited runtime, a new runtime and a direct call of the kernel.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/runtime.h>

#include <functional>
#include <thread>
#include <vector>

#include "kernels.h"
#include "process.h"

namespace yard::onednn {
namespace {

struct Row {
  std::vector<float> x = std::vector<float>(64 * 512, 1), out = std::vector<float>(64 * 512);
  TensorView tx{x.data(), DType::f32, {64, 512}}, tout{out.data(), DType::f32, {64, 512}};
};

// Returns the number of the first failed expectation, 0 if all held, or -1 if the child hung or
// died.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string reason_of(Runtime& runtime) {
  for (const BackendInfo& b : runtime.list().backends)
    if (b.name == "onednn") return b.available ? "available" : b.reason + "|" + b.detail;
  return "no backend";
}

TEST(OnednnFork, IsUnavailableInTheChildWithThatReason) {
  Row row;
  Options forced;
  forced.force = "vendor.onednn";
  ASSERT_TRUE(Runtime::shared().call("softmax", {row.tout, row.tx}, forced).ok());
  EXPECT_EQ(in_child([&] {
              if (reason_of(Runtime::shared()) != "forked|") return 1;
              const Status s = Runtime::shared().call("softmax", {row.tout, row.tx}, forced);
              if (s.ok() || s.to_string().find("forked child") == std::string::npos) return 2;
              // Other kernels serve the call.
              if (!Runtime::shared().call("softmax", {row.tout, row.tx}).ok()) return 3;
              return row.out[0] == 1.0f / 512 ? 0 : 4;
            }),
            0);
  // The parent still uses oneDNN.
  EXPECT_EQ(reason_of(Runtime::shared()), "available");
  EXPECT_TRUE(Runtime::shared().call("softmax", {row.tout, row.tx}, forced).ok());
}

TEST(OnednnFork, ARuntimeMadeInTheChildIsUnavailableToo) {
  Row row;
  Options forced;
  forced.force = "vendor.onednn";
  ASSERT_TRUE(Runtime::shared().call("softmax", {row.tout, row.tx}, forced).ok());
  EXPECT_EQ(in_child([&] {
              Runtime own;
              if (reason_of(own).find("forked child") == std::string::npos) return 1;
              if (own.call("softmax", {row.tout, row.tx}, forced).ok()) return 2;
              return own.call("softmax", {row.tout, row.tx}).ok() ? 0 : 3;
            }),
            0);
}

TEST(OnednnFork, TheKernelItselfDeclines) {
  Row row;
  Options forced;
  forced.force = "vendor.onednn";
  ASSERT_TRUE(Runtime::shared().call("softmax", {row.tout, row.tx}, forced).ok());
  const yard_plugin_t* plugin = descriptor();
  yard_verdict_t why{};
  // This process has two copies of the backend: the test's, which watches here, and the library's.
  ASSERT_EQ(plugin->backends[0]->probe(nullptr, nullptr, {1, 0}, &why), YARD_OK);
  EXPECT_EQ(in_child([&] {
              yard_verdict_t verdict{};
              if (plugin->backends[0]->probe(nullptr, nullptr, {1, 0}, &verdict) == YARD_OK)
                return 1;
              if (verdict.reason != YARD_REASON_OWN) return 2;
              char error[128] = "";
              yard_call_t call{};
              call.size = sizeof call, call.error = error, call.error_size = sizeof error;
              const Tensor out(&row.tout.c()), x(&row.tx.c()), none(nullptr);
              if (softmax(Call(&call), out, x) != YARD_DECLINED) return 3;
              if (layer_norm(Call(&call), out, x, none, none, 1e-5) != YARD_DECLINED) return 4;
              return std::string(error).find("forked child") != std::string::npos ? 0 : 5;
            }),
            0);
}

// OpenMP ends the process if it cannot start a thread.
TEST(OnednnThreads, IsNotUsedWhereNoThreadCanBeStarted) {
  int failed = -1;
  std::thread([&] {
    failed = in_child([] {
      pthread_attr_t endless;  // no thread has room for such a stack
      pthread_attr_init(&endless);
      pthread_attr_setstacksize(&endless, size_t{1} << 60);
      pthread_setattr_default_np(&endless);
      if (can_start(1)) return 1;
      if (ThreadCount(nullptr, 8).value() > 1) return 2;
      yard_verdict_t why{};
      if (descriptor()->backends[0]->probe(nullptr, nullptr, {1, 0}, &why) == YARD_OK) return 3;
      Row row;
      Runtime own;
      if (reason_of(own) == "available") return 4;
      return own.call("softmax", {row.tout, row.tx}).ok() ? 0 : 5;
    });
    // OpenMP has no threads for this new thread yet.
  }).join();
  EXPECT_EQ(failed, 0);
}

TEST(OnednnThreads, AreCheckedForEachCaller) {
  EXPECT_TRUE(can_start(1));
  std::thread([] {
    const ThreadCount count(nullptr, 2);
    EXPECT_GE(count.value(), 0);
    EXPECT_LE(count.value(), 2);
  }).join();
}

}  // namespace
}  // namespace yard::onednn
