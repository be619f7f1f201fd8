// SPDX-License-Identifier: Apache-2.0
// Tests calls from text, calls from arguments, and conversions between the two.
#include "op/call.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "op/facts.h"
#include "op/testing.h"

namespace yard::op {
namespace {

Result<Call> made(const Program& p, std::string_view text, const yard_op_t* op = nullptr) {
  return Call::from_spec(p, parse_call_spec(text).value(), op);
}
std::string error_of_call(const Program& p, std::string_view text) {
  const Result<Call> c = made(p, text);
  return c.ok() ? "" : std::string(c.status().message());
}
// Returns the canonical text of a call.
std::string again(const Program& p, std::string_view text) {
  const Result<Call> c = made(p, text);
  return c.ok() ? to_string(c->to_spec(p)) : c.status().to_string();
}

TEST(Call, FillsInDefaultsAndOutputs) {
  const Program p = compiled(kRmsNorm);
  const Call c = made(p, "rms_norm(f32[8,64], f32[64])@cpu").value();
  ASSERT_EQ(c.count(), 4u);
  const yard_value_t* a = c.args();
  EXPECT_EQ(brief(*a[0].u.tensor), "f32[8,64]");
  EXPECT_EQ(a[0].u.tensor->data, nullptr);
  EXPECT_EQ(a[0].u.tensor->facts, facts_of(a[0].u.tensor));
  EXPECT_EQ(a[0].u.tensor->facts, a[1].u.tensor->facts);
  EXPECT_EQ(a[3].u.f, 1e-6);
  EXPECT_EQ(p.fits(a), 0);
  EXPECT_EQ(c.flags(), 0u);
  EXPECT_EQ(c.device(), Device{});
}

// Callers pass f32 numbers as doubles.
TEST(Call, AFloatHasTheShortestTextThatGivesTheSameFloat) {
  const Program p = compiled(kRmsNorm);
  Values v;
  const auto text_of = [&](double eps) {
    const yard_value_t args[] = {v.f32({8, 64}), v.f32({8, 64}), v.f32({64}), number(eps)};
    return to_string(Call::capture(p, args).to_spec(p).args[2].value);
  };
  EXPECT_EQ(text_of(double{1e-6f}), "1e-6");
  EXPECT_EQ(text_of(1e-6), "1e-6");
  EXPECT_EQ(text_of(double{0.1f}), "0.1");
  EXPECT_EQ(text_of(double{3.4028235e38f}), "3.4028235e38");
  EXPECT_EQ(text_of(1e300), "1e300");
  EXPECT_EQ(text_of(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(text_of(double{1.0f / 3}), "0.33333334");
  EXPECT_EQ(text_of(-0.0), "-0.0");
  EXPECT_EQ(text_of(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(text_of(std::nan("")), "nan");
  for (const float f : {1e-6f, 1e-5f, 0.3f, 1e-45f, 16777216.0f, 0.044715f, 3.14159274f})
    EXPECT_EQ(std::strtof(text_of(double{f}).c_str(), nullptr), f);
}

TEST(Call, CanonicalText) {
  const Program p = compiled(kRmsNorm);
  EXPECT_EQ(again(p, "rms_norm(f32[8,64], f32[64])"), "rms_norm(f32[8,64], f32[64], eps=1e-6)@cpu");
  EXPECT_EQ(again(p, "rms_norm(f32[8,64], f32[64], 1)@cuda:1+inference{b=c}"),
            "rms_norm(f32[8,64], f32[64], eps=1.0)@cuda:1+inference{b=c}");
  EXPECT_EQ(again(p, "rms_norm(weight=f32[64], x=f32[8,64;128,1]%16, out=f32[8,64])"),
            "rms_norm(f32[8,64;128,1]%16, f32[64], eps=1e-6)@cpu");
  EXPECT_EQ(again(p, "rms_norm(f32[8,64], f32[64], out=f32[8,64;64,1]%32)"),
            "rms_norm(f32[8,64], f32[64], eps=1e-6, out=f32[8,64]%32)@cpu");
  EXPECT_EQ(again(p, "rms_norm(f32[8,64], f32[64], out=&x)"),
            "rms_norm(f32[8,64], f32[64], eps=1e-6, out=&x)@cpu");
  EXPECT_EQ(again(p, "rms_norm(f32[8,64]@cuda, f32[64]@cuda)@cpu"),
            "rms_norm(f32[8,64], f32[64], eps=1e-6)@cuda")
      << "the call is on the device of its tensors";
  const Program gelu = compiled(kGeluAndMul);
  EXPECT_EQ(again(gelu, "gelu_and_mul(bf16[2,8])"),
            "gelu_and_mul(bf16[2,8], approximate=none)@cpu");
  EXPECT_EQ(again(gelu, "gelu_and_mul(bf16[2,8], \"tanh\")"),
            "gelu_and_mul(bf16[2,8], approximate=tanh)@cpu");
}

TEST(Call, Optionals) {
  const Program p = compiled(kRotary);
  const std::string tail = ", rotary_dim=0, base=10000.0, style=half)@cpu";
  EXPECT_EQ(again(p, "rotary_embedding(f32[4,8,64], none, i64[4])"),
            "rotary_embedding(f32[4,8,64], positions=i64[4]" + tail);
  EXPECT_EQ(again(p, "rotary_embedding(f32[4,8,64], f32[4,2,64], i64[4], none, none)"),
            "rotary_embedding(f32[4,8,64], f32[4,2,64], i64[4]" + tail);
  const Program lse = compiled("f(out!: T[n], lse!?: f32[n], x: T[n])");
  EXPECT_EQ(again(lse, "f(f16[3])"), "f(f16[3])@cpu");
  EXPECT_EQ(again(lse, "f(f16[3], lse=f32[3])"), "f(f16[3], lse=f32[3])@cpu");
}

TEST(Call, ListsAndStrings) {
  const Program p = compiled(R"(f(out!: T[n], xs: T[_][], mode: string = "a b", n: int))");
  EXPECT_EQ(again(p, "f([f32[2], f32[3]], n=5)"), "f([f32[2], f32[3]], mode=\"a b\", n=5)@cpu");
  EXPECT_EQ(error_of_call(p, "f([], mode=word, n=5)"),
            "f: output 'out': no given argument determines the dtype T");
  const Program split = compiled("split(outs!: T[n][], x: T[n])");
  EXPECT_EQ(again(split, "split(f32[2], outs=[f32[2], f32[2]])"),
            "split(f32[2], outs=[f32[2], f32[2]])@cpu");
}

TEST(Call, AliasedOutputsAreTheSameTensor) {
  const Program p = compiled(kRmsNorm);
  const Call c = made(p, "rms_norm(f32[8,64], f32[64], out=&x)").value();
  EXPECT_EQ(c.args()[0].u.tensor, c.args()[1].u.tensor);
  EXPECT_EQ(c.flags(), YARD_CALL_ALIASED);
  const Call copy = Call::capture(p, c.args(), c.flags());
  EXPECT_EQ(copy.flags(), YARD_CALL_ALIASED);
  EXPECT_EQ(to_string(copy.to_spec(p)), to_string(c.to_spec(p)));
}

TEST(Call, Errors) {
  const Program p = compiled(kRmsNorm);
  EXPECT_EQ(error_of_call(p, "add(f32[2])"), "invalid call: expected op 'rms_norm', got 'add'");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64])"),
            "rms_norm: argument 'weight' (T[hidden]) is missing");
  EXPECT_EQ(
      error_of_call(p, "rms_norm(f32[8,64], f32[63])"),
      "rms_norm: invalid argument 'weight': expected f32[64] (hidden = 64 from 'x'), got f32[63]");
  EXPECT_EQ(
      error_of_call(p, "rms_norm(f32[8,64], f32[64], out=f32[9,64])"),
      "rms_norm: invalid argument 'out': expected f32[8,64] (*rows = [8] from 'x'), got f32[9,64]");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], f32[64], esp=1)"),
            "rms_norm: has no parameter 'esp'; did you mean 'eps'?");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], f32[64], out=&weight)"),
            "rms_norm: argument 'out': the schema has no clause 'out may_alias weight'");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], weight=&x)"),
            "rms_norm: argument 'weight' (T[hidden]) is missing");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], f32[64], eps=&x)"),
            "rms_norm: argument 'eps': only an output given by name can be '&x'");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], f32[64]@cuda)"),
            "rms_norm: invalid argument 'weight': expected a tensor on cpu like 'x', got f32[64] "
            "on cuda");
  EXPECT_EQ(error_of_call(p, "rms_norm(f32[8,64], f32[64], eps=yes)"),
            "rms_norm: invalid argument 'eps': expected float, got a string");
  EXPECT_EQ(
      error_of_call(p, "rms_norm(f32[4294967296,4294967296], f32[64])"),
      "rms_norm: invalid argument 'x': expected T[*rows, hidden], got a tensor that cannot be "
      "read: a size "
      "that overflows 63 bits");
  const Program split = compiled("split(outs!: T[n][], x: T[n])");
  EXPECT_EQ(error_of_call(split, "split(f32[2])"),
            "split: argument 'outs': a list of outputs cannot be inferred: give it by name");
}

