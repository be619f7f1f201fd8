// SPDX-License-Identifier: Apache-2.0
// Threads that end inside scopes and kernels. Nothing leaks (the address sanitizer checks), no
// thread waits for them, and the next thread starts clean.
#include <gtest/gtest.h>
#include <pthread.h>
#include <yard/bound.h>
#include <yard/policy.h>
#include <yard/trace.h>
#include <yard/plugin.hpp>

#include <functional>
#include <optional>
#include <thread>

#include "on_thread.h"
#include "testing.h"

namespace yard::testing::thread_ends {
namespace {

using std::chrono::seconds;

constexpr Op<void(Out, In, int)> copy{"copy"};

std::function<void(yard_call_t*)> g_inside;  // runs in the kernel "ends"
bool g_ends = false;

int32_t run_ends(yard_call_t* call, const yard_value_t*, uint32_t) {
  if (g_ends) g_inside(call);
  t_ran = 9;
  return YARD_OK;
}

void run_ends_cpp(plugin::Call call, plugin::Tensor, plugin::Tensor, int64_t) {
  if (g_ends) g_inside(call.c());
  t_ran = 9;
}

class ThreadEnds : public ::testing::Test {
 protected:
  ThreadEnds() {
    bare_.add(kernel_of("copy", "a", 1, 100)).or_throw();
    bare_.add(kernel_of("copy", "b", 2, 50)).or_throw();
    g_ends = false;
  }
  ~ThreadEnds() override { g_inside = nullptr; }

  // If `cpp`, plugin.hpp makes the entries and catches exceptions.
  void add_ends(bool cpp) {
    yard_kernel_t k = kernel_of("copy", "ends", 9, 900);
    k.run = run_ends;
    if (cpp) {
      const yard_kernel_t made = plugin::Kernel::of<run_ends_cpp>("copy", "ends");
      k.run = made.run, k.typed = made.typed, k.typed_signature = made.typed_signature;
    }
    bare_.add(k).or_throw();
  }
  intptr_t ran() {
    t_ran = 0;
    const Status s = copy.on(bare_.runtime)(out_.view, x_.view, 0);
    return s.ok() ? t_ran : -1;
  }
  Ticket remove(const char* id) {
    Changes c;
    c.remove_kernel("copy", id);
    return bare_.runtime.apply(std::move(c)).value();
  }
  // Checks that a new thread, which may get the memory of the last one, starts clean.
  void expect_next_is_clean(intptr_t kernel) {
    std::thread([&] {
      EXPECT_EQ(ran(), kernel);
      EXPECT_TRUE(current_scope().policy().empty());
      EXPECT_TRUE(current_scope().labels().empty());
    }).join();
  }

  Bare bare_;
  Floats out_{4}, x_{4};
};

TEST_F(ThreadEnds, InsideScopesAndTraces) {
  for (int i = 0; i < 3; ++i) {
    on_thread([&] {
      const ScopedPolicy outer(Scope().deny_kernels({"a"}).label("tenant", std::to_string(i)));
      EXPECT_EQ(ran(), 2);
      const ScopedPolicy inner(Scope().strict(true));
      const TraceScope trace;
      EXPECT_EQ(ran(), 0);  // recorded by the trace, but not run
      pthread_exit(nullptr);
    });
    expect_next_is_clean(1);
  }
}

// The thread ends in a call made in any way, with workspace for the kernel.
class InAKernel : public ThreadEnds, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OfPluginHpp, InAKernel, ::testing::Bool());
TEST_P(InAKernel, AThreadEnds) {
  add_ends(GetParam());
  const auto on = copy.on(bare_.runtime);
  const auto bound = bind(on, out_.view, x_.view).value();
  std::optional frozen = freeze(on, out_.view, x_.view).value();
  const std::function<void()> ways[] = {
      [&] { on(out_.view, x_.view, 0).ignore(); },
      [&] {
        bare_.runtime.call("copy", {out_.view, x_.view}).ignore();
      },
      [&] { on.with(Options())(out_.view, x_.view, 0).ignore(); },
      [&] { bound(0).ignore(); },
      [&] { (*frozen)(0).ignore(); },
  };
  g_inside = [](yard_call_t* call) {
    EXPECT_NE(call->host->scratch(call->host->self, call, 1000), nullptr);
    pthread_exit(nullptr);
  };
  for (const auto& way : ways)
    for (const bool warm : {false, true}) {
      bool returned = false;
      on_thread([&] {
        const ScopedPolicy scope(Scope().label("tenant", "x"));
        g_ends = false;
        if (warm) way(), way();
        g_ends = true;
        way();
        returned = true;
      });
      EXPECT_FALSE(returned);
    }
  g_ends = false;
  expect_next_is_clean(9);
  frozen.reset();  // the handle holds the kernel
  // No thread counts as a user of the kernel any more.
  EXPECT_TRUE(remove("ends").wait(seconds(20)).ok());
}

}  // namespace
}  // namespace yard::testing::thread_ends
