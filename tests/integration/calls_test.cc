// SPDX-License-Identifier: Apache-2.0
// Tests calls by position and by name: mismatched signatures and arguments, memory that may or may
// not be shared, and the results of explain and resolve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dispatch/call.h"
#include "testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNorm =
    "norm(out!: T[*rows, d], x: T[*rows, d], w: T[d], bias?: T[d], eps: float = 1e-6, "
    "mode: enum{fast, exact} = fast, by: int = 3) where out may_alias x";

struct Given {
  double eps = 0;
  int64_t mode = -1, by = -1;
  bool bias = false;
  uint32_t flags = 0;
};
Given g_given;
int32_t take_note(yard_call_t* call, const yard_value_t* args, uint32_t) {
  g_given = {args[4].u.f, args[5].u.i, args[6].u.i, args[3].tag == YARD_TAG_TENSOR, call->flags};
  return leave_trace(call, args, 0);
}

class Calls : public ::testing::Test {
 protected:
  Calls() : bare_(kNorm) {
    yard_kernel_t k = kernel_of("norm", "a", 1);
    k.run = take_note;
    bare_.add(k).or_throw();
  }
  Status call(std::initializer_list<Arg> args) { return bare_.runtime.call("norm", args); }

  Bare bare_;
  float memory_[4][64] = {};
  TensorView out_{memory_[0], DType::f32, {4, 8}}, x_{memory_[1], DType::f32, {4, 8}};
  TensorView w_{memory_[2], DType::f32, {8}}, bias_{memory_[3], DType::f32, {8}};
};

TEST_F(Calls, ByPositionWithDefaults) {
  ASSERT_TRUE(call({out_, x_, w_}).ok());
  EXPECT_EQ(g_given.eps, 1e-6);
  EXPECT_EQ(g_given.mode, 0);
  EXPECT_EQ(g_given.by, 3);
  EXPECT_FALSE(g_given.bias);
  ASSERT_TRUE(call({out_, x_, w_, bias_, 0.5, "exact", 7}).ok());
  EXPECT_EQ(g_given.eps, 0.5);
  EXPECT_EQ(g_given.mode, 1);
  EXPECT_EQ(g_given.by, 7);
  EXPECT_TRUE(g_given.bias);
}

TEST_F(Calls, ByName) {
  ASSERT_TRUE(
      call({{"w", w_}, {"mode", "exact"}, {"x", x_}, {"out", out_}, {"bias", nullptr}}).ok());
  EXPECT_EQ(g_given.mode, 1);
  EXPECT_FALSE(g_given.bias);
  // An integer converts.
  ASSERT_TRUE(call({out_, x_, {"eps", 2}, {"w", w_}, {"bias", bias_}}).ok());
  EXPECT_EQ(g_given.eps, 2.0);
  EXPECT_TRUE(g_given.bias);
}

TEST_F(Calls, TheMessageNamesWhatIsWrong) {
  const TensorView other(memory_[1], DType::f32, {4, 9}), half(memory_[1], DType::f16, {4, 8});
  const struct {
    Status status;
    const char* part;
  } cases[] = {
      {call({out_, x_}), "'w'"},
      {call({out_, x_, w_, bias_, 1.0, "fast", 1, 2}), "got 8"},
      {call({out_, x_, w_, {"epsilon", 1.0}}), "eps"},
      {call({out_, x_, w_, {"x", x_}}), "x"},
      {call({out_, x_, w_, {"mode", "fasst"}}), "fast"},
      {call({out_, other, w_}), "[9]"},
      {call({out_, half, w_}), "f16"},
      {call({out_, x_, w_, {"by", "text"}}), "'by'"},
      {call({out_, x_, 5}), "'w'"},
      {call({nullptr, x_, w_}), "'out'"},
      {call({out_, x_, TensorView()}), "'w'"},
      {bare_.runtime.call("nrom", {out_}), "norm"},
  };
  for (const auto& c : cases) {
    EXPECT_FALSE(c.status.ok());
    EXPECT_EQ(c.status.error_class(), ErrorClass::kCaller) << c.status.to_string();
    EXPECT_THAT(c.status.to_string(), HasSubstr(c.part));
  }
}