int32_t three(yard_call_t*, const yard_value_t*, uint32_t, yard_shape_t* outputs, uint32_t) {
  outputs[0].rank = 1;
  outputs[0].dims[0] = 3;
  return YARD_OK;
}

TEST(Call, ShapeFunction) {
  const Program p = compiled("f(out!: T[m], x: T[n])");
  yard_op_t op{};
  op.size = sizeof op;
  op.infer = three;
  const Call c = made(p, "f(f32[8])", &op).value();
  EXPECT_EQ(to_string(c.to_spec(p)), "f(f32[8], out=f32[3])@cpu");
  EXPECT_TRUE(made(p, "f(f32[8], out=f32[3])").ok()) << "given, it need not be inferred";
  EXPECT_FALSE(made(p, "f(f32[8])").ok());
}

TEST(Call, CaptureOutlivesItsArguments) {
  std::optional<Call> c;
  std::optional<Program> p = compiled("f(out!: T[n], x: T[n], s: string)");
  {
    Values v;
    std::string s = "a string long enough to live on the heap";
    const std::vector<yard_value_t> args = {v.f32({4}), v.tensor(DType::f32, {4}, {2}), text(s)};
    c = Call::capture(*p, args.data(), YARD_CALL_DETERMINISTIC, {{"k", "v"}});
    EXPECT_EQ(c->args()[1].u.tensor->facts >> 32, args[1].u.tensor->facts >> 32);
  }
  EXPECT_EQ(c->args()[0].u.tensor->data, nullptr);
  EXPECT_EQ(std::string_view(c->args()[2].u.string, c->args()[2].count),
            "a string long enough to live on the heap");
  EXPECT_EQ(c->flags(), YARD_CALL_DETERMINISTIC);
  EXPECT_EQ(c->labels(), (Labels{{"k", "v"}}));
  const Call copy = *c;
  c.reset();
  EXPECT_EQ(copy.args()[1].u.tensor->strides[0], 2);
}

}  // namespace
}  // namespace yard::op
