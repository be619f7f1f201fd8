// SPDX-License-Identifier: Apache-2.0
// Tests every production of the CallSpec grammar, round trips, and the table of wrong texts.
#include "op/call_spec.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

namespace yard::op {
namespace {

CallSpec parsed_call(std::string_view text) {
  Result<CallSpec> c = parse_call_spec(text);
  EXPECT_TRUE(c.ok()) << c.status().to_string();
  return c.ok() ? *c : CallSpec{};
}

TEST(CallSpec, RmsNorm) {
  const CallSpec c = parsed_call("rms_norm(f32[8,4096], f32[4096], eps=1e-6)@cpu");
  EXPECT_EQ(c.op, "rms_norm");
  ASSERT_EQ(c.args.size(), 3u);
  const auto& x = std::get<TensorSpec>(c.args[0].value.v);
  EXPECT_EQ(x.dtype, DType::f32);
  EXPECT_EQ(x.shape, (std::vector<int64_t>{8, 4096}));
  EXPECT_TRUE(x.strides.empty());
  EXPECT_EQ(x.align, 64u);
  EXPECT_FALSE(x.device);
  EXPECT_EQ(c.args[2].name, "eps");
  EXPECT_EQ(std::get<double>(c.args[2].value.v), 1e-6);
  EXPECT_EQ(c.device, Device{});
}

TEST(CallSpec, EveryValue) {
  const CallSpec c = parsed_call(
      R"(a.b(f32[], i4[8,4;1,-8]%16@cuda:1, [f32[2], f16[3]], [], none, 3, -4, x=1.5, inf=-inf,
             n=nan, t=true, f=false, w=tanh, s="a\"b\n",
             out=&x)@cuda+inference+deterministic{k=v, "a b"="", z=1.5})");
  EXPECT_EQ(c.op, "a.b");
  const auto& t = std::get<TensorSpec>(c.args[1].value.v);
  EXPECT_EQ(t.strides, (std::vector<int64_t>{1, -8}));
  EXPECT_EQ(t.align, 16u);
  EXPECT_EQ(t.device, (Device{2, 1}));
  EXPECT_EQ(std::get<std::vector<TensorSpec>>(c.args[2].value.v).size(), 2u);
  EXPECT_TRUE(std::get<std::vector<TensorSpec>>(c.args[3].value.v).empty());
  EXPECT_EQ(std::get<Word>(c.args[4].value.v).text, "none");
  EXPECT_EQ(std::get<int64_t>(c.args[6].value.v), -4);
  EXPECT_EQ(std::get<double>(c.args[8].value.v), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(std::get<double>(c.args[9].value.v)));
  EXPECT_EQ(std::get<bool>(c.args[10].value.v), true);
  EXPECT_EQ(std::get<Word>(c.args[12].value.v).text, "tanh");
  EXPECT_EQ(std::get<std::string>(c.args[13].value.v), "a\"b\n");
  EXPECT_EQ(std::get<SameAs>(c.args[14].value.v).name, "x");
  EXPECT_EQ(c.flags, YARD_CALL_INFERENCE | YARD_CALL_DETERMINISTIC);
  EXPECT_EQ(c.labels, (Labels{{"k", "v"}, {"a b", ""}, {"z", "1.5"}}));
  EXPECT_EQ(
      to_string(c),
      R"(a.b(f32[], i4[8,4;1,-8]%16@cuda:1, [f32[2], f16[3]], [], none, 3, -4, x=1.5, inf=-inf, )"
      R"(n=nan, t=true, f=false, w=tanh, s="a\"b\n", out=&x)@cuda+deterministic+inference{k=v, )"
      R"("a b"="", z=1.5})");
  EXPECT_EQ(parsed_call(to_string(c)), c);
}

TEST(CallSpec, CanonicalText) {
  for (const auto& [text, canonical] : {
           std::pair<std::string_view, std::string_view>{"f()", "f()@cpu"},
           {" f ( float32[ 2 , 3 ] ) ", "f(f32[2,3])@cpu"},
           {"f(f32[2]%64@cpu)@cpu", "f(f32[2])@cpu"},
           {"f(f32[2]@cuda:0)@cuda", "f(f32[2])@cuda"},
           {"f(f32[2]@cpu)@cuda", "f(f32[2]@cpu)@cuda"},
           {"f(x=1.0e+20, y=-0.0, z=100)", "f(x=1e20, y=-0.0, z=100)@cpu"},
           {"f()@cpu+tracing+capturing", "f()@cpu+capturing+tracing"},
           {"f()@cpu+loaded+inference", "f()@cpu+inference+loaded"},
           {"f(){a=b}", "f()@cpu{a=b}"},
       }) {
    EXPECT_EQ(to_string(parsed_call(text)), canonical);
    EXPECT_EQ(parsed_call(canonical), parsed_call(text));
  }
}

struct WrongCallCase {
  const char* text;
  size_t column;
  const char* message;
};

class WrongCall : public testing::TestWithParam<WrongCallCase> {};

