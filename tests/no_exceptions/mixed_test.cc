// SPDX-License-Identifier: Apache-2.0
// Mixes object files with and without exceptions in one program. It is linked twice, in both
// orders, because the linker keeps the first copy of a function that both files contain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <yard/plugin.hpp>

#include "calls.h"

namespace yard::testing {

void throw_bad_width() { throw BadWidth(); }

namespace {

using ::testing::HasSubstr;

// The exceptions of this kernel reach the library, as those of plugins in other languages may.
int32_t scale_typed(yard_call_t*, const yard_tensor_t* out, const yard_tensor_t* x, double by) {
  if (by < 0) throw std::runtime_error("a negative factor");
  for (int64_t i = 0; i < x->shape[0]; ++i)
    static_cast<float*>(out->data)[i] = static_cast<float>(by) * static_cast<float*>(x->data)[i];
  return YARD_OK;
}
int32_t scale_packed(yard_call_t* call, const yard_value_t* args, uint32_t) {
  return scale_typed(call, args[0].u.tensor, args[1].u.tensor, args[2].u.f);
}

class Mixed : public ::testing::TestWithParam<const Calls*> {
 protected:
  void SetUp() override {
    Runtime& runtime = Runtime::shared();
    runtime.reset().or_throw();
    runtime.health().set_settings({.enabled = false}).or_throw();
    Changes c;
    c.add_backend(plugin::Backend("throwing")).add_backend(plugin::Backend("chained"));
    c.add_op(plugin::OpDef("mixed_scale(out!: T[n], x: T[n], by: float)"));
    yard_kernel_t k{};
    k.size = sizeof k, k.op = "mixed_scale", k.id = "default.throwing", k.backend = "throwing";
    k.kind = YARD_KIND_DEFAULT, k.run = scale_packed, k.typed_signature = "ttf";
    k.typed = reinterpret_cast<void (*)(void)>(&scale_typed);
    c.add_kernel(k);
    runtime.apply(std::move(c)).value();
  }
  // Adds a backend for a function that comes before earlier ones.
  template <class S, class F, class V = detail::NoVerifier>
  void add(const Function<S>& f, const char* backend, F run, V verify = {}) {
    Changes c;
    implement(c, f, backend, std::move(run), std::move(verify), {.priority = ++priority_});
    Runtime::shared().apply(std::move(c)).value();
  }

  const Calls& calls_ = *GetParam();
  int priority_ = 0;
  std::vector<float> memory_[2] = {std::vector<float>(8), std::vector<float>(8, 3.0f)};
  TensorView out_ = view(memory_[0], {8}), x_ = view(memory_[1], {8});
};
INSTANTIATE_TEST_SUITE_P(Calls, Mixed, ::testing::Values(&kWithExceptions, &kWithoutExceptions),
                         [](const auto& p) {
                           return p.param == &kWithExceptions ? "WithExceptions"
                                                              : "WithoutExceptions";
                         });

// There are more calls than a thread has inline slots, so a slot that is not returned shows.
TEST_P(Mixed, AKernelThatThrowsFailsItsCall) {
  const auto expect = [](const Status& s) {
    EXPECT_EQ(s.code(), Code::kKernelFailed);
    EXPECT_EQ(s.error_class(), ErrorClass::kFault);
    EXPECT_THAT(s.to_string(), HasSubstr("a negative factor"));
  };
  const BoundScale bound = calls_.bind(out_, x_).value();
  const FrozenScale frozen = freeze(scale, out_, x_).value();
  const OwnTensor own_out{std::vector<float>(8), {8}}, own_x{memory_[1], {8}};
  for (int i = 0; i < 1000; ++i) {
    expect(calls_.typed(out_, x_, -1));
    expect(calls_.own(own_out, own_x, -1));
    expect(calls_.bound(bound, out_, x_, -1));
    expect(calls_.frozen(frozen, out_, x_, -1));
    const double by = i;
    ASSERT_TRUE(calls_.typed(out_, x_, by).ok());
    ASSERT_EQ(memory_[0][7], 3 * by);
    ASSERT_TRUE(calls_.own(own_out, own_x, by + 1).ok());
    ASSERT_EQ(own_out.data[7], 3 * by + 3);
    ASSERT_TRUE(calls_.bound(bound, out_, x_, by + 2).ok());
    ASSERT_EQ(memory_[0][7], 3 * by + 6);
    ASSERT_TRUE(calls_.frozen(frozen, out_, x_, by + 3).ok());
    ASSERT_EQ(memory_[0][7], 3 * by + 9);
  }
}

TEST_P(Mixed, ACallInAScopeDoesWhatTheScopeSays) {
  const BoundScale bound = calls_.bind(out_, x_).value();
  const ScopedPolicy in(Scope().deny_kernels({"default.throwing"}));
  EXPECT_EQ(calls_.typed(out_, x_, 1).code(), Code::kNoKernel);
  EXPECT_EQ(calls_.bound(bound, out_, x_, 1).code(), Code::kNoKernel);
}

TEST_P(Mixed, ACallThatDoesNotFitIsRefused) {
  const TensorView shorter = view(memory_[0], {7});
  EXPECT_EQ(calls_.typed(shorter, x_, 1).code(), Code::kInvalidArgument);
}

TEST_P(Mixed, AfterAFunctionThatThrowsTheNextOneRuns) {
  EXPECT_EQ(calls_.twice(4), 8);
  add(twice, "throwing", [](int64_t x) -> int64_t {
    if (x < 0) throw std::runtime_error("negative");
    return 100 * x;
  });
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(calls_.twice(4), 400);
    ASSERT_EQ(calls_.twice(-4), -8);
  }
}

int64_t times_100(int64_t x) { return 100 * x; }
Verdict is_small(int64_t x) {
  if (x < 0) throw std::runtime_error("negative");
  if (x > 9) return Reject("too large");
  return Accept();
}

TEST_P(Mixed, AVerifierThatThrowsRefuses) {
  add(twice, "throwing", times_100, is_small);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(calls_.twice(4), 400);
    ASSERT_EQ(calls_.twice(-4), -8);
    ASSERT_EQ(calls_.twice(40), 80);
  }
}