TEST_F(Calls, ATensorWithElementsNeedsData) {
  const TensorView none(static_cast<void*>(nullptr), DType::f32, {4, 8});
  const TensorView empty(static_cast<void*>(nullptr), DType::f32, {0, 8});
  const Status s = call({out_, none, w_});
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("'x'"));
  EXPECT_TRUE(call({empty, empty, w_}).ok());
}

TEST_F(Calls, AnOutputMayAliasAnInputWhereTheSchemaAllowsIt) {
  ASSERT_TRUE(call({x_, x_, w_}).ok());
  EXPECT_EQ(g_given.flags & YARD_CALL_ALIASED, YARD_CALL_ALIASED);
  ASSERT_TRUE(call({out_, x_, w_}).ok());
  EXPECT_EQ(g_given.flags & YARD_CALL_ALIASED, 0u);
  // An output may not overlap another input or a part of its own.
  const TensorView shifted(memory_[1] + 8, DType::f32, {4, 8});
  EXPECT_EQ(call({shifted, x_, w_}).code(), Code::kInvalidArgument);
  const TensorView over_w(memory_[2], DType::f32, {1, 8}), x1(memory_[1], DType::f32, {1, 8});
  EXPECT_EQ(call({over_w, x1, w_}).code(), Code::kInvalidArgument);
  // Inputs may overlap each other.
  const TensorView row(memory_[1], DType::f32, {8});
  EXPECT_TRUE(call({out_, x_, row}).ok());
  // The rows of an output must be distinct memory.
  const TensorView same_rows(memory_[0], DType::f32, {4, 8}, {0, 1});
  EXPECT_EQ(call({same_rows, x_, w_}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(call({out_, TensorView(memory_[1], DType::f32, {4, 8}, {0, 1}), w_}).ok());
}

TEST_F(Calls, EmptyTensorsShareNothing) {
  const TensorView empty(memory_[1], DType::f32, {0, 8});
  ASSERT_TRUE(call({empty, empty, w_}).ok());
  EXPECT_EQ(g_given.flags & YARD_CALL_ALIASED, 0u);
  const auto e = bare_.runtime.explain("norm", {empty, empty, w_});
  ASSERT_TRUE(e.ok());
  EXPECT_EQ(e->call.find('&'), std::string::npos) << e->call;
}

// ---- Typed ----

TEST_F(Calls, TypedOnesAreCheckedAgainstTheSchemaAtFirstUseAndEveryTime) {
  constexpr Op<void(Out, In, In, OptIn, float, int, int)> right{"norm"};
  constexpr Op<void(Out, In, In, In, float, int, int)> not_optional{"norm"};
  constexpr Op<void(In, In, In, OptIn, float, int, int)> not_written{"norm"};
  constexpr Op<void(Out, In, In)> short_of{"norm"};
  constexpr Op<void()> empty{"norm"};
  EXPECT_TRUE(right.on(bare_.runtime)(out_, x_, w_, nullptr, 1.f, 1, 2).ok());
  for (int i = 0; i < 3; ++i) {
    const Status a = not_optional.on(bare_.runtime)(out_, x_, w_, w_, 1.f, 1, 2);
    EXPECT_EQ(a.code(), Code::kInvalidArgument);
    EXPECT_THAT(a.to_string(), HasSubstr("expected OptIn"));
    EXPECT_THAT(not_written.on(bare_.runtime)(out_, x_, w_, w_, 1.f, 1, 2).to_string(),
                HasSubstr("'out'"));
    EXPECT_THAT(short_of.on(bare_.runtime)(out_, x_, w_).to_string(), HasSubstr("3 parameters"));
    EXPECT_THAT(empty.on(bare_.runtime)().to_string(), HasSubstr("0 parameters"));
  }
  constexpr Op<void(Out, In)> unknown{"no_such_op"};
  EXPECT_EQ(unknown.on(bare_.runtime)(out_, x_).code(), Code::kUnknownOp);
  EXPECT_EQ(unknown(out_, x_).code(), Code::kUnknownOp);
}

TEST_F(Calls, AnOpReplacedWithAnotherSignatureIsAnErrorForOldCallSites) {
  constexpr Op<void(Out, In, In, OptIn, float, int, int)> op{"norm"};
  const auto on = op.on(bare_.runtime);
  ASSERT_TRUE(on(out_, x_, w_, nullptr, 1.f, 1, 2).ok());
  Changes c;
  c.remove_op("norm")
      .add_op(op_of("norm(out!: T[m, d], x: T[m, d])"))
      .add_kernel(kernel_of("norm", "a", 5));
  ASSERT_TRUE(bare_.runtime.apply(std::move(c)).ok());
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(on(out_, x_, w_, nullptr, 1.f, 1, 2).code(), Code::kInvalidArgument);
  EXPECT_TRUE(bare_.runtime.call("norm", {out_, x_}).ok());
  Changes back;
  back.remove_op("norm").add_op(op_of(kNorm)).add_kernel(kernel_of("norm", "a", 6));
  ASSERT_TRUE(bare_.runtime.apply(std::move(back)).ok());
  ASSERT_TRUE(on(out_, x_, w_, nullptr, 1.f, 1, 2).ok());
  EXPECT_EQ(t_ran, 6);
}

TEST_F(Calls, ATypedOpFollowsAnOpThatGetsOtherParameters) {
  Changes c;
  c.add_op(op_of("tick(x~: f32[n])")).add_kernel(kernel_of("tick", "a", 9));
  ASSERT_TRUE(bare_.runtime.apply(std::move(c)).ok());
  constexpr Op<void(InOut)> tick{"tick"};
  const auto on = tick.on(bare_.runtime);
  ASSERT_TRUE(on(w_).ok());
  EXPECT_EQ(t_ran, 9);
  Changes grown;
  grown.remove_op("tick").add_op(op_of("tick(x~: f32[n], by: int)"));
  grown.add_kernel(kernel_of("tick", "a", 10));
  ASSERT_TRUE(bare_.runtime.apply(std::move(grown)).ok());
  EXPECT_EQ(on(w_).code(), Code::kInvalidArgument);
  EXPECT_EQ(t_ran, 9);
}

// ---- Packed ----

TEST_F(Calls, PackedOnesNeedNoFacts) {
  Status why;
  detail::Site* site = bare_.runtime.core().sites.attach("norm", dispatch::kPackedLetters, &why);
  ASSERT_NE(site, nullptr);
  yard_tensor_t out = out_.c(), x = x_.c(), w = w_.c();
  out.facts = x.facts = w.facts = 0;
  x.strides = nullptr;
  yard_value_t args[7]{};
  const auto set = [&](int i, const yard_tensor_t& t) {
    args[i].tag = YARD_TAG_TENSOR, args[i].u.tensor = &t;
  };
  const auto packed = [&](uint32_t count) {
    return Status::adopt(dispatch::call(site, {args, count}));
  };
  set(0, out), set(1, x), set(2, w);
  args[4] = Value(0.5).c(), args[5] = Value(1).c(), args[6] = Value(2).c();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(packed(7).ok());
  EXPECT_EQ(g_given.eps, 0.5);
  EXPECT_EQ(out.facts, 0u);  // the call leaves the caller's struct alone
  EXPECT_EQ(bare_.runtime.stats(false).plans, 1u);
  w.ndim = 77;
  EXPECT_EQ(packed(7).code(), Code::kInvalidArgument);
  EXPECT_EQ(packed(6).code(), Code::kInvalidArgument);
  EXPECT_EQ(packed(0).code(), Code::kInvalidArgument);
  args[5].tag = 99;
  EXPECT_EQ(packed(7).code(), Code::kInvalidArgument);
}

// A verifier that makes the call that it is asked about.
Runtime* g_asked = nullptr;
int32_t asks_itself(const yard_query_t*, yard_verdict_t*) {
  static float m[2][8];
  const TensorView out(m[0], DType::f32, {8}), x(m[1], DType::f32, {8});
  return g_asked->call("copy", {out, x}).ok() ? YARD_OK : YARD_DECLINED;
}

TEST(Verifiers, RecursiveSelectionEnds) {
  Bare bare;
  yard_kernel_t k = kernel_of("copy", "curious", 1, 9);
  k.verify = asks_itself;
  bare.add(k).or_throw();
  bare.add(kernel_of("copy", "plain", 2, 1)).or_throw();
  g_asked = &bare.runtime;
  const Floats out(8), x(8);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(bare.runtime.call("copy", {out.view, x.view}).ok());
}

// ---- Explanations ----

TEST_F(Calls, ExplainAndResolveNameTheKernelThatRuns) {
  const yard_limit_t wide = plugin::multiple_of("d", 16), narrow = plugin::at_most("rows", 2);
  yard_kernel_t b = kernel_of("norm", "b", 2, 300), c = kernel_of("norm", "c", 3, 400);
  b.limits = &wide, b.limit_count = 1, c.limits = &narrow, c.limit_count = 1;
  ASSERT_TRUE(bare_.add(b).ok());
  ASSERT_TRUE(bare_.add(c).ok());
  const char* const ids[] = {"", "a", "b", "c"};
  float big[3][64 * 64] = {};
  for (int64_t rows : {1, 2, 3, 64})
    for (int64_t d : {8, 16, 64}) {
      const TensorView out(big[0], DType::f32, {rows, d}), x(big[1], DType::f32, {rows, d});
      const TensorView w(big[2], DType::f32, {d});
      ASSERT_TRUE(call({out, x, w}).ok());
      const std::string shape = "f32[" + std::to_string(rows) + "," + std::to_string(d) + "]";
      const std::string spec = "norm(" + shape + ", f32[" + std::to_string(d) + "])";
      EXPECT_EQ(bare_.runtime.resolve("norm", {out, x, w}).value().kernel, ids[t_ran]);
      EXPECT_EQ(bare_.runtime.resolve(spec).value().kernel, ids[t_ran]) << spec;
      const Explanation e = bare_.runtime.explain("norm", {out, x, w}).value();
      EXPECT_EQ(e.selected, ids[t_ran]);
      EXPECT_EQ(e.candidates.size(), 3u);
      EXPECT_EQ(e.candidates[0].verdict, "selected");
    }
}

TEST_F(Calls, AnExplainedCallCanBeExplainedFromItsText) {
  const std::string text = bare_.runtime.explain("norm", {x_, x_, w_, {"by", 5}}).value().call;
  EXPECT_THAT(text, HasSubstr("out=&x"));
  const Explanation e = bare_.runtime.explain(text).value();
  EXPECT_EQ(e.call, text);
  EXPECT_EQ(e.selected, "a");
}

TEST_F(Calls, NoKernelIsAnErrorWithEveryReason) {
  ASSERT_TRUE(bare_.remove("norm", "a").ok());
  const yard_limit_t wide = plugin::multiple_of("d", 16);
  yard_kernel_t b = kernel_of("norm", "b", 2);
  b.limits = &wide, b.limit_count = 1;
  ASSERT_TRUE(bare_.add(b).ok());
  for (const Status& s :
       {call({out_, x_, w_}), Status(bare_.runtime.resolve("norm", {out_, x_, w_}).status())}) {
    EXPECT_EQ(s.code(), Code::kNoKernel);
    EXPECT_THAT(s.to_string(), HasSubstr("b: "));
    EXPECT_THAT(s.to_string(), HasSubstr("8"));
  }
  EXPECT_TRUE(bare_.runtime.explain("norm", {out_, x_, w_}).value().selected.empty());
}

TEST_F(Calls, OutputsAreInferred) {
  const auto views = bare_.runtime.infer("norm", {x_, w_}).value();
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].dtype(), DType::f32);
  EXPECT_THAT(views[0].shape(), ::testing::ElementsAre(4, 8));
}

}  // namespace
}  // namespace yard::testing
