// SPDX-License-Identifier: Apache-2.0
// Tests forks under load: calls, failing kernels and their breakers, scopes, reloads of rules,
// plugins that come and go. The parent is undisturbed, each child is usable at once, and no process
// waits forever.
//
// The thread sanitizer does not run these tests, because it does not survive threads after a fork.
// See base/testing_allocator_at_fork.cc for the address sanitizer.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yard/abi.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "fault.h"
#include "plugin_files.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

constexpr Op<void(Out, In, int)> copy{"copy"};

#if defined(YARD_UNDER_ASAN)
constexpr int kForks = 100;  // each fork takes about ten milliseconds here
#else
constexpr int kForks = 1000;
#endif

int forks() { return scaled(kForks); }

class ForkStorm : public ::testing::Test {
 protected:
  ForkStorm() {
    Changes c;
    c.add_backend(backend_.descriptor());
    c.add_kernel(bad_.descriptor()).add_kernel(kernel_of("copy", "good", 7, 100));
    bare_.runtime.apply(std::move(c)).or_throw();
    bad_.set({.rate = 0.3, .code = YARD_FAULT});
    BreakerSettings s;
    s.cooldown = std::chrono::milliseconds(5);
    bare_.runtime.health().set_settings(s).or_throw();
    for (int64_t n = 1; n < 9; ++n) EXPECT_TRUE(call(n));
  }
  ~ForkStorm() override { EXPECT_TRUE(bare_.runtime.reset().ok()); }

  bool call(int64_t n) {
    float to[8] = {}, from[8] = {};
    return copy
        .on(bare_.runtime)(TensorView(to, DType::f32, {n}), TensorView(from, DType::f32, {n}), 0)
        .ok();
  }

  int in_child(int i) {
    if (!call(1 + i % 8)) return 2;
    {
      const ScopedPolicy strict(Scope().deny_kernels({"fault.*"}));
      if (!call(1 + i % 8)) return 3;
    }
    if (with_plugins_) {
      if (ask(bare_.runtime, "grouped") != 1) return 4;  // the op of the plugin that stays
      // The op of the plugin that is loaded, replaced and unloaded; any version or none may be
      // there.
      Status why;
      const int64_t answer = ask(bare_.runtime, "answer", &why);
      if (answer != 1 && answer != 2 && why.code() != Code::kUnknownOp) return 5;
      if (bare_.runtime.plugins().list().size() > 2) return 6;
    }
    if (i % 16 == 0 && !bare_.runtime.rules().set(Config()).ok()) return 7;
    return 0;
  }

  // exit() needs a lock of the C library that is held while a library is opened or closed. With the
  // address sanitizer children never use exit(), because it looks for leaks at each exit.
  static bool leaves_by_exit([[maybe_unused]] int i) {
#if defined(YARD_UNDER_ASAN)
    return false;
#else
    return i % 2 == 0;
#endif
  }

  void one_fork(int i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      const int code = in_child(i);
      if (leaves_by_exit(i)) std::exit(code);
      _exit(code);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "fork " << i << ": signal " << WTERMSIG(status);
    ASSERT_EQ(WEXITSTATUS(status), 0) << "fork " << i;
  }
  // Forks from this thread and from threads that have never called anything.
  void storm() {
    for (int i = 0; i < forks() && !HasFailure(); ++i)
      if (i % 4 == 3)
        std::thread([&] { one_fork(i); }).join();
      else
        one_fork(i);
  }

  void others_call() {
    for (int t = 0; t < 2; ++t)
      threads_.emplace_back([this] {
        for (int64_t n = 1; !stop_; n = n % 8 + 1) wrong_ += call(n) ? 0 : 1;
      });
  }
  void end() {
    stop_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
    EXPECT_EQ(wrong_.load(), 0);
  }

  fault::FaultBackend backend_;
  fault::FaultKernel bad_{{.op = "copy", .id = "fault.bad", .priority = 200}};
  Bare bare_;
  bool with_plugins_ = false;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
  std::atomic<int> wrong_{0};
};

TEST_F(ForkStorm, WhileOthersCallKernelsThatFail) {
  others_call();
  storm();
  end();
}

// The threads only load and unload, so that a library is being opened or closed most of the time.
TEST_F(ForkStorm, WhilePluginsAreLoadedAndUnloaded) {
  threads_.emplace_back([this] {
    Folder folder;
    const std::string path = folder.put("answer");
    while (!stop_) {
      if (!bare_.runtime.plugins().load(path).ok()) ++wrong_;
      if (!bare_.runtime.plugins().unload("answer").ok()) ++wrong_;
    }
  });
  storm();
  end();
}

TEST_F(ForkStorm, WithReloadsScopesAndPlugins) {
  Folder stays;
  ASSERT_TRUE(bare_.runtime.plugins().load(stays.put("of_a_group")).ok());
  ASSERT_EQ(ask(bare_.runtime, "grouped"), 1);
  with_plugins_ = true;
  others_call();
  threads_.emplace_back([this] {
    for (int i = 0; !stop_; ++i) {
      Config c;
      c.settings.max_fallback_attempts = 1 + i % 3;
      if (!bare_.runtime.rules().set(c).ok()) ++wrong_;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  threads_.emplace_back([this] {
    Folder folder;
    const std::string path = folder.file("answer.so");
    for (int i = 0; !stop_; ++i) {
      folder.put("answer");
      if (!bare_.runtime.plugins().load(path).ok()) ++wrong_;
      folder.put("answer_v2", "answer");
      if (!bare_.runtime.plugins().replace("answer").ok()) ++wrong_;
      if (auto ticket = bare_.runtime.plugins().unload("answer"); !ticket.ok()) ++wrong_;
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  threads_.emplace_back([this] {
    for (int i = 0; !stop_; ++i) {
      const ScopedPolicy scope(Scope().label("tenant", std::to_string(i % 50)).strict(i % 2 == 0));
      if (i % 2 != 0 && !call(4)) ++wrong_;
    }
  });
  storm();
  end();
}

}  // namespace
}  // namespace yard::testing