TEST_P(Mixed, AVerifierThatThrowsRefusesInAChain) {
  add(chain, "throwing", times_100, is_small);
  add(chain, "chained", [](Next<int64_t(int64_t)> next, int64_t x) { return next(x) + 1; });
  Runtime::shared().functions().activate("throwing").or_throw();
  Runtime::shared().functions().activate("chained").or_throw();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(calls_.chain(4), 401);
    ASSERT_EQ(calls_.chain(-4), -7);
    ASSERT_EQ(calls_.chain(40), 81);
  }
}

// This also holds if the linker has kept functions of the other file.
TEST(Mixed, AnExceptionDestroysTheArgumentsOfCallsInFilesWithExceptions) {
  Runtime::shared().reset().or_throw();
  const auto call = [] { kWithExceptions.width(-1); };
  EXPECT_THROW(call(), BadWidth);
  EXPECT_EQ(Counted::alive, 0);
  Changes c;
  c.add_backend(plugin::Backend("throwing"));
  implement(c, width, "throwing", [](Counted, int64_t) -> int64_t { throw BadWidth(); });
  Runtime::shared().apply(std::move(c)).value();
  for (int i = 0; i < 20; ++i) EXPECT_THROW(call(), BadWidth);
  EXPECT_EQ(Counted::alive, 0);
}

TEST(Mixed, WithoutExceptionsAnErrorEndsTheProgram) {
  const Status bad(Code::kNotFound, "no such thing");
  EXPECT_THROW(kWithExceptions.or_throw(bad), Error);
  EXPECT_THROW(kWithExceptions.value(bad), Error);
  kWithoutExceptions.or_throw(Status());
  EXPECT_EQ(kWithoutExceptions.value(3), 3);
  EXPECT_DEATH(kWithoutExceptions.or_throw(bad), "yard: not_found: no such thing");
  EXPECT_DEATH(kWithoutExceptions.value(bad), "yard: not_found: no such thing");
}

TEST(Mixed, APluginWithoutExceptionsReturnsCodes) {
  Runtime runtime;
  runtime.plugins().load(YARD_TEST_PLUGIN).or_throw();
  std::vector<float> memory(1 << 16, 1.0f);
  const TensorView x = view(memory, {1 << 16});
  const auto call = [&](int64_t add) { return runtime.call("mixed_add", {x, {"add", add}}); };
  ASSERT_TRUE(call(2).ok()) << call(2).to_string();
  EXPECT_EQ(memory[0], 3);
  EXPECT_EQ(memory.back(), 3);
  const Status refused = call(-1);
  EXPECT_EQ(refused.code(), Code::kKernelFailed);
  EXPECT_THAT(refused.to_string(), HasSubstr("-1 is negative"));
  const Status missing = runtime.call("mixed_state", {x});
  EXPECT_EQ(missing.code(), Code::kKernelFailed);
  EXPECT_THAT(missing.to_string(), HasSubstr("no option 'misspelt'"));
}

}  // namespace
}  // namespace yard::testing
