// SPDX-License-Identifier: Apache-2.0
// Tests plans, and one run of one kernel: its context, workspace, scratch and message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/reclaimer.h"
#include "exec/executor.h"
#include "registry/testing.h"

namespace yard::exec {
namespace {

using ::testing::HasSubstr;

// A kernel that does what a test sets. `bytes` is the result of workspace().
struct Scene {
  std::function<int32_t(yard_call_t*)> body = [](yard_call_t*) { return YARD_OK; };
  std::function<int64_t()> bytes;
  std::shared_ptr<registry::Kernel> kernel;
  char error[kErrorBytes] = {};
  yard_host_t host{};

  Scene() {
    yard_kernel_t d = registry::testing::kernel_of("norm", "default.k", "plain");
    d.self = this;
    d.run = [](yard_call_t* call, const yard_value_t*, uint32_t) -> int32_t {
      return static_cast<Scene*>(call->self)->body(call);
    };
    kernel = registry::read_kernel(d, {}).value();
  }
  void asks(std::function<int64_t()> f) {
    bytes = std::move(f);
    kernel->d.workspace = [](void* self, const yard_value_t*, uint32_t) -> int64_t {
      return static_cast<Scene*>(self)->bytes();
    };
  }
  int32_t run(uint32_t flags = 0) {
    CallFrame frame(&host, flags, this);
    const int32_t code = run_kernel(base::this_thread(), *kernel, frame, Request{});
    std::memcpy(error, frame.error, sizeof error);
    return code;
  }
};

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

TEST(CallFrame, IsFilledIn) {
  Scene s;
  s.body = [&](yard_call_t* call) {
    EXPECT_EQ(call->size, sizeof *call);
    EXPECT_EQ(call->flags, YARD_CALL_INFERENCE);
    EXPECT_EQ(call->host, &s.host);
    EXPECT_EQ(call->self, &s);
    EXPECT_EQ(call->state, nullptr);
    EXPECT_EQ(call->workspace, nullptr);
    EXPECT_EQ(call->workspace_size, 0u);
    EXPECT_STREQ(call->error, "");
    EXPECT_EQ(call->error_size, kErrorBytes);
    return YARD_OK;
  };
  EXPECT_EQ(s.run(YARD_CALL_INFERENCE), YARD_OK);
}

TEST(Workspace, HasTheRequestedSizeAndAlignment) {
  Scene s;
  int64_t want = 0;
  s.asks([&] { return want; });
  s.body = [&](yard_call_t* call) {
    EXPECT_EQ(call->workspace_size, static_cast<uint64_t>(want));
    EXPECT_NE(call->workspace, nullptr);
    EXPECT_TRUE(aligned(call->workspace));
    std::memset(call->workspace, 0xab, call->workspace_size);  // the sanitizer checks the end
    return YARD_OK;
  };
  for (int64_t n : {0, 1, 63, 64, 65, 4096, 100, 0, 1 << 20}) {
    want = n;
    EXPECT_EQ(s.run(), YARD_OK) << n;
  }
}

TEST(Workspace, FailsIfItCannotBeAllocated) {
  Scene s;
  bool ran = false;
  s.body = [&](yard_call_t*) { return ran = true, YARD_OK; };
  s.asks([] { return int64_t{-1}; });
  EXPECT_EQ(s.run(), YARD_FAULT);
  EXPECT_THAT(s.error, HasSubstr("a negative workspace size"));
  s.asks([] { return INT64_MAX; });
  EXPECT_EQ(s.run(), YARD_TRANSIENT);
  EXPECT_THAT(s.error, HasSubstr("no memory for a workspace of 9223372036854775807 bytes"));
  s.asks([]() -> int64_t { throw std::runtime_error("no idea"); });
  EXPECT_EQ(s.run(), YARD_FAULT);
  EXPECT_STREQ(s.error, "no idea");
  EXPECT_FALSE(ran);
  // The thread's workspace still works afterwards.
  s.asks([] { return int64_t{128}; });
  EXPECT_EQ(s.run(), YARD_OK);
}

TEST(Workspace, OfANestedCallIsDifferent) {
  Scene outer, inner;
  outer.asks([] { return int64_t{256}; });
  inner.asks([] { return int64_t{1 << 16}; });
  outer.body = [&](yard_call_t* call) {
    std::memset(call->workspace, 1, call->workspace_size);
    inner.body = [&](yard_call_t* nested) {
      EXPECT_NE(nested->workspace, call->workspace);
      std::memset(nested->workspace, 2, nested->workspace_size);
      return YARD_OK;
    };
    base::Guard guard(base::this_thread());
    EXPECT_EQ(inner.run(), YARD_OK);
    EXPECT_EQ(static_cast<char*>(call->workspace)[255], 1);
    return YARD_OK;
  };
  base::Guard guard(base::this_thread());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(outer.run(), YARD_OK);
}

TEST(Workspace, IsKeptForTheNextCallAndFreedWithTheThread) {
  std::thread([] {
    Scene s;
    void* first = nullptr;
    s.asks([] { return int64_t{4096}; });
    s.body = [&](yard_call_t* call) { return first = call->workspace, YARD_OK; };
    EXPECT_EQ(s.run(), YARD_OK);
    s.body = [&](yard_call_t* call) {
      EXPECT_EQ(call->workspace, first);
      return YARD_OK;
    };
    EXPECT_EQ(s.run(), YARD_OK);
  }).join();  // the leak checker notices a lost workspace
}

TEST(Scratch, IsAlignedDistinctAndFreed) {
  Scene s;
  s.body = [](yard_call_t* call) -> int32_t {
    char* last = nullptr;
    for (uint64_t n : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{1000}, uint64_t{1} << 20}) {
      auto* p = static_cast<char*>(allocate_scratch(*call, n));
      EXPECT_NE(p, nullptr);
      EXPECT_TRUE(aligned(p));
      EXPECT_NE(p, last);
      if (n > 0) std::memset(p, 0xcd, n);
      last = p;
    }
    EXPECT_EQ(allocate_scratch(*call, UINT64_MAX), nullptr);
    EXPECT_EQ(allocate_scratch(*call, (uint64_t{1} << 46) + 1), nullptr);
    throw std::runtime_error("with scratch in hand");
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(s.run(), YARD_FAULT);
}

TEST(Message, OfAnExceptionIsCutAtTheEndOfTheBuffer) {
  Scene s;
  for (size_t n : {kErrorBytes - 1, kErrorBytes, 10 * kErrorBytes}) {
    s.body = [&](yard_call_t*) -> int32_t { throw std::runtime_error(std::string(n, 'm')); };
    EXPECT_EQ(s.run(), YARD_FAULT);
    EXPECT_EQ(strnlen(s.error, sizeof s.error), kErrorBytes - 1);
  }
}

TEST(PthreadExit, PassesThrough) {
  Scene s;
  s.body = [](yard_call_t*) -> int32_t { pthread_exit(nullptr); };
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void* scene) -> void* {
                  base::Guard guard(base::this_thread());
                  static_cast<Scene*>(scene)->run();
                  return scene;
                },
                &s),
            0);
  void* result = &s;
  ASSERT_EQ(pthread_join(thread, &result), 0);
  EXPECT_EQ(result, nullptr);
}

