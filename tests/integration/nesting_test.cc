// SPDX-License-Identifier: Apache-2.0
// Kernels and functions that call themselves or each other without end. The call that nests too
// deep returns an error that names the op and the limit, however it is made, and the thread
// continues to work.
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/config.h>

#include <functional>
#include <optional>

#include "functions_testing.h"
#include "on_thread.h"
#include "testing.h"

namespace yard::testing::nesting {
namespace {

#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)
constexpr bool kLargeFrames = true;  // the stack may be full before the limit
#else
constexpr bool kLargeFrames = false;
#endif

constexpr Op<void(Out, In, int)> copy{"copy"};

// The code of the kernels "again", which each test sets.
std::function<Status(plugin::Call, plugin::Tensor, plugin::Tensor)> g_again;
int g_depth = 0, g_deepest = 0;
uint64_t g_calls = 0;
size_t g_frame = 0;  // bytes of stack that the kernels use
enum class Reports { kMessage, kNothing, kOwn } g_reports = Reports::kMessage;

[[gnu::noinline]] Status with_frame(size_t bytes, const std::function<Status()>& f) {
  auto* const room = static_cast<volatile char*>(__builtin_alloca(bytes + 1));
  room[0] = 1;
  room[bytes] = 1;
  Status s = f();
  room[0] = 2;
  return s;
}

int32_t again(plugin::Call call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  ++g_calls;
  g_deepest = std::max(g_deepest, ++g_depth);
  const Status s = with_frame(g_frame, [&] { return g_again(call, out, x); });
  --g_depth;
  if (s.ok()) return YARD_OK;
  if (g_reports == Reports::kNothing) return YARD_FAULT;
  if (g_reports == Reports::kOwn) return call.fail(YARD_FAULT, "the inner call failed");
  return call.fail(static_cast<int32_t>(s.error_class()), "%s", s.to_string().c_str());
}

constexpr size_t kStack = 8 << 20;

class Nesting : public ::testing::Test {
 protected:
  Nesting() {
    bare_.add(plugin::Kernel::of<again>("copy", "again").backend("test").priority(100).d)
        .or_throw();
    g_depth = g_deepest = 0, g_calls = 0, g_frame = 0, g_reports = Reports::kMessage;
    g_again = [this](auto&&...) { return copy.on(bare_.runtime)(out_.view, x_.view, 0); };
  }
  ~Nesting() override { g_again = nullptr; }

  Status call() { return copy.on(bare_.runtime)(out_.view, x_.view, 0); }
  static void expect_text(const Status& s, const char* op = "copy") {
    const std::string text = s.to_string();
    EXPECT_NE(text.find(std::string("op '") + op + "': calls nest too deep"), text.npos) << text;
  }
  static void expect_refused(const Status& s) {
    EXPECT_EQ(s.code(), Code::kWouldDeadlock) << s.to_string();
    expect_text(s);
  }