TEST_P(WrongCall, PointsAtTheColumn) {
  const WrongCallCase& w = GetParam();
  const Result<CallSpec> c = parse_call_spec(w.text);
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.status().code(), Code::kParse);
  const std::string message(c.status().message());
  EXPECT_NE(message.find(w.message), std::string::npos) << message;
  EXPECT_EQ(message.find("call, column " + std::to_string(w.column) + ": "), 0u) << message;
  const std::string caret = "\n  " + std::string(w.column - 1, ' ') + "^";
  EXPECT_EQ(message.substr(message.size() - caret.size()), caret) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongCall,
    testing::Values(
        WrongCallCase{"", 1, "expected the name of an op, got the end"},
        WrongCallCase{"rms_norm", 9, "expected '(' after the name of the op"},
        WrongCallCase{"f(f32[2]", 9, "expected ')' or ',' after an argument, got the end"},
        WrongCallCase{"f(f23[2])", 3, "expected a dtype, got 'f23'; did you mean 'f32'?"},
        WrongCallCase{"f(f32[2,])", 9, "expected a size, got ']'"},
        WrongCallCase{"f(f32[-2])", 7, "a size is not negative"},
        WrongCallCase{"f(f32[2.5])", 7, "expected a size, got a number with a fraction"},
        WrongCallCase{"f(f32[2;])", 9, "expected a stride"},
        WrongCallCase{"f(f32[2,3;1])", 10, "2 sizes, but 1 strides"},
        WrongCallCase{"f(f32[1,1,1,1,1,1,1,1,1])", 23, "more than 8 dimensions"},
        WrongCallCase{"f(f32[2)", 8, "expected ']' or ',' after a size, got ')'"},
        WrongCallCase{"f(f32[2]%3)", 10, "an alignment is 1, 2, 4"},
        WrongCallCase{"f(f32[2]%128)", 10, "an alignment is"},
        WrongCallCase{"f(f32[2]@gpu)", 10, "expected a device (cpu, cuda:1), got 'gpu'"},
        WrongCallCase{"f(f32[2]@cdua:1)", 10, "did you mean 'cuda'?"},
        WrongCallCase{"f(x=)", 5, "expected a tensor"},
        WrongCallCase{"f(-)", 3, "expected a tensor"},
        WrongCallCase{"f(-x)", 3, "expected a tensor"}, WrongCallCase{"f(1.)", 3, "is malformed"},
        WrongCallCase{"f(1e999)", 3, "is out of range"},
        WrongCallCase{"f(99999999999999999999)", 3, "is out of range"},
        WrongCallCase{"f(x=1, 2)", 8, "a positional argument cannot follow one given by name"},
        WrongCallCase{"f(x=1, x=2)", 8, "argument 'x' is given twice"},
        WrongCallCase{"f(X=1)", 3, "expected a parameter name"},
        WrongCallCase{"f(out=&)", 8, "expected a parameter name after '&'"},
        WrongCallCase{"f([1])", 4, "expected a dtype, got '1'"},
        WrongCallCase{"f([f32[2])", 10, "expected ']' or ',' after a tensor of a list"},
        WrongCallCase{"f(\"abc)", 8, "the string has no closing '\"'"},
        WrongCallCase{"f()@", 5, "expected a device"},
        WrongCallCase{"f()@cpu+determinstic", 9, "did you mean 'deterministic'?"},
        WrongCallCase{"f()@cpu+inference+inference", 19, "is repeated"},
        WrongCallCase{"f()@cpu junk", 9, "expected '@device', '{labels}' or the end, got 'junk'"},
        WrongCallCase{"f(){a}", 6, "expected '=' after the name of a label"},
        WrongCallCase{"f(){a=}", 7, "expected a word or a string"},
        WrongCallCase{"f(){a=b, a=c}", 10, "label 'a' is given twice"},
        WrongCallCase{"f(){a=b", 8, "expected '}' or ',' after a label"}));

// Canonical specs, as parsing and capturing produce them.
rc::Gen<TensorSpec> any_tensor() {
  return rc::gen::exec([] {
    TensorSpec t;
    t.dtype = *rc::gen::element(DType::f32, DType::bf16, DType::i4, DType::boolean, DType::u64);
    t.shape = *rc::gen::resize(
        8, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1 << 20)));
    if (t.shape.size() > YARD_MAX_RANK) t.shape.resize(YARD_MAX_RANK);
    if (!t.shape.empty() && *rc::gen::arbitrary<bool>())
      t.strides =
          *rc::gen::container<std::vector<int64_t>>(t.shape.size(), rc::gen::arbitrary<int64_t>());
    t.align = 1u << *rc::gen::inRange(0, 7);
    if (*rc::gen::arbitrary<bool>()) t.device = Device{2, *rc::gen::inRange(0, 256)};
    return t;
  });
}

rc::Gen<SpecValue> any_value() {
  return rc::gen::exec([]() -> SpecValue {
    switch (*rc::gen::inRange(0, 8)) {
      case 0: return {*rc::gen::arbitrary<int64_t>()};
      case 1: return {*rc::gen::arbitrary<double>()};
      case 2: return {*rc::gen::arbitrary<bool>()};
      case 3: return {*rc::gen::arbitrary<std::string>()};
      case 4: return {Word{*rc::gen::element<std::string>("none", "tanh", "half")}};
      case 5: return {SameAs{*rc::gen::element<std::string>("x", "out_2")}};
      case 6: return {*rc::gen::container<std::vector<TensorSpec>>(any_tensor())};
      default: return {*any_tensor()};
    }
  });
}

RC_GTEST_PROP(CallSpec, RoundTrips, ()) {
  CallSpec c;
  c.op = *rc::gen::element<std::string>("f", "attention.causal", "a_1.b.2");
  c.device = Device{1, *rc::gen::inRange(0, 3)};
  c.flags = *rc::gen::inRange(0u, 16u);
  const int n = *rc::gen::inRange(0, 8), named = *rc::gen::inRange(0, 8);
  for (int i = 0; i < n; ++i)
    c.args.push_back({i < named ? "" : "p" + std::to_string(i), *any_value()});
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i)
    c.labels.emplace_back(std::to_string(i) + *rc::gen::arbitrary<std::string>(),
                          *rc::gen::arbitrary<std::string>());
  const std::string text = to_string(c);
  const Result<CallSpec> back = parse_call_spec(text);
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == c);
  RC_ASSERT(to_string(*back) == text);
}

}  // namespace
}  // namespace yard::op