// ---- Plans -------------------------------------------------------------------------------------

TEST(Plans, KeepTheirKeyAndStaySmall) {
  static_assert(sizeof(Plan) + 4 * sizeof(uint64_t) <= 300);
  const Scene s;
  const uint64_t key[] = {1, UINT64_MAX, 0, 42};
  const KernelStats stats;
  const Attempt one[] = {{s.kernel.get(), &stats}};
  const Plan::Ptr p = Plan::make(99, key, one);
  EXPECT_EQ(p->hash, 99u);
  ASSERT_EQ(p->key_words, 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(p->key()[i], key[i]);
  EXPECT_EQ(p->run, s.kernel->d.run);
  EXPECT_EQ(p->self, s.kernel->d.self);
  EXPECT_EQ(p->counter, base::kNoCounter);
  EXPECT_EQ(p->attempt_count, 1);
  EXPECT_TRUE(p->direct);
  EXPECT_FALSE(p->only_workspace);
  EXPECT_EQ(p->pins.load(), 0u);
  EXPECT_EQ(Plan::make(0, {}, one)->key_words, 0u);
}

TEST(Plans, WithAWorkspaceAreNotDirectAndHoldEightKernels) {
  Scene s;
  s.asks([] { return int64_t{1}; });
  const KernelStats stats;
  const std::vector<Attempt> many(20, Attempt{s.kernel.get(), &stats});
  const Plan::Ptr p = Plan::make(0, {}, many);
  EXPECT_FALSE(p->direct);
  EXPECT_TRUE(p->only_workspace);
  EXPECT_EQ(p->attempt_count, Plan::kMaxAttempts);
}

}  // namespace
}  // namespace yard::exec
