// SPDX-License-Identifier: Apache-2.0
// Tests the messages for calls that do not fit.
#include <gtest/gtest.h>

#include "op/program.h"
#include "op/testing.h"

namespace yard::op {
namespace {

std::string why(std::string_view schema, const std::vector<yard_value_t>& args) {
  const Program p = Program::compile(schema).value();
  const Status s = p.explain_mismatch(args.data(), static_cast<uint32_t>(args.size()));
  if (s.ok()) return "";
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_EQ(s.error_class(), ErrorClass::kCaller);
  return std::string(s.message());
}

TEST(Mismatch, Counts) {
  Values v;
  EXPECT_EQ(why(kRmsNorm, {v.f32({2, 4}), v.f32({2, 4})}),
            "rms_norm: takes 4 arguments (out, x, weight, eps), got 2: 'weight' is missing");
  EXPECT_EQ(why(kSiluAndMul, {v.f32({4}), v.f32({8}), number(1)}),
            "silu_and_mul: takes 2 arguments (out, x), got 3: 1 too many");
}

TEST(Mismatch, Kinds) {
  Values v;
  const yard_value_t x = v.f32({2, 4}), y = v.f32({2, 4}), w = v.f32({4});
  EXPECT_EQ(why(kRmsNorm, {x, y, w, integer(3)}),
            "rms_norm: invalid argument 'eps': expected float, got the integer 3");
  EXPECT_EQ(why(kRmsNorm, {x, y, number(1.5), number(0)}),
            "rms_norm: invalid argument 'weight': expected T[hidden], got the number 1.5");
  EXPECT_EQ(why(kRmsNorm, {x, none(), w, number(0)}),
            "rms_norm: invalid argument 'x': expected T[*rows, hidden], got nothing");
  yard_value_t null = x;
  null.u.tensor = nullptr;
  EXPECT_EQ(why(kRmsNorm, {x, null, w, number(0)}),
            "rms_norm: invalid argument 'x': expected T[*rows, hidden], got a null tensor");
  EXPECT_EQ(why(kGeluAndMul, {w, v.f32({8}), integer(2)}),
            "gelu_and_mul: invalid argument 'approximate': expected none or tanh (0 to 1), got 2");
  EXPECT_EQ(why("f(x: T[n], s: string, b: bool)", {w, w, boolean(true)}),
            "f: invalid argument 's': expected string, got a tensor f32[4]");
  EXPECT_EQ(why("f(x: T[n][])", {w}),
            "f: invalid argument 'x': expected T[n][], got a tensor f32[4]");
  EXPECT_EQ(why("f(x: T[n])", {v.list({w, w})}),
            "f: invalid argument 'x': expected T[n], got a list of 2 tensors");
}

TEST(Mismatch, TensorsThatCannotBeRead) {
  const auto message = [](const yard_tensor_t& t) {
    Values v;
    return why("f(x: T[*any])", {v.of(t)});
  };
  const std::string start =
      "f: invalid argument 'x': expected T[*any], got a tensor that cannot be read: ";
  const int64_t shape[] = {2, -3};
  yard_tensor_t t{};
  t.device = {1, 0};
  EXPECT_EQ(message(t), start +
                            "no dtype, as in a TensorView that was made without one, with more "
                            "than 8 dimensions or with strides of another rank");
  EXPECT_EQ(message(TensorView(&t, DType::f32, {1, 1, 1, 1, 1, 1, 1, 1, 1}).c()), message(t));
  t.dtype = {9, 8, 1};
  EXPECT_EQ(message(t), start + "an unknown dtype (code 9, bits 8, lanes 1)");
  t.dtype = to_dlpack(DType::f32);
  t.ndim = -1;
  EXPECT_EQ(message(t), start + "a negative rank (-1)");
  t.ndim = 9;
  EXPECT_EQ(message(t), start + "rank 9, above the limit of 8");
  t.ndim = 2;
  EXPECT_EQ(message(t), start + "no shape (a null pointer)");
  t.shape = shape;
  EXPECT_EQ(message(t), start + "a negative size (-3 in dimension 1)");
  t.device.type = 77;
  EXPECT_EQ(message(t), start + "a device out of range (type 77, index 0)");
  const int64_t huge[] = {1ll << 40, 1ll << 40};
  t.device.type = 1, t.shape = huge;
  EXPECT_EQ(message(t), start + "a size that overflows 63 bits");
  std::vector<float> ten(10);
  EXPECT_EQ(message(view(ten, {4, 8}).c()),
            start + "its shape needs 32 elements, and 10 are there");
  EXPECT_EQ(message(view(ten, {4, 8}).with_data(ten.data()).c()), message(view(ten, {4, 8}).c()));
  EXPECT_EQ(message(view(ten, {-4, -8}).c()), start + "a negative size (-4 in dimension 0)");
  EXPECT_EQ(message(view(ten, {1ll << 40, 11, 1ll << 23}).c()),
            start + "a size that overflows 63 bits");
  t.ndim = 1;
  EXPECT_EQ(message(t), start + "no facts, although it could be read");
}

TEST(Mismatch, DTypesAndDevices) {
  Values v;
  const yard_value_t o = v.f32({2, 4}), x = v.f32({2, 4}), w = v.f32({4});
  EXPECT_EQ(why(kRmsNorm, {o, x, v.tensor(DType::bf16, {4}), number(0)}),
            "rms_norm: invalid argument 'weight': expected f32[4] (T = f32 from 'x'), got bf16[4]");
  EXPECT_EQ(
      why(kRmsNorm, {v.tensor(DType::bf16, {2, 4}), x, w, number(0)}),
      "rms_norm: invalid argument 'out': expected f32[2,4] (T = f32 from 'x'), got bf16[2,4]");
  EXPECT_EQ(why(kRmsNorm, {o, x, v.tensor(DType::f32, {4}, {}, {2, 1}), number(0)}),
            "rms_norm: invalid argument 'weight': expected a tensor on cpu like 'out', got f32[4] "
            "on cuda:1");
  EXPECT_EQ(why("f(x: f16[n])", {w}),
            "f: invalid argument 'x': expected f16[n] (dtype f16), got f32[4]");
  EXPECT_EQ(why("f(x: T[n]) where T in {f16, bf16}", {w}),
            "f: invalid argument 'x': expected T in {f16, bf16}, got T = f32");
}

TEST(Mismatch, Dimensions) {
  Values v;
  const yard_value_t o = v.f32({2, 4}), x = v.f32({2, 4}), w = v.f32({4});
  EXPECT_EQ(why(kRmsNorm, {v.f32({8, 4096}), v.f32({8, 4096}), v.f32({2048}), number(0)}),
            "rms_norm: invalid argument 'weight': expected f32[4096] (hidden = 4096 from 'x'), got "
            "f32[2048]");
  EXPECT_EQ(
      why(kRmsNorm, {v.f32({3, 4}), x, w, number(0)}),
      "rms_norm: invalid argument 'out': expected f32[2,4] (*rows = [2] from 'x'), got f32[3,4]");
  EXPECT_EQ(why(kRmsNorm, {o, x, v.f32({1, 4}), number(0)}),
            "rms_norm: invalid argument 'weight': expected f32[4] (1 dimension), got f32[1,4]");
  EXPECT_EQ(
      why(kRmsNorm, {o, v.f32({}), w, number(0)}),
      "rms_norm: invalid argument 'x': expected T[*rows,hidden] (at least 1 dimension), got f32[]");
  EXPECT_EQ(why(kSiluAndMul, {v.f32({4}), v.f32({7})}),
            "silu_and_mul: invalid argument 'x': expected T[*rows,2*d] (7 is not a multiple of 2), "
            "got f32[7]");
  EXPECT_EQ(why(kSiluAndMul, {v.f32({4}), v.f32({10})}),
            "silu_and_mul: invalid argument 'out': expected f32[5] (d = 5 from 'x'), got f32[4]");
  EXPECT_EQ(why("f(x: T[128, n])", {v.f32({64, 2})}),
            "f: invalid argument 'x': expected T[128,n], got f32[64,2]");
  EXPECT_EQ(why("f(x: T[n], n: int)", {w, integer(5)}),
            "f: invalid argument 'x': expected T[5] (n = 5 from 'n'), got f32[4]");
  EXPECT_EQ(why("f(x: T[n], y: T[n|1])", {w, v.f32({3})}),
            "f: invalid argument 'y': expected f32[4|1] (n = 4 from 'x'), got f32[3]");
  EXPECT_EQ(why("f(x: T[*r], y: T[*r|1])", {v.f32({2, 3}), v.f32({2, 1, 3})}),
            "f: invalid argument 'y': expected f32[(2,3)|1] (*r = [2,3] from 'x'), got f32[2,1,3]");
}

TEST(Mismatch, Clauses) {
  Values v;
  EXPECT_EQ(why("f(x: T[n]) where n % 8 == 0", {v.f32({12})}),
            "f: expected n % 8 == 0, got n = 12");
  EXPECT_EQ(why("f(x: T[*r, n], k: int) where 2*r <= 3*k", {v.f32({2, 5, 7}), integer(1)}),
            "f: expected 2*r <= 3*k, got r = 10, k = 1");
  EXPECT_EQ(why("f(x: T[n, m]) where n % m == 0", {v.f32({12, 5})}),
            "f: expected n % m == 0, got n = 12, m = 5");
  EXPECT_EQ(why("f(x: T[n, m]) where n % m == 0", {v.f32({12, 0})}),
            "f: expected n % m == 0, got n = 12, m = 0");
  EXPECT_EQ(why("f(x: T[n, m]) where n % m == 0", {v.f32({0, 0})}), "");
  EXPECT_EQ(why("f(x: T[n], k: int) where n % k == 0", {v.f32({12}), integer(-4)}), "");
  const char* scaled = "f(x: T[n], scale?: f32[n]) where scale iff T in {i8, u8}";
  EXPECT_EQ(why(scaled, {v.tensor(DType::i8, {2}), none()}),
            "f: expected scale iff T in {i8, u8}, got T = i8 without 'scale'");
  EXPECT_EQ(why(scaled, {v.f32({2}), v.f32({2})}),
            "f: expected scale iff T in {i8, u8}, got T = f32 with 'scale'");
  EXPECT_EQ(why(scaled, {v.tensor(DType::u8, {2}), v.f32({2})}), "");
  EXPECT_EQ(why(scaled, {v.f32({2}), none()}), "");
  // The quick check compares the variable of the written tensor.
  EXPECT_EQ(why("f(out!: T[n], x: T[n], s?: f32[n]) where s iff T in {i8}",
                {v.tensor(DType::i8, {2}), v.tensor(DType::i8, {2}), none()}),
            "f: expected s iff T in {i8}, got T = i8 without 's'");
  // The check does not read elements.
  EXPECT_EQ(why("f(x: i32[n], y: T[m]) where x in [0, m)", {v.tensor(DType::i32, {2}), v.f32({0})}),
            "");
  const yard_value_t q = v.f32({4, 8, 64}), c = v.f32({9, 32}), s = v.f32({9, 32});
  const auto rotary = [&](yard_value_t positions, yard_value_t cos, yard_value_t sin) {
    return why(kRotary, {q, none(), positions, cos, sin, integer(0), number(0), integer(0)});
  };
  EXPECT_EQ(rotary(none(), c, none()),
            "rotary_embedding: expected 'cos' and 'sin' both or neither, got only 'cos'");
  EXPECT_EQ(rotary(none(), none(), none()),
            "rotary_embedding: expected 'positions' or 'cos', got neither");
  EXPECT_EQ(
      rotary(none(), c, s),
      "rotary_embedding: expected cache == tokens unless positions, got cache = 9, tokens = 4");
  EXPECT_EQ(rotary(v.tensor(DType::i32, {4}), c, s), "");
}

TEST(Mismatch, NumbersThatClausesExclude) {
  constexpr const char* kSchema =
      "f(out!: T[n], mask?: T[n], eps: float) where eps >= 0, eps < 3e38, eps != 2 if mask";
  Values v;
  const yard_value_t out = v.f32({4}), mask = v.f32({4});
  const auto with = [&](double eps, bool masked = false) {
    return why(kSchema, {out, masked ? mask : none(), number(eps)});
  };
  for (const double fits : {0.0, -0.0, 1e-300, 2.0, 2.9e38}) EXPECT_EQ(with(fits), "") << fits;
  EXPECT_EQ(with(-1e-300), "f: invalid argument 'eps': expected eps >= 0, got -1e-300");
  EXPECT_EQ(with(4e38), "f: invalid argument 'eps': expected eps < 3e38, got 4e38");
  EXPECT_EQ(with(__builtin_inf()), "f: invalid argument 'eps': expected eps < 3e38, got inf");
  EXPECT_EQ(with(__builtin_nan("")), "f: invalid argument 'eps': expected eps >= 0, got nan");
  EXPECT_EQ(with(2, true), "f: invalid argument 'eps': expected eps != 2 if mask, got 2.0");
}

TEST(Mismatch, Memory) {
  Values v;
  const yard_value_t x = v.f32({2, 4}), o = v.f32({2, 4}), w = v.f32({4});
  auto* data = static_cast<char*>(x.u.tensor->data);
  EXPECT_EQ(why(kRmsNorm, {v.at(data + 4, DType::f32, {2, 4}), x, w, number(0)}),
            "rms_norm: invalid argument 'out': expected memory that is identical to or apart from "
            "'x', got some of it shared");
  EXPECT_EQ(why(kRmsNorm, {x, o, v.at(data, DType::f32, {4}), number(0)}),
            "rms_norm: invalid argument 'out': expected memory apart from 'weight', got some of it "
            "shared");
  EXPECT_EQ(why("f(out!: T[n], x: T[n])", {w, w}),
            "f: invalid argument 'out': expected memory apart from 'x', got the same memory");
  EXPECT_EQ(
      why(kRmsNorm, {v.tensor(DType::f32, {2, 4}, {0, 1}), x, w, number(0)}),
      "rms_norm: invalid argument 'out': it is written, and some of its elements share memory: "
      "f32[2,4;0,1]");
}

TEST(Mismatch, InputsAloneMayLackOutputs) {
  Values v;
  const Program p = Program::compile(kRmsNorm).value();
  std::vector<yard_value_t> args = {none(), v.f32({2, 4}), v.f32({4}), number(0)};
  EXPECT_TRUE(p.explain_mismatch(args.data(), p.arg_count(), true).ok());
  EXPECT_FALSE(p.explain_mismatch(args.data(), 4).ok());
  args[2] = v.f32({5});
  EXPECT_FALSE(p.explain_mismatch(args.data(), p.arg_count(), true).ok());
}

}  // namespace
}  // namespace yard::op
