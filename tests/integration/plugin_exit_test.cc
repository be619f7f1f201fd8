// SPDX-License-Identifier: Apache-2.0
// A program that ends while plugins are loaded ends well, even while threads call, hold or unload
// them.
#include <gmock/gmock.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::Not;

inline constexpr Op<void(Out, In)> answer{"answer"};

void say_answer(const char* when, Runtime& runtime = Runtime::shared()) {
  std::fprintf(stderr, "%s: %d\n", when, static_cast<int>(ask(runtime)));
}

class PluginExit : public ::testing::Test {
 protected:
  // Each test runs in a new process, so that its exit handlers run for the first and only time.
  PluginExit() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  Folder folder_;
};

TEST_F(PluginExit, CallsMayComeUntilExit) {
  struct Late {
    ~Late() { say_answer("static destructor"); }
  };
  const auto program = [&] {
    // Constructed before the runtime, so destroyed after everything that the runtime makes.
    static const Late late;
    ::setenv("PLUGIN_DIARY", folder_.file("diary").c_str(), 1);
    folder_.put("answer");
    std::atexit([] { say_answer("exit handler"); });
    Runtime::shared().plugins().load(folder_.file("answer.so")).or_throw();
    say_answer("main");
    std::exit(7);
  };
  EXPECT_EXIT(
      program(), ExitedWithCode(7),
      AllOf(HasSubstr("main: 1"), HasSubstr("exit handler: 1"), HasSubstr("static destructor: 1")));
}

TEST_F(PluginExit, HandlesAndRuntimesMayLiveUntilExit) {
  const auto program = [&] {
    const std::string path = folder_.put("stateful"), other = folder_.put("answer");
    ::setenv("PLUGIN_DIARY", "/dev/stderr", 1);
    static Runtime own(alone({path}));
    std::fprintf(stderr, "own: %d\n", static_cast<int>(ask(own, "stateful")));
    Runtime::shared().plugins().load(other).or_throw();
    static int64_t out = 0, x = 0;
    static const TensorView vo(&out, DType::i64, {1}), vx(&x, DType::i64, {1});
    static auto bound = bind(answer, vo, vx).value();
    static auto frozen = freeze(answer, vo, vx).value();
    if (!bound().ok() || !frozen(vo, vx).ok()) std::exit(1);
    std::exit(0);
  };
  // A runtime that ends ends its objects in order. The plugin of the shared runtime is never
  // stopped.
  EXPECT_EXIT(program(), ExitedWithCode(0),
              AllOf(HasSubstr("own: 1"), HasSubstr("destroy stateful 1.0\nstop stateful 1.0"),
                    Not(HasSubstr("stop answer"))));
}

TEST_F(PluginExit, ThreadsMayCallDuringExit) {
  const auto program = [&] {
    folder_.put("answer");
    Runtime::shared().plugins().discover({folder_.path()}).or_throw();
    static std::atomic<int> calls{0};
    // These threads are never joined: they call, load and unload while the process ends.
    for (int t = 0; t < 3; ++t)
      std::thread([t] {
        for (;;) {
          if (t == 0) {
            Runtime::shared().plugins().load("answer").ignore();
            Runtime::shared().plugins().unload("answer").status().ignore();
          }
          ask(Runtime::shared());
          calls.fetch_add(1);
        }
      }).detach();
    while (calls.load() < 1000) std::this_thread::yield();
    std::exit(3);
  };
  for (int i = 0; i < 5; ++i) EXPECT_EXIT(program(), ExitedWithCode(3), "");
}

}  // namespace
}  // namespace yard::testing