  Bare bare_;
  Floats out_{4}, x_{4};
};

TEST_F(Nesting, IsBoundedInEveryFormOfCall) {
  const auto on = copy.on(bare_.runtime);
  const Options options;
  const auto bound = bind(on, out_.view, x_.view).value();
  const std::pair<const char*, std::function<Status()>> forms[] = {
      {"typed", [&] { return on(out_.view, x_.view, 0); }},
      {"with options", [&] { return on.with(options)(out_.view, x_.view, 0); }},
      {"by name",
       [&] {
         return bare_.runtime.call("copy", {out_.view, x_.view});
       }},
      {"bound", [&] { return bound(0); }},
      {"bound, on other tensors", [&] { return bound(out_.view, x_.view, 0); }},
      {"in a scope",
       [&] {
         const ScopedPolicy scope(Scope().label("tenant", "x"));
         return on(out_.view, x_.view, 0);
       }},
  };
  for (const auto& [name, form] : forms)
    for (const Reports reports : {Reports::kMessage, Reports::kNothing, Reports::kOwn}) {
      SCOPED_TRACE(name);
      g_reports = reports;
      g_again = [&form = form](auto&&...) { return form(); };
      on_stack_of(kStack, [&, &form = form] {
        g_deepest = 0;
        const Status s = form();
        if (reports == Reports::kOwn)
          expect_text(s);
        else
          expect_refused(s);
        EXPECT_LE(g_deepest, 1000);
        if (!kLargeFrames) {
          EXPECT_GE(g_deepest, 900);  // each level takes at most 8 KiB of stack
        }
      });
    }
}

TEST_F(Nesting, IsBoundedForOpsThatKernelsCallByTheHost) {
  g_again = [](plugin::Call c, plugin::Tensor out, plugin::Tensor x) {
    yard_value_t args[3] = {};
    args[0].tag = args[1].tag = YARD_TAG_TENSOR, args[2].tag = YARD_TAG_INT;
    args[0].u.tensor = out.c(), args[1].u.tensor = x.c();
    yard_call_t* const call = c.c();
    const int32_t code = call->host->call_op(call->host->self, call, "copy", args, 3);
    return code == YARD_OK ? Status() : Status(Code::kInvalidArgument, call->error);
  };
  on_stack_of(kStack, [&] { expect_refused(call()); });
}

// A frozen handle does not count its calls. They are refused near the end of the stack.
TEST_F(Nesting, OfFrozenHandlesIsBoundedByTheStack) {
  std::optional<Frozen<Out, In, int>> frozen;
  frozen.emplace(freeze(copy.on(bare_.runtime), out_.view, x_.view).value());
  for (const bool typed : {true, false}) {
    const auto call_frozen = [&] {
      return typed ? (*frozen)(out_.view, x_.view, 0) : (*frozen)(0);
    };
    g_again = [&](auto&&...) { return call_frozen(); };
    for (const size_t stack : {kStack, kStack / 16})
      on_stack_of(stack, [&] { expect_refused(call_frozen()); });
  }
}

TEST_F(Nesting, LeavesRoomOnTheStack) {
  for (const size_t frame : {size_t{16} << 10, size_t{100} << 10}) {
    g_frame = frame;
    on_stack_of(kStack, [&] {
      const Status s = call();
      expect_refused(s);
      EXPECT_NE(s.to_string().find("the stack of the thread is full"), std::string::npos)
          << s.to_string();
    });
  }
  g_frame = 0;
  on_stack_of(kLargeFrames ? 2 << 20 : 256 << 10, [&] { expect_refused(call()); });
}

// Kernels retry after each refusal, and the runtime would try other kernels.
TEST_F(Nesting, EndsSoonWhateverKernelsDoAfterTheError) {
  bare_.add(plugin::Kernel::of<again>("copy", "again.too").backend("test").priority(50).d)
      .or_throw();
  Config config;
  config.settings.max_call_depth = 100;
  ASSERT_TRUE(bare_.runtime.rules().set(config).ok());
  g_reports = Reports::kNothing;
  g_again = [this](auto&&...) {
    call().ignore();
    return call();
  };
  on_stack_of(kStack, [&] { EXPECT_EQ(call().code(), Code::kWouldDeadlock); });
  EXPECT_LT(g_calls, 300'000u);
}

TEST_F(Nesting, LeavesTheThreadAsItWas) {
  bare_.add(kernel_of("copy", "plain", 7, 10)).or_throw();
  on_stack_of(kStack, [&] {
    expect_refused(call());
    // The outermost kernel ignores the error.
    g_again = [this](auto&&...) {
      if (g_depth == 2) return call().ok() ? Status() : Status();
      return call();
    };
    EXPECT_TRUE(call().ok());
    // If a kernel fails for another reason, another kernel serves the call.
    g_again = [](auto&&...) { return Status(Code::kKernelFailed, "on its own"); };
    t_ran = 0;
    EXPECT_TRUE(call().ok());
    EXPECT_EQ(t_ran, 7);
    g_again = [this](auto&&...) { return g_depth < 500 ? call() : Status(); };
    if (!kLargeFrames) {
      EXPECT_TRUE(call().ok());
    }
  });
}

TEST_F(Nesting, IsBoundedByTheRuleFile) {
  Config config;
  config.settings.max_call_depth = 20;
  ASSERT_TRUE(bare_.runtime.rules().set(config).ok());
  on_stack_of(kStack, [&] {
    const Status s = call();
    expect_refused(s);
    EXPECT_NE(s.to_string().find("expected at most 20 on a thread"), std::string::npos);
    EXPECT_EQ(g_deepest, 20);
    ASSERT_TRUE(bare_.runtime.rules().set(Config()).ok());
    call().ignore();
    EXPECT_GT(g_deepest, kLargeFrames ? 20 : 900);
  });
}

// ---- Functions ----

const Function<int(int)> deeper{"nesting", "deeper", [](int x) { return x; }};

class NestingOfFunctions : public FunctionTest {};

TEST_F(NestingOfFunctions, IsBounded) {
  int calls = 0;
  add(deeper, "again", [&](int x) {
    ++calls;
    return x == 0 ? 0 : deeper(x - 1);
  });
  const auto refused = [] {
    std::string why;
    on_stack_of(kStack, [&] {
      try {
        deeper(1'000'000);
      } catch (const Error& e) {
        EXPECT_EQ(e.status().code(), Code::kWouldDeadlock);
        why = e.status().to_string();
      }
    });
    return why;
  };
  EXPECT_NE(refused().find("function 'nesting/deeper': calls nest too deep"), std::string::npos);
  Config config;
  config.settings.max_call_depth = 20;
  ASSERT_TRUE(runtime().rules().set(config).ok());
  calls = 0;
  EXPECT_NE(refused().find("expected at most 20 on a thread"), std::string::npos);
  EXPECT_EQ(calls, 20);
  EXPECT_EQ(deeper(19), 0);
  // The refusal does not count as a failure of the implementation.
  EXPECT_EQ(provider("nesting/deeper", "again").failures, 0u);
}

}  // namespace
}  // namespace yard::testing::nesting
