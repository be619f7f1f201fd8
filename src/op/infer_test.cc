// SPDX-License-Identifier: Apache-2.0
// Tests output shapes from inputs, and from the shape function if inputs do not determine them.
#include <gtest/gtest.h>

#include <cstdio>

#include "op/program.h"
#include "op/testing.h"

namespace yard::op {
namespace {

std::string shape_of(const OutputSpec& o) {
  if (!o.known) return "?";
  std::string out = std::string(to_string(o.dtype)) + "[";
  for (int i = 0; i < o.shape.rank; ++i)
    out += (i > 0 ? "," : "") + std::to_string(o.shape.dims[i]);
  return out + "]";
}

// Returns all outputs, or the error.
std::string inferred(std::string_view schema, const std::vector<yard_value_t>& args,
                     const yard_op_t* op = nullptr) {
  const Program p = Program::compile(schema).value();
  const auto result = p.infer_outputs(args.data(), op);
  if (!result.ok()) return std::string(result.status().message());
  std::string out;
  for (const OutputSpec& o : *result) out += (out.empty() ? "" : " ") + shape_of(o);
  return out;
}

TEST(Infer, FromInputs) {
  Values v;
  EXPECT_EQ(inferred(kRmsNorm, {none(), v.f32({2, 3, 4}), v.f32({4}), number(0)}), "f32[2,3,4]");
  EXPECT_EQ(inferred(kSiluAndMul, {none(), v.tensor(DType::bf16, {5, 8})}), "bf16[5,4]");
  EXPECT_EQ(inferred("f(out!: i64[n, 2*m, 7], x: T[m], n: int)", {none(), v.f32({3}), integer(5)}),
            "i64[5,6,7]");
  EXPECT_EQ(inferred("f(a!: T[], b!?: T[n], x: T[n])", {none(), none(), v.f32({3})}),
            "f32[] f32[3]");
  EXPECT_EQ(inferred("f(out!: T[n], xs: T[n][])", {none(), v.list({v.f32({3}), v.f32({3})})}),
            "f32[3]");
  EXPECT_EQ(inferred(kRotary, {v.f32({1, 2, 4}), none(), none(), none(), none(), integer(0),
                               number(0), integer(0)}),
            "")
      << "no pure output";
}

TEST(Infer, Broadcast) {
  Values v;
  const char* add = "add(out!: T[*r, n], a: T[*r|1, n|1], b: T[*r|1, n|1])";
  EXPECT_EQ(inferred(add, {none(), v.f32({3, 1, 4}), v.f32({2, 1})}), "f32[3,2,4]");
  EXPECT_EQ(inferred(add, {none(), v.f32({1}), v.f32({5})}), "f32[5]");
  EXPECT_EQ(inferred(add, {none(), v.f32({1, 1}), v.f32({0, 1})}), "f32[0,1]");
}

TEST(Infer, WhatInputsDoNotSay) {
  Values v;
  EXPECT_EQ(inferred("f(out!: T[n], x: T[], y?: T[n])", {none(), v.f32({}), none()}),
            "f: output 'out': no given argument determines n");
  EXPECT_EQ(inferred("f(out!: T[], y?: T[n])", {none(), none()}),
            "f: output 'out': no given argument determines the dtype T");
  EXPECT_EQ(inferred("f(out!?: T[n], x: T[], y?: T[n])", {none(), v.f32({}), none()}), "?");
  EXPECT_EQ(inferred("f(outs!: T[n][], x: T[n])", {none(), v.f32({3})}), "?");
  EXPECT_EQ(inferred("f(out!: T[n], x: T[], n: int)", {none(), v.f32({}), integer(-1)}),
            "f: output 'out': n = -1 gives no valid size");
  EXPECT_EQ(inferred("f(out!: T[*r, a, b], x: T[*r], y: T[a, b])",
                     {none(), v.f32({1, 1, 1, 1, 1, 1, 1}), v.f32({1, 1})}),
            "f: output 'out': would have 9 dimensions, the limit is 8");
}

int32_t half(yard_call_t* call, const yard_value_t* args, uint32_t count, yard_shape_t* outputs,
             uint32_t output_count) {
  if (count != 2 || output_count != 1 || *static_cast<int*>(call->self) != 42) return YARD_FATAL;
  const int64_t n = args[1].u.tensor->shape[0];
  if (n % 2 != 0) {
    std::snprintf(call->error, call->error_size, "%d is odd", static_cast<int>(n));
    return YARD_CALLER;
  }
  outputs[0].rank = n == 6 ? 99 : 1;
  outputs[0].dims[0] = n == 4 ? -1 : n / 2;
  return YARD_OK;
}

TEST(Infer, ADtypeOfOutputsAloneIsTheFirstOfItsSet) {
  Values v;
  const char* argmax = "argmax(out!: I[*r], x: T[*r, d]) where I in {i32, i64}";
  EXPECT_EQ(inferred(argmax, {none(), v.f32({2, 3})}), "i32[2]");
  EXPECT_FALSE(compiled(argmax).inputs_determine(0));
  EXPECT_TRUE(compiled(kRmsNorm).inputs_determine(0));
  EXPECT_EQ(inferred("f(out!: I[n], x: f32[n], i?: I[n]) where I in {i32, i64}",
                     {none(), v.f32({3}), none()}),
            "f: output 'out': no given argument determines the dtype I");
}

TEST(Infer, DimensionsOfOutputsAloneAreGivenByTheCaller) {
  Values v;
  const Program p = compiled(kTopK);
  EXPECT_TRUE(p.needs_shape_function());
  EXPECT_FALSE(p.inputs_determine(0));
  std::vector<yard_value_t> args = {v.f32({2, 3}), v.tensor(DType::i64, {2, 3}), v.f32({2, 8})};
  EXPECT_TRUE(p.explain_mismatch(args.data(), 3).ok());
  args[1] = v.tensor(DType::i64, {2, 4});
  EXPECT_FALSE(p.explain_mismatch(args.data(), 3).ok());
}

TEST(Infer, ShapeFunction) {
  Values v;
  const char* schema = "f(out!: T[m], x: T[n])";
  EXPECT_TRUE(Program::compile(schema)->needs_shape_function());
  EXPECT_TRUE(Program::compile("f(out!: T[_], x: T[n])")->needs_shape_function());
  EXPECT_FALSE(Program::compile(kRmsNorm)->needs_shape_function());
  int self = 42;
  yard_op_t op{};
  op.size = sizeof op;
  op.self = &self;
  op.infer = half;
  EXPECT_EQ(inferred(schema, {none(), v.f32({8})}, &op), "f32[4]");
  EXPECT_EQ(inferred(schema, {none(), v.f32({7})}, &op), "f: its shape function failed: 7 is odd");
  EXPECT_EQ(inferred(schema, {none(), v.f32({6})}, &op),
            "f: output 'out': the shape function gave rank 99");
  EXPECT_EQ(inferred(schema, {none(), v.f32({4})}, &op),
            "f: output 'out': the shape function gave the size -1");
  EXPECT_EQ(
      inferred(schema, {none(), v.f32({8})}),
      "f: the inputs do not determine the shape of every output, and the op has no shape function; "
      "give the outputs");
}

}  // namespace
}  // namespace yard::op
